"""One row per reduction of ``ir.Reduce``: what it starts from, and what it must equal."""

from __future__ import annotations

import torch
from torch import Tensor

from compiler.ir import Number
from compiler.ops.row import ANY, NUMBER, ReductionRow, kind_of


def lowest(dtype: str) -> Number:
    return float("-inf") if kind_of(dtype) == "float" else torch.iinfo(getattr(torch, dtype)).min


def highest(dtype: str) -> Number:
    return float("inf") if kind_of(dtype) == "float" else torch.iinfo(getattr(torch, dtype)).max


def zero(dtype: str) -> Number:
    return 0


def one(dtype: str) -> Number:
    return 1


def total(value: Tensor, axis: int) -> Tensor:
    """The sum in the value's own dtype."""
    return value.sum(axis, dtype=value.dtype)


def product(value: Tensor, axis: int) -> Tensor:
    return value.prod(axis, dtype=value.dtype)


ROWS: tuple[ReductionRow, ...] = (
    ReductionRow("sum", zero, total, NUMBER),
    ReductionRow("prod", one, product, NUMBER),
    ReductionRow("max", lowest, torch.amax, NUMBER),
    ReductionRow("min", highest, torch.amin, NUMBER),
    ReductionRow("any", zero, torch.any, ANY, "bool"),
    ReductionRow("all", one, torch.all, ANY, "bool"),
    ReductionRow("argmax", lowest, torch.argmax, NUMBER, "int64"),
    ReductionRow("argmin", highest, torch.argmin, NUMBER, "int64"),
)
