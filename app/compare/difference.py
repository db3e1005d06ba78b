"""Two texts come in, their unified difference goes out, with the changed part of each changed line marked.

The texts are hostile: size and time are bounded, and what was left out is said.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

MAX_LINES, MAX_CHARACTERS, MAX_WIDTH = 4_000, 400_000, 2_000
SECONDS, CONTEXT = 1.0, 3
CUT = f"Only the first {MAX_LINES:,} lines, or {MAX_CHARACTERS:,} characters, of each text are compared."
SLOW = "The texts are too unlike to be compared line by line in a second: all between their common beginning and end is shown as replaced."

PADDING = re.compile(r"(?<=\S) {3,}(?=#)")
"""What puts the comments of a wide listing below each other; how wide it is says nothing."""

Opcode = tuple[str, int, int, int, int]
Piece = tuple[bool, str]
"""A part of a line, and whether it differs from the line that it is paired with."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """``left`` and ``right``: the line's number in each text, 0 where it is not in it."""

    kind: Literal["same", "gone", "come"]
    left: int
    right: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """``hunks``: runs of changed lines with some around them. ``remarks``: what was not compared."""

    hunks: tuple[tuple[DiffLine, ...], ...]
    gone: int
    come: int
    remarks: tuple[str, ...]


class _OutOfTime(Exception):
    pass


class _Matcher(SequenceMatcher[str]):
    """Gives up at the deadline; between two looks at the clock it does a bounded amount of work."""

    def __init__(self, left: Sequence[str], right: Sequence[str], deadline: float) -> None:
        self.deadline = deadline
        super().__init__(None, left, right)

    def find_longest_match(self, *places: Any, **named: Any) -> Any:  # noqa: ANN401  # the signature of difflib
        if time.monotonic() > self.deadline:
            raise _OutOfTime
        return super().find_longest_match(*places, **named)


def difference(left: str, right: str, seconds: float = SECONDS) -> Difference:
    """The lines that differ between two texts."""
    first, second = _lines(left), _lines(right)
    remarks = [CUT] if max(len(left), len(right)) > MAX_CHARACTERS or max(left.count("\n"), right.count("\n")) >= MAX_LINES else []
    start, end = _common(first, second)
    inner = first[start : len(first) - end], second[start : len(second) - end]
    try:
        codes = _Matcher(*inner, time.monotonic() + seconds).get_opcodes()
    except _OutOfTime:
        remarks.append(SLOW)
        codes = [("replace", 0, len(inner[0]), 0, len(inner[1]))]
    moved = [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in codes]
    around = [("equal", 0, start, 0, start), *moved, ("equal", len(first) - end, len(first), len(second) - end, len(second))]
    hunks = tuple(tuple(_hunk(group, first, second)) for group in _grouped(around))
    kinds = [line.kind for hunk in hunks for line in hunk]
    return Difference(hunks, kinds.count("gone"), kinds.count("come"), tuple(remarks))


def _lines(text: str) -> list[str]:
    lines = text[:MAX_CHARACTERS].removesuffix("\n").split("\n", MAX_LINES)[:MAX_LINES] if text else []
    return [PADDING.sub("  ", line) for line in lines]


def _common(first: Sequence[str], second: Sequence[str]) -> tuple[int, int]:
    """How many lines the two begin with, and end with, alike."""
    shorter = min(len(first), len(second))
    start = next((index for index in range(shorter) if first[index] != second[index]), shorter)
    rest = shorter - start
    return start, next((index for index in range(rest) if first[-1 - index] != second[-1 - index]), rest)


def _grouped(codes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """The changes with a few equal lines around each; what lies further from any change is left out."""
    group: list[Opcode] = []
    changed = False
    for position, (tag, a, b, c, d) in enumerate(codes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            changed = True
            continue
        last = position == len(codes) - 1 or all(code[0] == "equal" for code in codes[position:])
        if changed and (b - a > 2 * CONTEXT or last):
            kept = min(CONTEXT, b - a)
            yield [*group, ("equal", a, a + kept, c, c + kept)]
            group, changed = [], False
        kept = b - a if changed else min(CONTEXT, b - a)
        group = group if changed else []
        group.append(("equal", b - kept, b, d - kept, d))
    if changed:
        yield group


def _hunk(codes: Sequence[Opcode], first: Sequence[str], second: Sequence[str]) -> Iterator[DiffLine]:
    for tag, a, b, c, d in codes:
        if tag == "equal":
            for offset in range(b - a):
                yield DiffLine("same", a + offset + 1, c + offset + 1, ((False, first[a + offset][:MAX_WIDTH]),))
            continue
        paired = b - a == d - c
        for index in range(a, b):
            yield DiffLine("gone", index + 1, 0, _pieces(first[index], second[c + index - a] if paired else None))
        for index in range(c, d):
            yield DiffLine("come", 0, index + 1, _pieces(second[index], first[a + index - c] if paired else None))


def _pieces(line: str, other: str | None) -> tuple[Piece, ...]:
    """The line with what differs from the other line marked; nothing where the two have little in common."""
    line = line[:MAX_WIDTH]
    if other is None:
        return ((False, line),)
    other = other[:MAX_WIDTH]
    start, end = _common(line, other)
    if 3 * (start + end) < len(line.strip()):
        return ((False, line),)
    pieces = ((False, line[:start]), (True, line[start : len(line) - end]), (False, line[len(line) - end :]))
    return tuple(piece for piece in pieces if piece[1])
