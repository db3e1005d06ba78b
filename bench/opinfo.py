"""Runs ops of PyTorch's OpInfo database through this compiler, each in a process of its own, and holds every result against eager.

``python -m bench.opinfo --every 8 --dtypes float32,int64`` prints what failed and a table of statuses by dtype; it needs ``expecttest``.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from compiler import backend

# What these give is not determined, or (as_strided) depends on memory outside of the sample.
UNDETERMINED = (
    "rand",
    "bernoulli",
    "multinomial",
    "normal",
    "uniform",
    "exponential",
    "cauchy",
    "geometric",
    "poisson",
    "empty",
    "dropout",
)
NO_REFERENCE = {"as_strided.partial_views"}
TOLERANCES = {torch.float32: (1e-4, 1e-5), torch.float16: (4e-3, 2e-3), torch.bfloat16: (2e-2, 5e-3)}
SEVERITY = ("skipped", "no_graph", "pass", "fail", "error", "crash", "timeout")


@dataclass(frozen=True)
class Verdict:
    """``no_graph``: Dynamo never called the compiler. ``error``: only the compiled run raised; ``reason`` says what was wrong."""

    op: str
    dtype: str
    status: str
    samples: int
    reason: str = ""


def op_key(op: Any) -> str:  # noqa: ANN401  # OpInfo is private to PyTorch's tests
    return str(op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""))


def difference(ours: object, theirs: object, determined: bool) -> str:
    """What is wrong with one leaf of the results, or nothing."""
    if not isinstance(theirs, torch.Tensor):
        same = ours == theirs or (ours != ours and theirs != theirs) or (isinstance(theirs, float) and abs(ours - theirs) < 1e-4)  # type: ignore[operator]
        return "" if same or not determined else f"{ours} instead of {theirs}"
    if not isinstance(ours, torch.Tensor):
        return f"{type(ours).__name__} instead of a tensor"
    if theirs.layout is not torch.strided or theirs.is_quantized:
        return ""
    if (ours.dtype, ours.shape, ours.device) != (theirs.dtype, theirs.shape, theirs.device):
        return f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    if not determined:
        return ""
    rtol, atol = TOLERANCES.get(theirs.dtype, (1e-6, 1e-6))
    try:
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return str(error)
    return ""


def copies(value: Any) -> Any:  # noqa: ANN401  # any tree of arguments
    def copied(leaf: object) -> object:
        strided = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
        return torch._dynamo.utils.clone_input(leaf) if strided else leaf

    return tree_map(copied, value)


def try_sample(function: Callable[..., Any], sample: Any, determined: bool) -> tuple[str, str]:  # noqa: ANN401  # a SampleInput
    """The status of one sample and the reason; "skipped" where eager raises too."""
    graphs = 0

    def counted(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return backend(gm, inputs)

    given = ((sample.input, *sample.args), sample.kwargs)
    arguments, keywords = copies(given)
    torch.manual_seed(0)
    try:
        wanted = tree_leaves((function(*arguments, **keywords), arguments, keywords))
    except Exception:  # a sample of what eager refuses tells nothing about this compiler
        return "skipped", ""
    arguments, keywords = copies(given)
    torch._dynamo.reset()
    torch.manual_seed(0)
    try:
        compiled = torch.compile(lambda *args, **kwargs: function(*args, **kwargs), backend=counted, dynamic=False)
        got = tree_leaves((compiled(*arguments, **keywords), arguments, keywords))
    except Exception:  # whatever goes wrong is what this run looks for
        return "error", traceback.format_exc(limit=-1)
    if len(got) != len(wanted):
        return "fail", f"{len(got)} results instead of {len(wanted)}"
    reasons = [reason for ours, theirs in zip(got, wanted, strict=True) if (reason := difference(ours, theirs, determined))]
    return ("fail", reasons[0]) if reasons else ("pass" if graphs else "no_graph", "")


def try_op(op: Any, dtype: torch.dtype, most: int) -> Verdict:  # noqa: ANN401  # an OpInfo
    """The worst of at most so many samples, spread over the list of them."""
    name = str(dtype).removeprefix("torch.")
    if dtype not in op.supported_dtypes("cpu"):
        return Verdict(op_key(op), name, "skipped", 0)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", dtype))
    chosen = samples[:: max(1, len(samples) // most)][:most]
    determined = not any(word in op.name for word in UNDETERMINED)
    tried = [try_sample(op.get_op(), sample, determined) for sample in chosen]
    status, reason = max(tried, key=lambda one: SEVERITY.index(one[0]), default=("skipped", ""))
    return Verdict(op_key(op), name, status, len(tried), reason)


def apart(op: Any, dtype: torch.dtype, most: int, seconds: float) -> Verdict:  # noqa: ANN401  # an OpInfo
    """The verdict of a forked process, which may crash or hang."""
    name = str(dtype).removeprefix("torch.")
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        sender.send(try_op(op, dtype, most))

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            process.kill()
            return Verdict(op_key(op), name, "timeout", 0)
        verdict: Verdict = receiver.recv()
        return verdict
    except EOFError:
        process.join()
        return Verdict(op_key(op), name, "crash", 0, f"exit status {process.exitcode}")
    finally:
        process.join()


def main() -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="names, with commas between them; default: all")
    parser.add_argument("--every", type=int, default=1, help="only each such op")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--samples", type=int, default=3, help="at most so many for each op and dtype")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for each op and dtype")
    parser.add_argument("--out", type=Path, help="a JSON file for all verdicts")
    chosen = parser.parse_args()
    wanted = set(filter(None, chosen.ops.split(",")))
    ops = list(
        {op_key(op): op for op in op_db if op_key(op) not in NO_REFERENCE and (not wanted or {op_key(op), op.name} & wanted)}.values()
    )
    verdicts: list[Verdict] = []
    for dtype in chosen.dtypes.split(","):
        for op in ops[:: chosen.every]:
            verdict = apart(op, getattr(torch, dtype), chosen.samples, chosen.timeout)
            verdicts.append(verdict)
            if SEVERITY.index(verdict.status) >= SEVERITY.index("fail"):
                print(f"{verdict.status} {verdict.op} {dtype}: {verdict.reason.strip().splitlines()[-1:]}", flush=True)
    if chosen.out:
        chosen.out.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1))
    print("| dtype | " + " | ".join(SEVERITY) + " |\n| --- |" + " ---: |" * len(SEVERITY))
    for dtype in chosen.dtypes.split(","):
        counts = collections.Counter(verdict.status for verdict in verdicts if verdict.dtype == dtype)
        print(f"| {dtype} | " + " | ".join(str(counts[status]) for status in SEVERITY) + " |")


if __name__ == "__main__":
    main()
