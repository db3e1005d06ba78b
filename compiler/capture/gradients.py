"""Backward passes as plain functions, for eager and compiled code alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler.capture.aot import copied
from compiler.capture.eager import tensors_in


def with_gradient(value: Any) -> Any:  # noqa: ANN401  # any input of a graph
    made = copied(value)
    return made.requires_grad_() if isinstance(value, torch.Tensor) and value.requires_grad else made


def backward_of(function: Callable[..., Any], inputs: list[Any]) -> Callable[[], Sequence[Any]] | None:
    """The gradients of a function's results by its inputs, again and again for the same gradients of the results; None without any."""
    wanted = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
    # A leaf may not be written to in place: what the graph gets are views of nothing, but no leaves.
    results = function(*[value.clone() if isinstance(value, torch.Tensor) and value.requires_grad else value for value in inputs])
    differentiable = [value for value in tensors_in(list(results)) if value.requires_grad]
    if not wanted or not differentiable:
        return None
    given = [torch.ones_like(value) for value in differentiable]
    return lambda: torch.autograd.grad(differentiable, wanted, given, retain_graph=True, allow_unused=True)
