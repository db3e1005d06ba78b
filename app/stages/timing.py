"""The ``timing`` tab: how long eager and compiled code take on the same inputs, with spread, bytes and the share of the copy rate."""

from __future__ import annotations

from dataclasses import dataclass

from app.stages.view import Facts, Lines, Listing, Round, StageView, bytes_text, facts_text, listings, rounds, source_lines
from compiler.trace import Stage, Timing

SCOPES = {"call": "The whole call", "kernel": "Kernel by kernel", "op": "Operation by operation"}


@dataclass(frozen=True, slots=True)
class TimingRow:
    """One measurement; ``low``, ``median`` and ``high`` are also given in percent of the table's longest, for its bar."""

    subject: str
    compiler: str
    part: str
    median: str
    spread: str
    repeats: int
    bytes: str
    rate: str
    copy_percent: float | None
    bar: tuple[float, float, float]
    lines: Lines


@dataclass(frozen=True, slots=True)
class TimingTable:
    title: str
    rows: tuple[TimingRow, ...]
    has_bytes: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Eager against compiled for one subject: the ratio, and whether the spreads overlap, which leaves nothing to conclude."""

    subject: str
    part: str
    compiler: str
    ratio: str
    faster: bool
    noise: bool


@dataclass(frozen=True, slots=True)
class TimingPage:
    facts: Facts
    comparisons: tuple[Comparison, ...]
    tables: tuple[TimingTable, ...]
    rounds: tuple[Round, ...]
    listings: tuple[Listing, ...]
    from_cache: bool
    """Whether something moved its bytes faster than the device's memory can: they were in a cache."""


def microseconds(value: float) -> str:
    """A measured time for people."""
    if value >= 1e6:
        return f"{value / 1e6:.2f} s"
    if value >= 1e4:
        return f"{value / 1e3:.1f} ms"
    if value >= 1e3:
        return f"{value / 1e3:.2f} ms"
    return f"{value:.1f} µs" if value < 100 else f"{value:.0f} µs"


def rate(gigabytes: float) -> str:
    """Bytes a second for people."""
    if gigabytes < 0.1:
        return f"{gigabytes * 1000:.3g} MB/s"
    return f"{gigabytes:.3g} GB/s" if gigabytes < 1000 else f"{gigabytes:,.0f} GB/s"


def timing_tables(stage: Stage) -> tuple[TimingTable, ...]:
    """The stage's measurements, one table for each scope."""
    tables = []
    for scope, title in SCOPES.items():
        own = [item for item in stage.timings if item.scope == scope]
        if own:
            longest = max(item.high_us for item in own) or 1.0
            tables.append(
                TimingTable(title, tuple(_row(item, longest, stage) for item in own), any(item.bytes is not None for item in own))
            )
    return tuple(tables)


def _row(item: Timing, longest: float, stage: Stage) -> TimingRow:
    low, median, high = (min(100.0, max(0.0, value / longest * 100)) for value in (item.low_us, item.median_us, item.high_us))
    return TimingRow(
        subject=item.subject,
        compiler=item.compiler,
        part=item.part,
        median=microseconds(item.median_us),
        spread=f"{microseconds(item.low_us)} to {microseconds(item.high_us)}",
        repeats=item.repeats,
        bytes="" if item.bytes is None else bytes_text(item.bytes),
        rate="" if item.gb_per_s is None else rate(item.gb_per_s),
        copy_percent=None if item.copy_fraction is None else min(999.0, item.copy_fraction * 100),
        bar=(round(low, 2), round(median, 2), round(high, 2)),
        lines=source_lines(item.origins, stage.origins),
    )


def comparisons(timings: tuple[Timing, ...]) -> tuple[Comparison, ...]:
    """Each compiled call against the eager call of the same part."""
    calls = [item for item in timings if item.scope == "call"]
    eager = {item.part: item for item in calls if item.compiler == "eager"}
    found = []
    for item in calls:
        base = eager.get(item.part)
        if item.compiler == "eager" or base is None or not item.median_us or not base.median_us:
            continue
        ratio = base.median_us / item.median_us
        noise = item.low_us <= base.high_us and base.low_us <= item.high_us
        factor = f"{ratio:.2f}× faster" if ratio >= 1 else f"{1 / ratio:.2f}× slower"
        found.append(Comparison(item.subject, item.part, item.compiler, factor, ratio >= 1, noise))
    return tuple(found)


def page(stage: Stage) -> TimingPage:
    from_cache = any((item.copy_fraction or 0) > 1.05 for item in stage.timings)
    return TimingPage(facts_text(stage.facts), comparisons(stage.timings), timing_tables(stage), rounds(stage), listings(stage), from_cache)


VIEW = StageView(
    "timing", "Measured: eager and compiled code on the same inputs in one process, medians with their spread.", page, columns=False
)
