"""Backward passes as plain functions, for eager and compiled code alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler.capture.eager import no_leaves, tensors_in
from compiler.capture.running import copied
from compiler.runtime.measure import Prepared


def with_gradient(value: Any) -> Any:  # noqa: ANN401  # any input of a graph
    made = copied(value)
    return made.requires_grad_() if isinstance(value, torch.Tensor) and value.requires_grad else made


def backward_of(function: Callable[..., Any], fresh: Callable[[], list[Any]]) -> Prepared | None:
    """The gradients of a function's results by its inputs, always for the same gradients of the results; None without any.

    Each preparation is a forward pass on ``fresh`` inputs: a forward pass may write to them, and a backward pass to what was saved for it.
    """

    def forward() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        inputs = fresh()
        results = tensors_in(list(function(*no_leaves(inputs))))
        wanted = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
        return [value for value in results if value.requires_grad], wanted

    def prepare() -> Callable[[], Sequence[Any]]:
        results, wanted = forward()
        given = [torch.ones_like(value) for value in results]
        return lambda: torch.autograd.grad(results, wanted, given, allow_unused=True)

    return Prepared(prepare) if all(forward()) else None
