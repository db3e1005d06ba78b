"""One op of PyTorch's OpInfo database and one dtype: its samples through this compiler, forward and backward, each against eager."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from compiler import backend
from compiler.errors import CompileError
from compiler.stats import TALLY

SEVERITY = ("skipped", "no_graph", "pass", "pass_float64", "refused", "fail", "error", "crash", "timeout")
"""From harmless to worst. ``skipped``: eager raises, too. ``no_graph``: Dynamo never called the compiler. ``pass_float64``: not within
the tolerance of eager, yet as near to the float64 result as eager is. ``refused``: a CompileError. ``error``: any other exception."""
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
"""Ops whose values are whatever memory held: only dtype, shape and device are compared."""
NO_REFERENCE = {"as_strided.partial_views"}  # its result depends on memory outside of the sample
TOLERANCES = {
    torch.float32: (1e-4, 1e-5), torch.float16: (4e-3, 2e-3), torch.bfloat16: (2e-2, 5e-3), torch.complex64: (1e-4, 1e-5),
}  # fmt: skip
SLACK = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
"""What an error may be beyond three times eager's, as a part of the result's size."""


@dataclass
class Verdict:
    """``status``: the worst of ``samples``. ``native``: loop nests; ``libraries`` and ``fallbacks``: extern calls by library and by op."""

    op: str
    dtype: str
    status: str = "skipped"
    samples: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    native: int = 0
    libraries: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    strides: int = 0


def op_key(op: Any) -> str:  # noqa: ANN401  # OpInfo is private to PyTorch's tests
    return str(op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""))


def copies(value: Any, change: Callable[[torch.Tensor], torch.Tensor] = lambda leaf: leaf) -> Any:  # noqa: ANN401  # any tree of arguments
    """Fresh tensors of the same strides, each a leaf that requires gradients if the given one does."""

    def copied(leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        return change(torch._dynamo.utils.clone_input(leaf).detach()).requires_grad_(leaf.requires_grad)

    return tree_map(copied, value)


def widened(leaf: torch.Tensor) -> torch.Tensor:
    return leaf.double() if leaf.is_floating_point() else leaf


def seeded() -> None:
    torch.manual_seed(0)
    random.seed(0)


@dataclass
class Outcome:
    """The leaves of results, gradients, and arguments after the call."""

    leaves: list[Any]


def outcome(function: Callable[..., Any], given: Any) -> Outcome:  # noqa: ANN401  # (arguments, keywords)
    """Calls, and goes back from the sum of all differentiable results to the arguments."""
    arguments, keywords = given
    seeded()
    results = function(*arguments, **keywords)
    starts = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    inputs = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf]
    gradients: Any = ()
    if starts and inputs:
        sums = [(start.real if start.is_complex() else start).sum() for start in starts]
        gradients = torch.autograd.grad(sums, inputs, allow_unused=True)
    return Outcome(tree_leaves((results, gradients, given)))


def near(ours: torch.Tensor, theirs: torch.Tensor, exact: object) -> bool:
    """Whether a result is as near to the float64 one as eager's is: its error at most three times eager's, in the root mean square."""
    if not isinstance(exact, torch.Tensor) or not theirs.is_floating_point() or exact.shape != theirs.shape:
        return False
    a, b, c = (value.detach().double() for value in (ours, theirs, exact))
    if not torch.equal(a.isfinite(), b.isfinite()):
        return False
    known = b.isfinite() & c.isfinite()
    if not known.any():
        return False

    def size(value: torch.Tensor) -> float:
        return float(value[known].square().mean().sqrt())

    return size(a - c) <= 3 * size(b - c) + SLACK.get(theirs.dtype, 1e-9) * max(size(c), 1e-3)


def difference(ours: object, theirs: object, exact: Callable[[], object], determined: bool) -> tuple[str, str]:
    """The status of one leaf, and what is wrong with it."""
    if not isinstance(theirs, torch.Tensor):
        same = ours == theirs or (ours != ours and theirs != theirs) or (isinstance(theirs, float) and abs(ours - theirs) < 1e-4)  # type: ignore[operator]
        return (
            ("pass", "")
            if same or not determined or not isinstance(theirs, bool | int | float)
            else ("fail", f"{ours} instead of {theirs}")
        )
    if not isinstance(ours, torch.Tensor):
        return "fail", f"{type(ours).__name__} instead of a tensor"
    if theirs.layout is not torch.strided or theirs.is_quantized:
        return "pass", ""
    if (ours.dtype, ours.shape, ours.device) != (theirs.dtype, theirs.shape, theirs.device):
        return "fail", f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    if not determined:
        return "pass", ""
    rtol, atol = TOLERANCES.get(theirs.dtype, (1e-6, 1e-6) if theirs.is_floating_point() or theirs.is_complex() else (0.0, 0.0))
    try:
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return ("pass_float64", "") if near(ours, theirs, exact()) else ("fail", str(error))
    return "pass", ""


def try_sample(function: Callable[..., Any], sample: Any, verdict: Verdict) -> tuple[str, str]:  # noqa: ANN401  # a SampleInput
    """The status of one sample and the reason."""
    graphs = 0

    def counted(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return backend(gm, inputs)

    def plain(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return function(*args, **kwargs)

    given = ((sample.input, *sample.args), sample.kwargs)
    try:
        wanted = outcome(plain, copies(given))
    except Exception:  # a sample of what eager refuses tells nothing about this compiler
        return "skipped", ""
    torch._dynamo.reset()
    try:
        got = outcome(torch.compile(plain, backend=counted, dynamic=False), copies(given))
    except Exception as error:  # whatever goes wrong is what this run looks for
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, CompileError):
            cause = cause.__cause__ or getattr(cause, "inner_exception", None)
        return ("refused" if cause is not None else "error"), traceback.format_exc(limit=-2)
    if not graphs:
        return "no_graph", ""
    if len(got.leaves) != len(wanted.leaves):
        return "fail", f"{len(got.leaves)} results instead of {len(wanted.leaves)}"
    verdict.strides += sum(
        isinstance(theirs, torch.Tensor) and theirs.layout is torch.strided and theirs.numel() > 1 and ours.stride() != theirs.stride()
        for ours, theirs in zip(got.leaves, wanted.leaves, strict=True)
        if isinstance(ours, torch.Tensor) and ours.layout is torch.strided
    )
    return compared(plain, given, got, wanted, verdict.op not in UNINITIALISED)


def compared(function: Callable[..., Any], given: Any, got: Outcome, wanted: Outcome, determined: bool) -> tuple[str, str]:  # noqa: ANN401
    """The worst of all leaves. Where a second call of eager with the same seed, or one in float64, is needed, it is made once."""
    memory: dict[str, list[Any]] = {}

    def leaf(kind: str, change: Callable[[torch.Tensor], torch.Tensor], place: int) -> object:
        if kind not in memory:
            try:
                memory[kind] = outcome(function, copies(given, change)).leaves
            except Exception:  # float64 may not be supported
                memory[kind] = []
        return memory[kind][place] if len(memory[kind]) == len(wanted.leaves) else None

    found = []
    for place, (ours, theirs) in enumerate(zip(got.leaves, wanted.leaves, strict=True)):
        status, reason = difference(ours, theirs, lambda place=place: leaf("float64", widened, place), determined)  # type: ignore[misc]
        if status == "fail" and isinstance(theirs, torch.Tensor):
            torch.manual_seed(1)
            again = other_seed(function, given, place)
            if isinstance(again, torch.Tensor) and difference(again, theirs, lambda: None, True)[0] == "fail":
                status, reason = difference(ours, theirs, lambda: None, False)  # random: only what it is, not its values
        found.append((status, reason))
    return max(found, key=lambda one: SEVERITY.index(one[0]), default=("pass", ""))


def other_seed(function: Callable[..., Any], given: Any, place: int) -> object:  # noqa: ANN401
    """The same leaf of an eager call whose random numbers are others."""

    def unseeded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        torch.manual_seed(1234)
        return function(*args, **kwargs)

    try:
        return outcome(unseeded, copies(given)).leaves[place]
    except (IndexError, RuntimeError):
        return None


def try_op(op: Any, dtype: torch.dtype, most: int, gradients: bool, device: str = "cpu") -> Verdict:  # noqa: ANN401  # an OpInfo
    """At most so many samples, spread over the list of them."""
    verdict = Verdict(op_key(op), str(dtype).removeprefix("torch."))
    if dtype not in op.supported_dtypes(device):
        return verdict
    torch.set_num_threads(1)
    seeded()
    differentiable = gradients and op.supports_autograd and dtype in op.supported_backward_dtypes(device)
    samples = list(op.sample_inputs(device, dtype, requires_grad=differentiable))
    count = min(most, len(samples))
    chosen = [samples[round(at * (len(samples) - 1) / max(count - 1, 1))] for at in range(count)]
    TALLY.clear()
    counts: Counter[str] = Counter()
    for sample in chosen:
        status, reason = try_sample(op.get_op(), sample, verdict)
        counts[status] += 1
        if reason and len(verdict.reasons) < 4:
            verdict.reasons.append(reason[-1500:])
    said = TALLY.report()
    verdict.samples, verdict.native = dict(counts), said["native"]
    verdict.libraries, verdict.fallbacks, verdict.why = said["libraries"], said["fallbacks"], said["reasons"]
    verdict.status = max(counts, key=SEVERITY.index, default="skipped")
    return verdict
