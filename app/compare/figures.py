"""The stages of several runs come in; one table goes out: kernels, launches, bytes, graph breaks and measured times, run beside run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.stages.timing import microseconds
from app.stages.view import bytes_text
from compiler.trace import Stage, Timing, Trace

READS = ("eager", "dynamo", "code", "timing")
"""The stages that the table is made of."""
MAX_TIMED = 12

Quality = Literal["", "better", "worse", "noise", "absent"]
_NEUTRAL: tuple[str, Quality] = ("", "")


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run has for one figure, with a note below it, and how it stands to the first run."""

    text: str
    note: str = ""
    quality: Quality = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. ``differs``: not all runs have the same."""

    name: str
    about: str
    cells: tuple[Cell, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class Told:
    """What one run says: which compiler it was, whether it has finished, and those of its stages that ``READS`` names."""

    compiler: str
    finished: bool
    outline: Trace
    stages: Mapping[str, Sequence[Stage]]

    def of(self, name: str) -> Sequence[Stage]:
        """The stages of that name that were reached and not skipped."""
        return [stage for stage in self.stages.get(name, ()) if stage.status == "ok"]

    @property
    def eager(self) -> bool:
        return self.compiler == "eager"


LETTERS = "ABCDEF"
"""What runs are called in their order."""


def figures(runs: Sequence[Told]) -> tuple[Figure, ...]:
    """The table. A figure that a run does not tell is said to be unknown, never guessed."""
    counted: list[tuple[str, str, Callable[[Told], int | None]]] = [
        ("regions", "Graphs that Dynamo captured.", lambda run: len(run.outline.regions) if run.outline.regions or run.finished else None),
        ("graph breaks", "Places where Dynamo gave up and began a new graph.", _graph_breaks),
        ("generated kernels", "Kernels that the compiler wrote.", lambda run: _kernels(run, generated=True)),
        ("extern calls", "Calls of libraries and of PyTorch's own kernels.", lambda run: _kernels(run, generated=False)),
        ("launches", "Kernels and extern calls that one call of the compiled code makes.", _launches),
    ]
    table = [_figure(name, about, [_number(count(run), run) for run in runs]) for name, about, count in counted]
    table.append(_figure("bytes moved", "Read and written by all kernels of one call.", [_bytes(run) for run in runs]))
    return (*table, *_times(runs))


def _figure(name: str, about: str, cells: Sequence[Cell]) -> Figure:
    said = {cell.text for cell in cells if cell.quality != "absent"}
    return Figure(name, about, tuple(cells), len(said) > 1)


def _missing(run: Told, reason: str = "") -> Cell:
    return Cell("unknown" if run.finished else "…", reason if run.finished else "", "absent")


def _number(count: int | None, run: Told) -> Cell:
    return _missing(run) if count is None else Cell(f"{count:,}")


def _graph_breaks(run: Told) -> int | None:
    stages = run.of("dynamo")
    told = [_whole(stage.facts.get("graph_breaks"), sum(item.rule == "graph_break" for item in stage.decisions)) for stage in stages]
    return sum(told) if stages else None


def _whole(value: object, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _eager_fact(run: Told, *names: str) -> int | None:
    stages = run.of("eager")
    return sum(_whole(stage.facts.get(name)) for stage in stages for name in names) if stages else None


def _kernels(run: Told, generated: bool) -> int | None:
    if run.eager:
        return 0 if generated else _eager_fact(run, "kernels")
    stages = run.of("code")
    return sum((kernel.kind != "extern") is generated for stage in stages for kernel in stage.kernels) if stages else None


def _launches(run: Told) -> int | None:
    timed = [stage for stage in run.of("timing") if "launches" in stage.facts]
    if timed and not run.eager and len(timed) == len(run.of("code")):
        return sum(_whole(stage.facts["launches"]) for stage in timed)
    generated, extern = _kernels(run, generated=True), _kernels(run, generated=False)
    return None if generated is None or extern is None else generated + extern


def _bytes(run: Told) -> Cell:
    if run.eager:
        count = _eager_fact(run, "bytes_read", "bytes_written")
        return _missing(run) if count is None else Cell(bytes_text(count))
    kernels = [kernel for stage in run.of("code") for kernel in stage.kernels]
    known = [size for kernel in kernels if isinstance(size := kernel.facts.get("bytes"), int)]
    if not known:
        return _missing(run)
    left = len(kernels) - len(known)
    return Cell(bytes_text(sum(known)), f"without {left} whose bytes are unknown" if left else "")


def _times(runs: Sequence[Told]) -> list[Figure]:
    """A line for each timed call, of the run's own compiler; and one for eager, which every run measures beside its own."""
    own = [_calls(run, run.compiler) for run in runs]
    keys = list(dict.fromkeys(key for calls in own for key in calls))[:MAX_TIMED]
    several = len({region for region, _ in keys}) > 1
    table = []
    for region, part in keys or [(0, "")]:
        name = " ".join(filter(None, ("time", part, f"of region {region}" if several else "")))
        cells = _timed(runs, [calls.get((region, part)) for calls in own])
        differs = any(cell.quality in ("better", "worse") for cell in cells)
        table.append(Figure(name, "Median of one call, with the 10th to 90th percentile.", tuple(cells), differs))
    beside = [sum(call.median_us for call in _calls(run, "eager").values()) for run in runs]
    if any(beside) and not all(run.eager for run in runs):
        cells = [Cell(microseconds(time)) if time else _unmeasured(run) for run, time in zip(runs, beside, strict=True)]
        about = "The same calls without a compiler, measured in each run beside its own: how much the machine differed from run to run."
        table.append(Figure("eager beside it", about, tuple(cells), False))
    return table


def _calls(run: Told, compiler: str) -> dict[tuple[int, str], Timing]:
    found: dict[tuple[int, str], Timing] = {}
    for stage in run.of("timing"):
        for item in stage.timings:
            if item.scope == "call" and item.compiler == compiler and item.repeats:
                found[stage.region, item.part or stage.part] = item
    return found


def _timed(runs: Sequence[Told], times: Sequence[Timing | None]) -> list[Cell]:
    place = next((index for index, item in enumerate(times) if item is not None), 0)
    first = times[place]
    cells = []
    for run, item in zip(runs, times, strict=True):
        if item is None:
            skipped = next((stage.reason for stage in run.stages.get("timing", ()) if stage.status != "ok"), "")
            cells.append(_unmeasured(run, skipped))
            continue
        spread = f"{microseconds(item.low_us)} to {microseconds(item.high_us)}, {item.repeats:,} samples"
        against, quality = _NEUTRAL if first is None or item is first else _against(item, first, LETTERS[place])
        cells.append(Cell(microseconds(item.median_us), " · ".join(filter(None, (spread, against))), quality))
    return cells


def _unmeasured(run: Told, reason: str = "") -> Cell:
    return Cell("not measured", reason, "absent") if run.finished else Cell("…", "", "absent")


def _against(item: Timing, first: Timing, letter: str) -> tuple[str, Quality]:
    if item.low_us <= first.high_us and first.low_us <= item.high_us:
        return f"within noise: its spread and that of {letter} overlap", "noise"
    if not item.median_us or not first.median_us:
        return "", ""
    ratio = first.median_us / item.median_us
    return (f"{ratio:.2f}× faster than {letter}", "better") if ratio >= 1 else (f"{1 / ratio:.2f}× slower than {letter}", "worse")
