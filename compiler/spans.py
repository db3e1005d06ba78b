"""Where in the visitor's file a formatted stack of Python's points to."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass

SNIPPET = "snippet.py"
"""The file name under which a submitted script is compiled."""

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in .*$')
_CARETS = re.compile(r"^ *[~^]+ *$")


@dataclass(frozen=True, slots=True)
class Span:
    line: int
    column: int
    end_line: int
    end_column: int


def spans(stack_trace: str) -> list[tuple[str, Span]]:
    """The frames of a formatted stack, outermost first, each with its file and span: the marked expression, or else the whole line."""
    found: list[tuple[str, Span]] = []
    lines = stack_trace.splitlines()
    for index, text in enumerate(lines):
        frame = _FRAME.match(text)
        if frame is None:
            continue
        line = int(frame["line"])
        below = lines[index + 1 : index + 3]
        shown = below[0] if below and not _FRAME.match(below[0]) else ""
        raw = linecache.getline(frame["file"], line).rstrip("\n") or shown.strip()
        indent = len(raw) - len(raw.lstrip())
        column, end = indent, len(raw.rstrip())
        if shown and len(below) > 1 and _CARETS.match(below[1]):
            printed = len(shown) - len(shown.lstrip())
            first = len(below[1]) - len(below[1].lstrip())
            column, end = indent + first - printed, indent + len(below[1].rstrip()) - printed
        found.append((frame["file"], Span(line, max(0, column), line, max(0, column, end))))
    return found
