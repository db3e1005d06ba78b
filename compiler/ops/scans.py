"""One row per running reduction of ``ir.Scan``: how it goes on from one element to the next in each language, and what it must equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from compiler.ir import Number
from compiler.ops.reductions import highest, lowest, one, zero
from compiler.ops.row import FLOAT, NUMBER, Kind


@dataclass(frozen=True, slots=True, eq=False)
class ScanRow:
    """A running reduction: what it starts from, its value along one axis, the kinds of values that it takes, and its result's dtype.

    ``triton`` combines {0}, what came before, with {1}; ``whole`` is the scan of the tile {0} along axis {1}. ``cpp`` is the new
    accumulator from the old one {0} and the value {1}. A row with an index gives the position that its value came from; {2} and {3} are
    then the two positions, in ``whole`` {2} the tile of positions, and ``cpp`` is the condition under which the new value is taken.
    """

    op: str
    identity: Callable[[str], Number]
    reference: Callable[[Tensor, int], Tensor]
    kinds: tuple[Kind, ...]
    triton: str
    whole: str
    cpp: str
    result: str = ""

    @property
    def indexed(self) -> bool:
        return self.result == "int64"


def running_total(value: Tensor, axis: int) -> Tensor:
    return value.cumsum(axis, dtype=value.dtype)


def running_product(value: Tensor, axis: int) -> Tensor:
    return value.cumprod(axis, dtype=value.dtype)


ROWS: tuple[ScanRow, ...] = (
    ScanRow("sum", zero, running_total, NUMBER, "{0} + {1}", "tl.cumsum({0}, {1})", "{0} + {1}"),
    ScanRow("prod", one, running_product, NUMBER, "{0} * {1}", "tl.cumprod({0}, {1})", "{0} * {1}"),
    ScanRow("logaddexp", lowest, torch.logcumsumexp, FLOAT, "log_add({0}, {1})", "tl.associative_scan({0}, {1}, log_add)",
            "fuselab::log_add({0}, {1})"),
    ScanRow("max", lowest, lambda value, axis: value.cummax(axis).values, NUMBER, "largest({0}, {1})",
            "tl.associative_scan({0}, {1}, largest)", "{1} != {1} || {1} >= {0} ? {1} : {0}"),
    ScanRow("min", highest, lambda value, axis: value.cummin(axis).values, NUMBER, "smallest({0}, {1})",
            "tl.associative_scan({0}, {1}, smallest)", "{1} != {1} || {1} <= {0} ? {1} : {0}"),
    ScanRow("lastmax", lowest, lambda value, axis: value.cummax(axis).indices, NUMBER, "last_largest({0}, {2}, {1}, {3})",
            "tl.associative_scan(({0}, {2}), {1}, last_largest)", "{1} != {1} || ({0} == {0} && {1} >= {0})", "int64"),
    ScanRow("lastmin", highest, lambda value, axis: value.cummin(axis).indices, NUMBER, "last_smallest({0}, {2}, {1}, {3})",
            "tl.associative_scan(({0}, {2}), {1}, last_smallest)", "{1} != {1} || ({0} == {0} && {1} <= {0})", "int64"),
)  # fmt: skip
"""Among equal values the last position counts, and NaN stays, as in eager."""
