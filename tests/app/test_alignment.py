"""Texts of several runs in rows: what comes from the same line of the snippet stands at the same height, and no line is lost."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from app.compare.alignment import MAX_LINES, Group, groups
from compiler.trace import Origin, Section, Stage

ORIGINS = tuple(Origin(line=line, op=f"aten.op{line}") for line in range(1, 9))


def stage(*lines: int, title: str = "k", origins: tuple[Origin, ...] = ORIGINS) -> Stage:
    """A stage whose text has a line ``from 3`` for each 3; 0 is a line of no origin."""
    text = "\n".join(f"from {line}" for line in lines)
    marks = tuple((line - 1,) if line else () for line in lines)
    return Stage(region=0, name="code", sections=(Section(title=title, text=text, marks=marks),), origins=origins)


def shown(group: Group, column: int) -> list[str]:
    return [line.text for row in group.rows for block in row.cells[column] for line in block.lines]


def heights(group: Group) -> list[tuple[object, ...]]:
    """The rows as the texts of their cells."""
    return [tuple("".join(line.text[-1] for block in cell for line in block.lines) for cell in row.cells) for row in group.rows]


def test_lines_of_the_same_origin_share_a_row():
    (group,) = groups([stage(1, 2, 2, 5), stage(1, 1, 3, 5)])
    assert heights(group) == [("1", "11"), ("22", ""), ("", "3"), ("5", "5")]
    assert [row.anchor for row in group.rows] == [1, 2, 3, 5]


def test_a_line_of_no_origin_stays_with_the_one_before():
    (group,) = groups([stage(0, 1, 0, 2), stage(0, 2)])
    assert heights(group) == [("0", "0"), ("10", ""), ("2", "2")]


def test_a_head_that_comes_from_all_lines_stands_with_the_other_heads():
    head = Section(title="k", text="head\nfrom 2\nboth\nfrom 3", marks=((0, 1, 2), (1,), (1, 2), (2,)))
    other = Section(title="j", text="import\nfrom 2\nfrom 3", marks=((), (1,), (2,)))
    (group,) = groups([Stage(region=0, name="code", sections=(section,), origins=ORIGINS) for section in (head, other)])
    assert [[line.text for block in row.cells[0] for line in block.lines] for row in group.rows] == [
        ["head"],
        ["from 2", "both"],
        ["from 3"],
    ]
    assert [row.anchor for row in group.rows] == [None, 2, 3]


def test_three_columns():
    (group,) = groups([stage(1, 3), stage(2, 3), stage(1, 2, 3)])
    assert ("3", "3", "3") in heights(group)
    assert [shown(group, column) for column in range(3)] == [["from 1", "from 3"], ["from 2", "from 3"], ["from 1", "from 2", "from 3"]]


def test_different_snippets_are_aligned_by_ops():
    moved = tuple(Origin(line=origin.line + 40, op=origin.op) for origin in ORIGINS)
    (group,) = groups([stage(1, 2, 5), stage(1, 5, origins=moved)], by_op=True)
    assert heights(group) == [("1", "1"), ("2", ""), ("5", "5")]
    assert [row.anchor for row in group.rows] == ["aten.op1", "aten.op2", "aten.op5"]


def test_sections_of_one_title_stand_beside_each_other_and_the_rest_together():
    both = Stage(region=0, name="dynamo", sections=(Section(title="Guards", text="g"), Section(title="own", text="o")))
    other = Stage(region=0, name="dynamo", sections=(Section(title="other", text="p"), Section(title="Guards", text="h")))
    assert [group.titles for group in groups([both, other])] == [("Guards", "Guards"), ("own", "other")]


def test_an_absent_stage_leaves_its_column_empty():
    (group,) = groups([stage(1, 2), None])
    assert shown(group, 1) == []
    assert not group.unlike
    assert not group.equal


def test_what_a_column_has_alone_is_marked():
    first = Stage(region=0, name="aten", sections=(Section(title="g", text="a\nb\nc\nd"),))
    second = Stage(region=0, name="aten", sections=(Section(title="g", text="a\nb\nx\nd"),))
    (group,) = groups([first, second])
    alone = [line.text for row in group.rows for cell in row.cells for block in cell for line in block.lines if line.alone]
    assert alone == ["c", "x"]
    assert groups([first, first])[0].equal


NUMBERS = st.lists(st.integers(0, 8), min_size=1, max_size=40)


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_every_column_keeps_its_lines_in_order(columns):
    (group,) = groups([stage(*lines) for lines in columns])
    for column, lines in enumerate(columns):
        assert shown(group, column) == [f"from {line}" for line in lines]


def test_long_texts_are_cut_and_take_no_long_time():
    lines = [1 + number % 8 for number in range(30_000)]
    began = time.process_time()
    (group,) = groups([stage(*lines), stage(*lines[3:])] * 3)
    assert time.process_time() - began < 5
    assert group.cut == (True,) * 6
    assert len(shown(group, 0)) == MAX_LINES
