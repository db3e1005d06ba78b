"""What observing costs: the time to compile with observation over that without, ``python -m bench.observe_overhead``.

Both in one process, alternating, on the programs of the fidelity test, from a cold Dynamo and with caches off: the whole script each time.
Time is CPU time of the process and its children, so that other work on the machine does not count. Observed: all that ``run_snippet`` does
to make the trace. Left out: what it runs besides compiling, which is the eager listing and the comparison of results, unless ``--whole``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import torch
import torch._functorch.config as functorch
import torch._inductor.config as inductor

from bench.fidelity_sides import run_as_main, without_builds
from compiler.capture.examine import Examiner
from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Event, event_line
from tests.compiler.observe.fidelity_programs import PROGRAMS


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one program, each time it was run."""

    name: str
    plain: tuple[float, ...]
    observed: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(self.observed) / statistics.median(self.plain)


def plain(source: str) -> None:
    """The script as torch alone runs it, with caches off."""
    torch._dynamo.reset()
    with inductor.patch(compile_threads=1, fx_graph_cache=False), functorch.patch(enable_autograd_cache=False):
        run_as_main(source)


def observed(source: str) -> None:
    """The script through our observation, up to the lines of JSON that a worker reads."""
    target = find_target("cpu")
    assert target is not None

    def emit(event: Event) -> None:
        event_line(event)

    run_snippet(source, Options(measure=False), target, "inductor", emit)


@contextlib.contextmanager
def only_compiling() -> Iterator[None]:
    """Regions are not run again in eager, neither to list its ops nor to compare results."""

    def called(self: Examiner, region: object, inputs: object) -> None:
        pass

    def finish(self: Examiner) -> None:
        self.frames.finish()

    with patch.object(Examiner, "called", called), patch.object(Examiner, "finish", finish):
        yield


def cpu_seconds(run: Callable[[str], None], source: str) -> float:
    """Of the process and of the compilers that it started; nothing is taken from an earlier run's folder."""
    from torch._inductor.utils import clear_caches

    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": folder}):
        clear_caches()
        gc.collect()
        with patch("compiler.capture.observed.private_folder", lambda: folder), contextlib.redirect_stdout(io.StringIO()):
            start = os.times()
            run(source)
            end = os.times()
    return sum(end[:4]) - sum(start[:4])


def cost_of(name: str, repeats: int) -> Cost:
    """The first run of a program is thrown away: it fills what torch remembers within a process. Who goes first alternates."""
    cpu_seconds(plain, PROGRAMS[name])
    runs: dict[Callable[[str], None], list[float]] = {plain: [], observed: []}
    for turn in range(repeats):
        for run in (plain, observed) if turn % 2 else (observed, plain):
            runs[run].append(cpu_seconds(run, PROGRAMS[name]))
    return Cost(name, tuple(runs[plain]), tuple(runs[observed]))


def report(costs: Sequence[Cost]) -> str:
    rows = ["| program | plain, s | observed, s | ratio |", "| --- | --- | --- | --- |"]
    for cost in costs:
        rows.append(f"| {cost.name} | {_spread(cost.plain)} | {_spread(cost.observed)} | {cost.ratio:.2f} |")
    plain_sum = sum(statistics.median(cost.plain) for cost in costs)
    observed_sum = sum(statistics.median(cost.observed) for cost in costs)
    ratios = sorted(cost.ratio for cost in costs)
    low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    rows += [
        "",
        f"All programs: {observed_sum:.1f} s over {plain_sum:.1f} s of CPU time, ratio {observed_sum / plain_sum:.2f}; "
        f"of a program, median {statistics.median(ratios):.2f}, 10th to 90th percentile {low:.2f} to {high:.2f}.",
    ]
    return "\n".join(rows)


def _spread(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--build", action="store_true", help="compile the generated C++ as well: closer to what a user waits for")
    parser.add_argument("--whole", action="store_true", help="with the eager listing and the comparison of results")
    parser.add_argument("names", nargs="*", help="programs; all if none is given")
    asked = parser.parse_args()
    if not asked.build:
        without_builds()
    names = asked.names or list(PROGRAMS)
    with contextlib.nullcontext() if asked.whole else only_compiling():
        for run in (plain, observed):
            cpu_seconds(run, PROGRAMS[names[0]])  # what is imported and probed once a process
        costs = [cost_of(name, asked.repeats) for name in names]
    print(f"torch {torch.__version__}, {asked.repeats} runs each, generated C++ {'' if asked.build else 'not '}compiled\n")
    print(report(costs))


if __name__ == "__main__":
    main()
