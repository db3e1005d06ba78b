"""Sequences between two ends, number by number as eager counts them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def linspace(
    start: float | Tensor,
    end: float | Tensor,
    steps: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **_: object,
) -> Any:  # noqa: ANN401
    """From both ends to the middle. Integers go from and to numbers without their fractions, in float64, on a GPU in float32."""
    dtype, place = dtype or torch.get_default_dtype(), torch.device(device or "cpu")
    if dtype.is_complex or isinstance(start, complex) or isinstance(end, complex):
        return NotImplemented
    return _between(start, end, steps, dtype, place).to(dtype)


def logspace(
    start: float | Tensor,
    end: float | Tensor,
    steps: int,
    base: float = 10,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **_: object,
) -> Any:  # noqa: ANN401
    """Powers whose exponents are such a sequence. A single power keeps its exponent's fraction."""
    dtype, place = dtype or torch.get_default_dtype(), torch.device(device or "cpu")
    if dtype.is_complex or isinstance(start, complex) or isinstance(end, complex) or isinstance(base, complex):
        return NotImplemented
    if steps == 1:
        return torch.pow(base, torch.zeros(1, dtype=torch.float64, device=place) + start).to(dtype)
    exact = torch.float64 if place.type == "cpu" or dtype.is_floating_point else torch.float32
    return torch.pow(base, _between(start, end, steps, dtype, place).to(exact)).to(dtype)


def _between(start: float | Tensor, end: float | Tensor, steps: int, dtype: torch.dtype, place: torch.device) -> Tensor:
    """``steps`` numbers from both ends to the middle, in the precision that eager counts in; the ends are first made ``dtype``'s."""
    if dtype.is_floating_point:
        computing = torch.float32 if dtype.itemsize == 2 else dtype
    else:
        computing = torch.float64 if place.type == "cpu" else torch.float32
    first, last = (_end(value, dtype, computing) for value in (start, end))
    step = (last - first) / max(steps - 1, 1)
    places = torch.arange(steps, device=place)
    rising, falling = first + step * places.to(computing), last - step * (steps - 1 - places).to(computing)
    return torch.where((places < steps // 2) | (steps == 1), rising, falling)


def _end(value: float | Tensor, dtype: torch.dtype, computing: torch.dtype) -> float | Tensor:
    if isinstance(value, Tensor):
        return value.to(dtype).to(computing)
    return value if dtype.is_floating_point else int(value)
