"""How each reduction is written in Triton: one step of an accumulator, the end over the lanes of a tile, and the functions called."""

from __future__ import annotations

import re

STEP = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "max": "largest({0}, {1})", "min": "smallest({0}, {1})",
    "any": "{0} | {1}", "all": "{0} & {1}",
}  # fmt: skip
# {0} is the tile, {1} the axis, {2} the tile of positions.
END = {
    "sum": "tl.sum({0}, {1})", "prod": "tl.reduce({0}, {1}, product)", "max": "tl.reduce({0}, {1}, largest)",
    "min": "tl.reduce({0}, {1}, smallest)", "any": "tl.max({0}.to(tl.int32), {1})", "all": "tl.min({0}.to(tl.int32), {1})",
    "argmax": "tl.reduce(({0}, {2}), {1}, first_largest)[1]", "argmin": "tl.reduce(({0}, {2}), {1}, first_smallest)[1]",
}  # fmt: skip

_FIRST = """@triton.jit
def {name}(a, i, b, j):
    # NaN comes before everything, and among equals the lower position.
    before = (a {sign} b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    take = before | (equal & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)
"""
_LAST = """@triton.jit
def {name}(a, i, b, j):
    # NaN stays, and among equals the higher position; b comes after a.
    take = (b != b) | ((a == a) & (b {sign} a))
    return tl.where(take, b, a), tl.where(take, j, i)
"""
_LOG_ADD = """@triton.jit
def log_add(a, b):
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    high = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    finite = tl.abs(low) < float("inf")
    return tl.where((low != high) | finite, high + tl.log(1.0 + tl.exp(low - high)), a)
"""
_HELPERS = {
    "last_largest": _LAST.format(name="last_largest", sign=">="),
    "last_smallest": _LAST.format(name="last_smallest", sign="<="),
    "log_add": _LOG_ADD,
    "product": "@triton.jit\ndef product(a, b):\n    return a * b\n",
    "largest": "@triton.jit\ndef largest(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)\n",
    "smallest": "@triton.jit\ndef smallest(a, b):\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)\n",
    "first_largest": _FIRST.format(name="first_largest", sign=">"),
    "first_smallest": _FIRST.format(name="first_smallest", sign="<"),
}


def reduction_helpers(code: str) -> list[str]:
    """The functions of this module that the Triton text calls."""
    return [text for name, text in _HELPERS.items() if re.search(rf"\b{name}\b", code)]


HELPER_NAMES = tuple(_HELPERS)
