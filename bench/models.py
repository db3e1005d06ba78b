"""Whole models through this compiler: ``python -m bench.models [names]``, each in a process of its own with a time limit.

A model runs once in evaluation, then one step of training. What it gives, its loss, gradients, updated parameters and buffers are
compared with eager PyTorch in float64, beside eager in float32 (``tests/compiler/models/check.py``). The table counts both calls: graphs
(a training call has two), kernels, loop nests, library calls, and fallbacks by op. For Inductor it counts kernels and fallbacks of the
same calls on the CPU, whose C++ is generated, not built.

    python -m bench.models bert llama                  two models
    python -m bench.models --family own --no-inductor
    python -m bench.models --out models.json           all of them; --merge models.json prints the table again
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from bench.fidelity_sides import without_builds
from compiler import backend
from compiler.errors import CompileError
from compiler.stats import TALLY
from tests.compiler.models import ZOO
from tests.compiler.models.check import built, compare, outcome, reference

COLUMNS = (
    "model", "from", "graphs", "nests", "kernels", "Inductor's kernels", "library calls", "fallbacks", "Inductor's fallbacks", "verdict",
    "error / allowed",
)  # fmt: skip


@dataclass
class Row:
    """One model. ``worst``: the value whose error is nearest to what is allowed, and its error over that."""

    name: str
    family: str
    verdict: str = "not begun"
    reason: str = ""
    worst: tuple[str, float] = ("", 0.0)
    seconds: float = 0.0
    dynamo: int = 0
    graphs: int = 0
    kernels: int = 0
    nests: int = 0
    libraries: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    inductor_kernels: int = 0
    inductor_fallbacks: dict[str, int] = field(default_factory=dict)
    inductor_error: str = ""


def counted(compiler: Callable[..., Any], row: Row) -> Callable[..., Any]:
    """The backend; ``row.dynamo`` counts its graphs."""

    def called(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        row.dynamo += 1
        return compiler(gm, inputs)

    return called


def ours(row: Row) -> None:
    """Compiles, runs, compares and counts with this compiler."""
    model = ZOO[row.name]
    eager, exact = reference(model)
    module, inputs = built(model)
    TALLY.clear()
    begun = time.perf_counter()
    try:
        got = outcome(model, module, inputs, lambda one: torch.compile(one, backend=counted(backend, row), dynamic=False))
    except Exception as error:  # whatever goes wrong is what this run looks for
        refused = refusal(error)
        row.verdict = "refused" if refused else "error"
        row.reason = str(refused) if refused else traceback.format_exc(limit=-4)[-2000:]
        return
    finally:
        row.seconds = round(time.perf_counter() - begun, 1)
        said = TALLY.report()
        row.graphs, row.kernels, row.nests = said["graphs"], said["kernels"], said["native"]
        row.libraries, row.fallbacks, row.reasons = said["libraries"], said["fallbacks"], said["reasons"]
    found = compare(got, eager, exact)
    wrong = [one for one in found if not one.right]
    worst = max(found, key=lambda one: one.ours / max(one.allowed, 1e-300))
    row.worst = worst.name, round(worst.ours / max(worst.allowed, 1e-300), 3)
    row.verdict = "wrong" if wrong else "right" if row.dynamo else "no graph"
    row.reason = "; ".join(f"{one.name}: {one.ours:.1e}, eager {one.eager:.1e}" for one in wrong)[:2000]


def refusal(error: BaseException | None) -> CompileError | None:
    """The CompileError among what led to an exception."""
    while error is not None and not isinstance(error, CompileError):
        error = getattr(error, "inner_exception", None) or error.__cause__
    return error


def inductors(row: Row) -> None:
    """Counts what Inductor makes of the same calls. Their results are not used: its kernels write zeros."""
    from torch._inductor import compile_fx, ir, metrics

    without_builds()
    metrics.reset()
    fell: Counter[str] = Counter()
    created = ir.FallbackKernel.create.__func__  # type: ignore[attr-defined]  # a classmethod

    def create(cls: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # Inductor's own
        fell[str(kernel)] += 1
        return created(cls, kernel, *args, **kwargs)

    model = ZOO[row.name]
    module, inputs = built(model)
    torch._dynamo.reset()
    settings = (
        torch._inductor.config.patch(compile_threads=1, fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=True),
        patch.object(ir.FallbackKernel, "create", classmethod(create)),
    )
    with settings[0], settings[1], settings[2]:
        try:
            outcome(model, copy.deepcopy(module), inputs, lambda one: torch.compile(one, backend=compile_fx.compile_fx, dynamic=False))
        except Exception as error:  # of Inductor, or of code that read zeros
            row.inductor_error = f"{type(error).__name__}: {error}"[:300]
    row.inductor_kernels, row.inductor_fallbacks = metrics.generated_kernel_count, dict(fell)


def apart(name: str, sides: tuple[Callable[[Row], None], ...], timeout: float) -> Row:
    """The row of a forked process, which may crash or hang; what it had found by then stays."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    row = Row(name, ZOO[name].family)

    def child() -> None:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        for side in sides:
            try:
                side(row)
            except Exception:  # eager itself, or the model, fails
                row.verdict, row.reason = "error", traceback.format_exc(limit=-4)[-2000:]
            sender.send(row)

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        for side in sides:
            if not receiver.poll(timeout):
                process.kill()
                return stopped(row, side, "timeout", f"more than {timeout:.0f} s")
            row = receiver.recv()
    except EOFError:
        process.join()
        return stopped(row, side, "crash", f"exit status {process.exitcode}")
    finally:
        process.join()
    return row


