"""Backward passes as plain functions, for eager and compiled code alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler.capture.aot import copied
from compiler.capture.eager import tensors_in
from compiler.runtime.measure import Prepared


def with_gradient(value: Any) -> Any:  # noqa: ANN401  # any input of a graph
    made = copied(value)
    return made.requires_grad_() if isinstance(value, torch.Tensor) and value.requires_grad else made


def backward_of(function: Callable[..., Any], inputs: list[Any]) -> Prepared | None:
    """The gradients of a function's results by its inputs, always for the same gradients of the results; None without any.

    Each preparation is a forward pass: a backward pass may write to what was saved for it, so it runs once.
    """
    wanted = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]

    def forward() -> list[torch.Tensor]:
        # A leaf may not be written to in place: what the graph gets are copies, which are no leaves.
        copies = [value.clone() if isinstance(value, torch.Tensor) and value.requires_grad else value for value in inputs]
        return [value for value in tensors_in(list(function(*copies))) if value.requires_grad]

    def prepare() -> Callable[[], Sequence[Any]]:
        results = forward()
        given = [torch.ones_like(value) for value in results]
        return lambda: torch.autograd.grad(results, wanted, given, allow_unused=True)

    return Prepared(prepare) if wanted and forward() else None
