"""Elementwise rows of the table of ops, looked up for one language, and what both generators ask of values and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from compiler.ir import Apply, Kernel, operands
from compiler.ops import OPS, kind_of
from compiler.ops.row import Template

Language = Literal["triton", "cpp"]
HALVES = frozenset({"float16", "bfloat16"})


def dtype_class(dtype: str) -> str:
    return kind_of(dtype)


def _computed_as(dtype: str, language: Language, template: Template) -> str:
    """C++ holds the values of 16-bit floats as rounded floats; few templates have a text of their own for these."""
    own = not isinstance(template, str) and dtype in template
    return "float32" if language == "cpp" and dtype in HALVES and not own else dtype


def template_text(line: Apply, operand: str, language: Language) -> str:
    """The format string of an op whose last operand has dtype ``operand``."""
    row = OPS[line.op]
    found = row.triton if language == "triton" else row.cpp
    dtype = _computed_as(operand, language, found)
    return found if isinstance(found, str) else found[dtype] if dtype in found else found[kind_of(dtype)]


def expression(line: Apply, operand: str, arguments: Sequence[str], language: Language) -> str:
    """The op on these operands, which are names or literals."""
    row = OPS[line.op]
    return row.print(language, arguments, _computed_as(operand, language, row.triton if language == "triton" else row.cpp))


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
