"""How each reduction accumulates in Triton: the value that changes nothing, one step, and the end over a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HELPERS = {
    "_product": "@triton.jit\ndef _product(a, b):\n    return a * b",
    "_largest": "@triton.jit\ndef _largest(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "_smallest": "@triton.jit\ndef _smallest(a, b):\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
}
for _name, _sign in (("_first_largest", ">"), ("_first_smallest", "<")):
    HELPERS[_name] = f"""@triton.jit
def {_name}(a, i, b, j):
    # NaN beats everything; among equals the first one wins
    a_wins = (a {_sign} b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    take = a_wins | (equal & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)"""

INTEGERS = {"int64": (-(2**63), 2**63 - 1), "int32": (-(2**31), 2**31 - 1), "int16": (-(2**15), 2**15 - 1), "int8": (-128, 127), "uint8": (0, 255)}


def _lowest(dtype: str) -> str:
    return str(INTEGERS[dtype][0]) if dtype in INTEGERS else 'float("-inf")'


def _highest(dtype: str) -> str:
    return str(INTEGERS[dtype][1]) if dtype in INTEGERS else 'float("inf")'


@dataclass(frozen=True, slots=True)
class Accumulator:
    """``identity(dtype)`` is a literal; ``step(acc, value)`` and ``row(value, axis)`` are expressions; ``helper`` is what ``row`` combines with."""

    identity: Callable[[str], str]
    step: Callable[[str, str], str]
    row: Callable[[str, str], str]
    helper: str = ""
    indexed: bool = False
    sign: str = ""


def _by(helper: str) -> Callable[[str, str], str]:
    return lambda value, axis: f"tl.reduce({value}, {axis.replace(', ', f', {helper}, ') if ',' in axis else f'{axis}, {helper}'})"


def _number(text: str) -> Callable[[str], str]:
    return lambda dtype: text if dtype in INTEGERS else f"{text}.0"


ACCUMULATORS: dict[str, Accumulator] = {
    "sum": Accumulator(_number("0"), lambda acc, value: f"{acc} + {value}", lambda value, axis: f"tl.sum({value}, {axis})"),
    "prod": Accumulator(_number("1"), lambda acc, value: f"{acc} * {value}", _by("_product"), "_product"),
    "max": Accumulator(_lowest, lambda acc, value: f"_largest({acc}, {value})", _by("_largest"), "_largest"),
    "min": Accumulator(_highest, lambda acc, value: f"_smallest({acc}, {value})", _by("_smallest"), "_smallest"),
    "any": Accumulator(_number("0"), lambda acc, value: f"{acc} | {value}", lambda value, axis: f"tl.max({value}, {axis})"),
    "all": Accumulator(_number("1"), lambda acc, value: f"{acc} & {value}", lambda value, axis: f"tl.min({value}, {axis})"),
    "argmax": Accumulator(_lowest, lambda acc, value: acc, lambda value, axis: value, "_first_largest", True, ">"),
    "argmin": Accumulator(_highest, lambda acc, value: acc, lambda value, axis: value, "_first_smallest", True, "<"),
}
