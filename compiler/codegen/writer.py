"""Indented text that remembers, line by line, which origins it was written for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Marks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Marked:
    """A text and, for each of its lines, the origins that the line comes from."""

    text: str
    marks: Marks

    def __post_init__(self) -> None:
        assert self.text.count("\n") == len(self.marks), "one entry of marks for each line, and a line break at the end"

    @property
    def lines(self) -> int:
        return len(self.marks)


class Writer:
    """Collects lines; ``with writer.indent():`` moves what follows to the right."""

    def __init__(self, step: int = 4) -> None:
        self._lines: list[str] = []
        self._marks: list[tuple[int, ...]] = []
        self._prefix = ""
        self._step = " " * step

    def line(self, text: str = "", *origins: int) -> None:
        """Writes one line; a text with line breaks becomes several lines with the same origins."""
        for part in text.split("\n"):
            self._lines.append(self._prefix + part if part else "")
            self._marks.append(origins)

    def append(self, marked: Marked) -> None:
        """Writes lines that have their marks already, at the present indentation."""
        for text, marks in zip(marked.text.split("\n"), marked.marks, strict=False):
            self.line(text, *marks)

    @contextmanager
    def indent(self) -> Iterator[None]:
        before, self._prefix = self._prefix, self._prefix + self._step
        yield
        self._prefix = before

    @property
    def position(self) -> int:
        """How many lines there are so far."""
        return len(self._lines)

    def finish(self) -> Marked:
        return Marked("".join(line + "\n" for line in self._lines), tuple(self._marks))