def stopped(row: Row, side: Callable[[Row], None], verdict: str, reason: str) -> Row:
    if side is ours:
        row.verdict, row.reason = verdict, reason
    else:
        row.inductor_error = f"{verdict}: {reason}"
    return row


def listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name.removeprefix('aten.').removesuffix('.default')} {count}" for name, count in counts.items()) or "none"


def report(rows: list[Row]) -> None:
    """The table; what was not right with its reason; the fallbacks of all models by op."""
    print("| " + " | ".join(COLUMNS) + " |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- | --- | --- | --- | ---: |")
    for row in rows:
        theirs = listed(row.inductor_fallbacks) + (f" ({row.inductor_error[:60]})" if row.inductor_error else "")
        numbers = row.graphs, row.nests, row.kernels, row.inductor_kernels
        cells = *numbers, listed(row.libraries), listed(row.fallbacks), theirs, row.verdict, f"{row.worst[1]:.2f}"
        print(f"| {row.name} | {row.family} | {' | '.join(map(str, cells))} |")
    print()
    for row in rows:
        if row.verdict != "right":
            print(f"{row.name}: {row.verdict}: {row.reason}")
    fallbacks: Counter[str] = Counter()
    for row in rows:
        fallbacks.update(row.fallbacks)
    for op, count in fallbacks.most_common():
        owners = [row for row in rows if op in row.fallbacks]
        print(f"{op}: {count} in {', '.join(row.name for row in owners)}: {owners[0].reasons[op]}")


def warm() -> None:
    """Imports once, before the forks, what every model needs."""
    import importlib

    from torch._inductor import compile_fx
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    assert compile_fx
    pick_vec_isa()  # asks a new process, once in this one and its children
    if not next(model for model in ZOO.values() if model.family == "transformers").missing():
        importlib.import_module("transformers.modeling_utils")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"default: all of {', '.join(ZOO)}")
    parser.add_argument("--family", choices=("transformers", "timm", "own"), help="only these")
    parser.add_argument("--no-inductor", dest="sides", action="store_const", const=(ours,), default=(ours, inductors))
    parser.add_argument("--only-inductor", dest="sides", action="store_const", const=(inductors,))
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each model and compiler")
    parser.add_argument("--out", type=Path, help="a JSON file for all rows")
    parser.add_argument("--merge", type=Path, nargs="+", help="only print what these files say; later ones replace rows of earlier ones")
    given = parser.parse_args()
    if given.merge:
        return report(merged(given.merge))
    torch.set_num_threads(1)
    warm()
    rows: list[Row] = []
    for name in given.names or [name for name, model in ZOO.items() if given.family in (None, model.family)]:
        missing = ZOO[name].missing()
        if missing:
            print(f"{name}: skipped: {missing}")
            continue
        rows.append(apart(name, given.sides, given.timeout))
        last = rows[-1]
        print(f"{name}: {last.verdict} in {last.seconds} s {last.reason[:300]} {last.fallbacks or ''} {last.inductor_error}", flush=True)
        if given.out:
            given.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print()
    return report(rows)


def merged(paths: list[Path]) -> list[Row]:
    """By name. Only one compiler's part may be in a row; then the other part is kept."""
    rows: dict[str, Row] = {}
    for path in paths:
        for values in json.loads(path.read_text()):
            row, before = Row(**values), rows.get(values["name"])
            if before is not None and row.verdict == "not begun":
                before.inductor_kernels, before.inductor_fallbacks, before.inductor_error = (
                    row.inductor_kernels, row.inductor_fallbacks, row.inductor_error,
                )  # fmt: skip
                continue
            if before is not None and not row.inductor_kernels:
                row.inductor_kernels, row.inductor_fallbacks, row.inductor_error = (
                    before.inductor_kernels, before.inductor_fallbacks, before.inductor_error,
                )  # fmt: skip
            rows[row.name] = row
    return list(rows.values())


if __name__ == "__main__":
    main()
