"""One stage of several runs comes in; rows go out, in which texts that come from the same place of the snippet stand at the same height.

A text is cut into blocks of lines with the same anchor: the snippet's line that they come from or, where the snippets differ, the op.
Blocks of all columns with equal anchors share a row, in the longest common order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from app.compare.difference import PADDING
from app.stages.view import Lines, source_lines
from compiler.trace import Origin, Section, Stage

MAX_LINES, MAX_CHARACTERS, MAX_WIDTH = 1_200, 200_000, 1_000
MAX_BLOCKS, MAX_MARKS, MAX_SOURCES, MAX_SHARED = 250, 50, 40, 12
UNLIKE = 0.15
Anchor = int | str | None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text. ``sources``: the snippet's lines that it comes from; ``alone``: no other column has its like."""

    text: str
    sources: Lines
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines with one anchor; ``title`` where a section of its own begins."""

    anchor: Anchor
    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """``cells``: for each column the blocks that stand here."""

    anchor: Anchor
    cells: tuple[tuple[Block, ...], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Sections that stand beside each other. ``titles``: what each column's are called; ``cut``: whether a column's text was too long.

    ``placed``: more than one column says where its lines come from; otherwise there is one row, and nothing is aligned. ``equal``: the
    texts are the same; ``unlike``: they share so little that marking what differs would mark everything.
    """

    titles: tuple[str, ...]
    rows: tuple[Row, ...]
    cut: tuple[bool, ...]
    equal: bool
    unlike: bool
    placed: bool


def groups(stages: Sequence[Stage | None], by_op: bool = False) -> tuple[Group, ...]:
    """The stage's sections by title; those whose title not every column has, and what is more than a few, stand together at the end."""
    columns = [list(stage.sections) if stage else [] for stage in stages]
    filled = [[section.title for section in column] for column in columns if column]
    shared = [title for title in filled[0] if all(titles.count(title) == 1 for titles in filled)] if len(filled) > 1 else []
    shared = shared[:MAX_SHARED]
    found = [_group(stages, [[item for item in column if item.title == title] for column in columns], by_op) for title in shared]
    rest = [[item for item in column if item.title not in shared] for column in columns]
    if any(rest):
        found.append(_group(stages, rest, by_op))
    return tuple(found)


def _group(stages: Sequence[Stage | None], columns: Sequence[Sequence[Section]], by_op: bool) -> Group:
    made, cut = [], []
    for stage, sections in zip(stages, columns, strict=True):
        blocks, short = _blocks(sections, stage.origins if stage else (), by_op)
        made.append(blocks)
        cut.append(short)
    filled = [blocks for blocks in made if blocks]
    texts = [[line.text for block in blocks for line in block.lines] for blocks in filled]
    equal = len(texts) > 1 and not any(cut) and all(text == texts[0] for text in texts)
    known = [{line.strip() for line in text} for text in texts]
    unlike = len(known) > 1 and len(set.intersection(*known)) < UNLIKE * min(len(lines) for lines in known)
    if len(known) > 1 and not equal and not unlike:
        made = [_marked(blocks, known) for blocks in made]
    titles = tuple(", ".join(dict.fromkeys(section.title for section in sections)) for sections in columns)
    placed = sum(any(block.anchor is not None for block in blocks) for blocks in made) > 1
    rows = _rows(made) if placed else (Row(None, tuple(map(tuple, made))),)
    return Group(titles, rows, tuple(cut), equal, unlike, placed)


def _marked(blocks: Sequence[Block], known: Sequence[set[str]]) -> list[Block]:
    """The blocks with the lines marked that some other column lacks; a line without a sign is never marked."""
    common = set.intersection(*known) | {""}
    return [
        Block(block.anchor, block.title, tuple(Line(line.text, line.sources, line.text.strip() not in common) for line in block.lines))
        for block in blocks
    ]


