"""Of the ops that Inductor lowers itself, how many do we: ``python -m bench.native``, on the first samples of PyTorch's OpInfo database.

Inductor counts as lowering an op itself if no graph of its samples has a ``FallbackKernel``, which is its call of an ATen op that it has no
loops for; products and convolutions, which either compiler hands to a library, do not count. We do if none of our calls is a fallback.
What Inductor generates is not built.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from bench.fidelity_sides import without_builds
from bench.opinfo import chosen_ops
from bench.opinfo_samples import copies, op_key
from compiler import backend
from compiler.stats import TALLY


def asked(function: Callable[..., Any], sample: Any, compiled_by: Any) -> str:  # noqa: ANN401  # an OpInfo's sample, a backend
    """The error of compiling one sample, "" without one."""
    arguments, keywords = copies(((sample.input, *sample.args), sample.kwargs))
    torch._dynamo.reset()
    torch.manual_seed(0)
    try:
        torch.compile(lambda *args, **kwargs: function(*args, **kwargs), backend=compiled_by, dynamic=False)(*arguments, **keywords)
    except Exception as error:  # of either compiler, or of code that read zeros
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def inductors(function: Callable[..., Any], samples: list[Any]) -> tuple[Counter[str], int, list[str]]:
    """The ops that fell back, how many graphs there were, errors."""
    from torch._inductor import compile_fx, ir

    fell: Counter[str] = Counter()
    graphs = 0
    created = ir.FallbackKernel.create.__func__  # type: ignore[attr-defined]  # a classmethod

    def create(cls: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # Inductor's own
        fell[str(kernel)] += 1
        return created(cls, kernel, *args, **kwargs)

    def counted(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return compile_fx.compile_fx(gm, inputs)

    with patch.object(ir.FallbackKernel, "create", classmethod(create)):
        errors = [asked(function, sample, counted) for sample in samples]
    return fell, graphs, [error for error in errors if error]


def mine(function: Callable[..., Any], samples: list[Any]) -> tuple[Counter[str], list[str]]:
    TALLY.clear()
    errors = [asked(function, sample, backend) for sample in samples]
    return Counter(TALLY.report()["fallbacks"]), [error for error in errors if error]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    without_builds()
    dtype, rows = getattr(torch, given.dtype), []
    with torch._inductor.config.patch(compile_threads=1, fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        for name, op in chosen_ops(given.ops, given.every, "0/1").items():
            if dtype not in op.supported_dtypes("cpu"):
                continue
            samples = list(op.sample_inputs("cpu", dtype))
            chosen = [samples[round(at * (len(samples) - 1) / max(given.samples - 1, 1))] for at in range(min(given.samples, len(samples)))]
            theirs, graphs, wrong = inductors(op.get_op(), chosen)
            ours, errors = mine(op.get_op(), chosen)
            rows.append({"op": op_key(op), "graphs": graphs, "inductor": theirs, "ours": ours, "errors": [wrong, errors]})
            if graphs and not theirs and ours:
                print(f"{name}: {dict(ours)}", flush=True)
            if given.out:
                given.out.write_text(json.dumps(rows))
    compiled = [row for row in rows if row["graphs"]]
    native = [row for row in compiled if not row["inductor"]]
    both = [row for row in native if not row["ours"]]
    more = [row for row in compiled if row["inductor"] and not row["ours"]]
    print(f"\n{len(rows)} ops, {len(compiled)} with a graph; Inductor lowers {len(native)} itself, of these we lower {len(both)}: "
          f"{len(both) / max(len(native), 1):.1%}; and {len(more)} that Inductor hands to ATen")  # fmt: skip


if __name__ == "__main__":
    main()
