"""Whether results are right: results of compiled code, of eager and of a float64 reference come in, differences with verdicts go out."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from compiler.errors import CompileError
from compiler.runtime.build import run_tool

TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float16: (2e-3, 2e-3), torch.bfloat16: (1.6e-2, 1.6e-2), torch.float32: (1e-5, 1e-5), torch.float64: (1e-9, 1e-9),
    torch.complex64: (1e-5, 1e-5), torch.complex128: (1e-9, 1e-9),
}  # fmt: skip
"""Relative and absolute tolerance by dtype; the absolute one is scaled by the largest magnitude of the result."""
CLOSE_TO_EAGER = 4.0
"""A result may be this many times as far from the float64 reference as eager's is."""
INTERPRETER_ELEMENTS = 2_000_000
INTERPRETER_SECONDS = 30.0


class TooSlow(Exception):
    """Triton's interpreter did not finish in time."""


class UnknownOp(Exception):
    """The wrapper calls an op, by its name, that only the program's own process has."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How one result differs. Errors are None where they do not apply; ``equal`` is the verdict and ``why`` its sentence."""

    name: str
    equal: bool
    why: str
    max_abs: float | None = None
    max_rel: float | None = None
    eager_from_reference: float | None = None
    ours_from_reference: float | None = None
    tolerance: float | None = None


def compare(name: str, ours: Any, eager: Any, reference: Any = None) -> Difference:  # noqa: ANN401  # any results
    """Our result against eager's, and both against the float64 reference where there is one."""
    if not isinstance(ours, torch.Tensor) or not isinstance(eager, torch.Tensor):
        return Difference(
            name, ours == eager or ours is eager, "Both are the same value." if ours == eager else f"{ours!r} is not {eager!r}."
        )
    if ours.shape != eager.shape or ours.dtype != eager.dtype or ours.layout != eager.layout:
        return Difference(name, False, f"{described(ours)} is not {described(eager)}.")
    ours, eager, reference = dense(ours.detach()), dense(eager.detach().to(ours.device)), dense(reference)
    if eager.numel() == 0:
        return Difference(name, True, "Neither has elements.")
    if eager.dtype not in TOLERANCES:
        wrong = int((ours != eager).sum())
        return Difference(
            name, not wrong, f"{wrong} of {eager.numel()} elements differ." if wrong else "All elements are equal.", float(wrong)
        )
    exact = reference.detach().to(ours.device) if isinstance(reference, torch.Tensor) and reference.shape == eager.shape else None
    relative, absolute = TOLERANCES[eager.dtype]
    absolute *= max(1.0, max(_largest(piece) for (piece,) in pieces(eager)))
    close = all(_close(a, b, relative, absolute) for a, b in pieces(ours, eager))
    max_abs, max_rel = _worst(_gap, ours, eager), _worst(_relative_gap, ours, eager)
    theirs = own = None
    if exact is not None:
        theirs, own = _worst(_gap, eager, exact), _worst(_gap, ours, exact)
    if close:
        return Difference(name, True, "Equal to eager within the dtype's tolerance.", max_abs, max_rel, theirs, own, absolute)
    if theirs is not None and own is not None and own <= CLOSE_TO_EAGER * theirs + TOLERANCES[eager.dtype][1]:
        why = "Differs from eager by rounding only: it is about as near to the float64 reference as eager is."
        return Difference(name, True, why, max_abs, max_rel, theirs, own, absolute)
    return Difference(name, False, "Differs from eager by more than the dtype's tolerance.", max_abs, max_rel, theirs, own, absolute)


def described(tensor: torch.Tensor) -> str:
    layout = "" if tensor.layout == torch.strided else f" {str(tensor.layout).removeprefix('torch.')}"
    return f"{tensor.dtype} {tuple(tensor.shape)}{layout}"


def dense(value: Any) -> Any:  # noqa: ANN401  # any result
    """A sparse tensor with its zeros; other values as they are."""
    return value.to_dense() if isinstance(value, torch.Tensor) and value.layout != torch.strided else value


PIECE = 1 << 22  # elements compared at once, in double precision: the rest of the memory is the visitor's


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The tensors' elements in equal order and in double precision, a part at a time, where the first one lives."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    wide = torch.complex128 if flat[0].is_complex() else torch.float64
    for start in range(0, flat[0].numel(), PIECE):
        yield tuple(tensor[start : start + PIECE].to(wide) for tensor in flat)


def _gap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The absolute difference; equal infinities and two NaNs do not differ."""
    same = (a == b) | (a.isnan() & b.isnan())
    return (a - b).abs().masked_fill(same, 0.0)


def _relative_gap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    gap = _gap(a, b)
    return (gap / b.abs().clamp_min(1e-12)).masked_fill(gap == 0, 0.0)


def _close(a: torch.Tensor, b: torch.Tensor, relative: float, absolute: float) -> bool:
    gap = _gap(a, b)
    # Next to an infinity every tolerance is infinite: only the same infinity will do.
    return bool(((gap <= absolute + relative * b.abs()) & gap.isfinite() | (gap == 0)).all())


def _worst(measure: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> float | None:
    """The greatest value over all elements, None when it is none that can be written as JSON."""
    worst = [float(measure(*pair).max()) for pair in pieces(a, b)]
    return max(worst) if all(map(math.isfinite, worst)) else None


def _largest(values: torch.Tensor) -> float:
    finite = values.abs()
    finite = finite[finite.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def in_float64(value: Any) -> Any:  # noqa: ANN401  # any input of a graph
    """Floating tensors in double precision; other values as they are."""
    if isinstance(value, torch.Tensor) and value.dtype in TOLERANCES:
        return value.detach().to(torch.complex128 if value.is_complex() else torch.float64).requires_grad_(value.requires_grad)
    return value


def too_large_to_interpret(elements: Sequence[int]) -> bool:
    """Whether tensors of so many elements are too much for Triton's interpreter."""
    return sum(elements) > INTERPRETER_ELEMENTS


def interpreted(wrapper: str, inputs: Sequence[Any], constants: Mapping[str, Any]) -> list[Any]:
    """The results of a Triton wrapper on CPU tensors, by Triton's interpreter in a process of its own.

    Raises CompileError when it fails, TooSlow when it takes too long, UnknownOp where only the program defines an op.
    """
    with tempfile.TemporaryDirectory(prefix="fuselab-") as folder:
        text, given, made = (str(Path(folder) / name) for name in ("wrapper.py", "inputs.pt", "outputs.pt"))
        Path(text).write_text(wrapper)
        torch.save({"inputs": list(inputs), "constants": dict(constants)}, given)
        command = [sys.executable, "-m", "compiler.runtime.interpret", text, given, made]
        try:
            run_tool(command, "numerics", timeout=INTERPRETER_SECONDS, cwd=str(Path(__file__).resolve().parents[2]))
        except CompileError as error:
            if "took more than" in error.message:
                raise TooSlow from None
            if not Path(made).exists():
                raise
        results: list[Any] | dict[str, str] | str = torch.load(made, weights_only=True)
    if isinstance(results, dict):
        raise UnknownOp(results["unknown"])
    if isinstance(results, str):
        raise CompileError("numerics", f"Triton's interpreter cannot run the kernels: {results}"[:3_000])
    return results
