"""Bytecode as text: a code object comes in, its disassembly with the snippet's line of each instruction goes out."""

from __future__ import annotations

import dis
import re
from types import CodeType

RESUME = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)")


def disassembly(code: CodeType) -> tuple[str, list[int]]:
    """The text that ``dis`` prints, and the source line of each of its lines, 0 where there is none."""
    text = dis.Bytecode(code).dis().rstrip("\n")
    instructions = iter(dis.get_instructions(code))
    lines: list[int] = []
    table = False
    for row in text.splitlines():
        table = table or row.startswith("ExceptionTable:")
        instruction = None if table or not row.strip() else next(instructions, None)
        place = instruction.positions.lineno if instruction is not None and instruction.positions is not None else None
        lines.append(place or 0)
    return text, lines


def resumed(name: str) -> tuple[str, int] | None:
    """The function that a resume function goes on with, and the line of the break that it goes on after; None for other functions."""
    match = RESUME.fullmatch(name)
    return (match["function"], int(match["line"])) if match else None