def _blocks(sections: Sequence[Section], origins: tuple[Origin, ...], by_op: bool) -> tuple[list[Block], bool]:
    """The sections' lines by anchor, as many as are shown, and whether that is not all. A line of no origin stands with the one before."""
    anchored = _by_op(origins) if by_op else _by_line(origins)
    found: list[Block] = []
    left, room = MAX_LINES, MAX_CHARACTERS
    for section in sections:
        anchor: Anchor = None
        lines: list[Line] = []
        title = section.title if len(sections) > 1 else ""
        for number, text in enumerate(section.text[: room + 1].removesuffix("\n").split("\n")):
            if left <= 0 or room <= 0:
                found.append(Block(anchor, title, tuple(lines)))
                return found, True
            marks = section.marks[number][:MAX_MARKS] if number < len(section.marks) else ()
            own = anchored(marks, anchor)
            if own is not None and own != anchor and len(found) < MAX_BLOCKS:
                if lines:
                    found.append(Block(anchor, title, tuple(lines)))
                    lines, title = [], ""
                anchor = own
            lines.append(Line(PADDING.sub("  ", text[:MAX_WIDTH]), source_lines(marks, origins)[:MAX_SOURCES]))
            left, room = left - 1, room - len(text) - 1
        found.append(Block(anchor, title, tuple(lines)))
    return found, False


Anchored = Callable[[Iterable[int], Anchor], Anchor]


def _by_line(origins: tuple[Origin, ...]) -> Anchored:
    """The snippet's line that a line comes from. What comes from several, as a kernel's head does, stays where it is, if that is one."""

    def anchor(marks: Iterable[int], current: Anchor) -> Anchor:
        lines = {origins[mark].line for mark in marks if mark < len(origins)} - {0}
        return None if not lines or (len(lines) > 1 and (current is None or current in lines)) else min(lines)

    return anchor


def _by_op(origins: tuple[Origin, ...]) -> Anchored:
    def anchor(marks: Iterable[int], _: Anchor) -> Anchor:
        return next((origins[mark].op for mark in marks if mark < len(origins) and origins[mark].op), None)

    return anchor


def _rows(columns: Sequence[Sequence[Block]]) -> tuple[Row, ...]:
    """All columns' blocks in rows: each column is merged into those before it; a block that matches none has a row of its own."""
    rows: list[tuple[Anchor, list[list[Block]]]] = []
    for position, blocks in enumerate(columns):
        merged: list[tuple[Anchor, list[list[Block]]]] = []
        row = block = 0
        for at, matching in [*_matches([anchor for anchor, _ in rows], [item.anchor for item in blocks]), (len(rows), len(blocks))]:
            merged += rows[row:at]
            merged += [(item.anchor, _alone(item, position, len(columns))) for item in blocks[block:matching]]
            if at < len(rows):
                rows[at][1][position].append(blocks[matching])
                merged.append(rows[at])
            row, block = at + 1, matching + 1
        rows = merged
    return tuple(Row(anchor, tuple(tuple(cell) for cell in cells)) for anchor, cells in rows)


def _alone(block: Block, position: int, width: int) -> list[list[Block]]:
    return [[block] if column == position else [] for column in range(width)]


def _matches(first: Sequence[Anchor], second: Sequence[Anchor]) -> list[tuple[int, int]]:
    """The positions of a longest common subsequence of two bounded sequences."""
    lengths = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for a in range(len(first) - 1, -1, -1):
        below, here, wanted = lengths[a + 1], lengths[a], first[a]
        for b in range(len(second) - 1, -1, -1):
            here[b] = below[b + 1] + 1 if wanted == second[b] else max(below[b], here[b + 1])
    found = []
    a = b = 0
    while a < len(first) and b < len(second):
        if first[a] == second[b]:
            found.append((a, b))
            a, b = a + 1, b + 1
        elif lengths[a + 1][b] >= lengths[a][b + 1]:
            a += 1
        else:
            b += 1
    return found
