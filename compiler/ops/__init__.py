"""The table of ops: one ``Row`` per elementwise op, from which lowering, both generators, the interpreter and the tests read.

``OPS`` has the row of each name, ``ATEN`` the rows that may fit an ATen overload, ``REDUCTIONS`` and ``SCANS`` the row of each reduction
and running reduction. ``cast`` is no row: it converts its argument to the line's dtype as ``Tensor.to`` does.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.ops import activation, arithmetic, comparison, functions, reductions, scans, special
from compiler.ops.prelude import cpp_prelude, triton_prelude
from compiler.ops.row import CPP_TYPES, TRITON_TYPES, Kind, ReductionRow, Row, kind_of
from compiler.ops.scans import ScanRow

_TABLE: tuple[Row, ...] = (*arithmetic.ROWS, *comparison.ROWS, *functions.ROWS, *activation.ROWS, *special.ROWS)
OPS: dict[str, Row] = {}
for _row in _TABLE:
    OPS.setdefault(_row.name, _row)  # a later row of the same name is the same op under other parameter names
_SPELLED: tuple[Row, ...] = tuple(
    replace(OPS[row.name], operands=row.operands, aten=row.aten, when=row.when, promote=row.promote) for row in _TABLE
)
ATEN: dict[str, tuple[Row, ...]] = {
    overload: tuple(row for row in _SPELLED if overload in row.aten) for overload in sorted({name for row in _SPELLED for name in row.aten})
}
REDUCTIONS: dict[str, ReductionRow] = {row.op: row for row in reductions.ROWS}
SCANS: dict[str, ScanRow] = {row.op: row for row in scans.ROWS}

__all__ = [
    "ATEN",
    "CPP_TYPES",
    "OPS",
    "REDUCTIONS",
    "SCANS",
    "TRITON_TYPES",
    "Kind",
    "ReductionRow",
    "Row",
    "ScanRow",
    "cpp_prelude",
    "kind_of",
    "triton_prelude",
]
