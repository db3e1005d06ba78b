"""Elementwise rows of the table of ops, looked up for one language, and what both generators ask of values and constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from compiler.ir import Apply, Constant, Kernel, Line, Load, Reduce, Store, Value

try:
    from compiler.ops import ELEMENTWISE
except ImportError:  # the table is on its way
    ELEMENTWISE = {}

Language = Literal["triton", "cpp"]
FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
HALVES = frozenset({"float16", "bfloat16"})


def dtype_class(dtype: str) -> str:
    return "float" if dtype in FLOATS else "bool" if dtype == "bool" else "int"


_STAND_IN = {
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "truediv": "({0} / {1})", "neg": "(-{0})",
    "lt": "({0} < {1})", "gt": "({0} > {1})", "ge": "({0} >= {1})", "eq": "({0} == {1})", "logical_and": "({0} & {1})",
}  # fmt: skip
_STAND_IN_TRITON = {"exp": "tl.exp({0})", "where": "tl.where({0}, {1}, {2})", "relu": "tl.maximum({0}, 0.0)", "tanh": "libdevice.tanh({0})"}
_STAND_IN_CPP = {"exp": "expf({0})", "where": "({0} ? {1} : {2})", "relu": "({0} > 0 ? {0} : 0.0f)", "tanh": "tanhf({0})"}


def template(line: Apply, argument: str, language: Language) -> str:
    """The format string of an op for arguments of dtype ``argument`` (that of the op's last argument)."""
    row = ELEMENTWISE.get(line.op)
    if row is None:
        return (_STAND_IN | (_STAND_IN_TRITON if language == "triton" else _STAND_IN_CPP))[line.op]
    found = row.triton if language == "triton" else row.cpp
    return found[dtype_class(argument)] if isinstance(found, Mapping) else found


def operands(line: Line) -> tuple[Value, ...]:
    """The earlier values that a line reads."""
    match line:
        case Load():
            return (*(value for value, _ in line.indirect), *(() if line.mask is None else (line.mask,)))
        case Apply():
            return line.args
        case Reduce():
            return (line.arg,)
        case Store():
            return (line.value,)
    return ()


def readers(kernel: Kernel) -> list[list[int]]:
    """For each line of the body, the later lines that read it."""
    result: list[list[int]] = [[] for _ in kernel.body]
    for position, line in enumerate(kernel.body):
        for value in operands(line):
            result[value].append(position)
    return result


def bare(text: str) -> str:
    """Without the parentheses around the whole expression."""
    if text.startswith("(") and text.endswith(")"):
        depth = 0
        for place, sign in enumerate(text):
            depth += (sign == "(") - (sign == ")")
            if depth == 0 and place < len(text) - 1:
                return text
        return text[1:-1]
    return text
