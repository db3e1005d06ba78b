"""The difference of two texts, against what difflib itself says of small ones; hostile texts end in time."""

from __future__ import annotations

import random
import time
from difflib import unified_diff

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compare.difference import CUT, SLOW, Difference, difference

LINES = st.lists(st.sampled_from(["a", "b", "c", "a = b", ""]), max_size=30)


def applied(left: list[str], found: Difference) -> list[str]:
    """The right text, made of the left one and the difference."""
    result, at = [], 0
    for hunk in found.hunks:
        for line in hunk:
            text = "".join(piece for _, piece in line.pieces)
            if line.kind == "come":
                result.append(text)
                continue
            result += left[at : line.left - 1]
            at = line.left
            assert left[line.left - 1] == text
            if line.kind == "same":
                result.append(text)
    return result + left[at:]


@given(LINES, LINES)
def test_the_difference_leads_from_one_text_to_the_other(left, right):
    found = difference("\n".join([*left, "."]), "\n".join([*right, "."]))
    assert applied([*left, "."], found) == [*right, "."]
    assert not found.remarks


def test_it_is_what_difflib_says():
    left = [f"line {number}" for number in range(60)]
    right = [*left[:10], "new", *left[10:40], *left[41:], "last"]
    said = [line for line in unified_diff(left, right, lineterm="", n=3) if line[:3] not in ("---", "+++") and line[:2] != "@@"]
    found = difference("\n".join(left), "\n".join(right))
    sign = {"same": " ", "gone": "-", "come": "+"}
    assert [sign[line.kind] + "".join(piece for _, piece in line.pieces) for hunk in found.hunks for line in hunk] == said
    assert (found.gone, found.come, len(found.hunks)) == (1, 2, 3)


def test_what_changed_within_a_line_is_marked():
    found = difference("x = a + b\n", "x = a * b\n")
    assert [line.pieces for line in found.hunks[0]] == [
        ((False, "x = a "), (True, "+"), (False, " b")),
        ((False, "x = a "), (True, "*"), (False, " b")),
    ]


def test_how_far_a_comment_is_padded_is_no_difference():
    assert difference("x = a  # one\nwide = b  # two", "x = a     # one\nwide = b  # two").hunks == ()
    assert difference("    x", "  x").hunks


def test_equal_texts_have_none():
    assert difference("a\nb", "a\nb\n") == Difference((), 0, 0, ())


HOSTILE = {
    "two signs": lambda r: "\n".join(r.choice("ab") for _ in range(1_000_000)),
    "just below popular": lambda r: "\n".join(str(r.randrange(101)) for _ in range(500_000)),
    "one line": lambda r: "x" * 1_000_000 + r.choice("ab") + "y" * 999_999,
    "empty lines": lambda r: "\n" * r.randrange(1_900_000, 2_000_000),
    "words": lambda r: "\n".join(" ".join(r.choice("ab") for _ in range(50)) for _ in range(20_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_two_megabytes_of_hostile_text_end_in_time(name):
    chance = random.Random(1)
    left, right = HOSTILE[name](chance), HOSTILE[name](chance)
    began = time.process_time()
    found = difference(left, right)
    assert time.process_time() - began < 3
    assert CUT in found.remarks
    assert sum(len(hunk) for hunk in found.hunks) <= 8_000


def test_no_time_at_all_still_gives_the_common_ends():
    found = difference("a\nb\nc\nd", "a\nx\ny\nd", seconds=-1)
    assert found.remarks == (SLOW,)
    assert [(line.kind, line.left, line.right) for line in found.hunks[0]] == [
        ("same", 1, 1), ("gone", 2, 0), ("gone", 3, 0), ("come", 0, 2), ("come", 0, 3), ("same", 4, 4),
    ]  # fmt: skip
