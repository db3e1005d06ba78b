"""One row per reduction of ``ir.Reduce``: where it starts, how partial results combine in each language, and what it must equal."""

from __future__ import annotations

import torch
from torch import Tensor

from compiler.ir import Number
from compiler.ops.row import ReductionRow, kind_of


def lowest(dtype: str) -> Number:
    return float("-inf") if kind_of(dtype) == "float" else False if dtype == "bool" else torch.iinfo(getattr(torch, dtype)).min


def highest(dtype: str) -> Number:
    return float("inf") if kind_of(dtype) == "float" else True if dtype == "bool" else torch.iinfo(getattr(torch, dtype)).max


def total(value: Tensor, axis: int) -> Tensor:
    """The sum in the value's own dtype."""
    return value.sum(axis, dtype=value.dtype)


def product(value: Tensor, axis: int) -> Tensor:
    return value.prod(axis, dtype=value.dtype)


BEFORE = "({0} {sign} {2}) | (({0} != {0}) & ({2} == {2})) | ((({0} == {2}) | (({0} != {0}) & ({2} != {2}))) & ({1} < {3}))"
SUM_CPP = {"float": "{0} + {1}", "int": "({t})((uint64_t){0} + (uint64_t){1})", "bool": "{0} | {1}"}
PROD_CPP = {"float": "{0} * {1}", "int": "({t})((uint64_t){0} * (uint64_t){1})", "bool": "{0} & {1}"}

ROWS: tuple[ReductionRow, ...] = (
    ReductionRow("sum", lambda dtype: 0, "{0} + {1}", "tl.sum({0}, {1})", SUM_CPP, total),
    ReductionRow("prod", lambda dtype: 1, "{0} * {1}", "tl.reduce({0}, {1}, fuselab_multiply)", PROD_CPP, product),
    ReductionRow("max", lowest, "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "tl.reduce({0}, {1}, fuselab_maximum)",
                 "(({0} > {1}) | ({0} != {0}) ? {0} : {1})", torch.amax),
    ReductionRow("min", highest, "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "tl.reduce({0}, {1}, fuselab_minimum)",
                 "(({0} < {1}) | ({0} != {0}) ? {0} : {1})", torch.amin),
    ReductionRow("any", lambda dtype: False, "{0} | {1}", "tl.reduce({0}.to(tl.int32), {1}, fuselab_or).to(tl.int1)", "{0} | {1}", torch.any),
    ReductionRow("all", lambda dtype: True, "{0} & {1}", "tl.reduce({0}.to(tl.int32), {1}, fuselab_and).to(tl.int1)", "{0} & {1}", torch.all),
    ReductionRow("argmax", lowest, "", "tl.reduce(({0}, {2}), {1}, fuselab_argmax)[1]", "", torch.argmax, better=BEFORE.replace("{sign}", ">")),
    ReductionRow("argmin", highest, "", "tl.reduce(({0}, {2}), {1}, fuselab_argmin)[1]", "", torch.argmin, better=BEFORE.replace("{sign}", "<")),
)  # fmt: skip
