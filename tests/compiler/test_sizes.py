"""Arithmetic and decisions of open sizes equal those of the numbers that they stand for, at every value."""

import itertools
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import Unsupported
from compiler.ir import Buffer
from compiler.sizes import (
    Binding,
    Sizes,
    at,
    at_hints,
    bound,
    divisor,
    factor,
    hint,
    largest,
    lower,
    plain,
    positive,
    proved,
    same,
    unnamed,
)

VALUES = [{"a": a, "b": b} for a, b in itertools.product((2, 3, 7, 16, 1000), (2, 5, 16))]
OPERATIONS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)


def symbols():
    sizes = Sizes({"a": 6, "b": 8}, {"a": 2, "b": 2})
    return sizes, sizes.symbol("a"), sizes.symbol("b")


def python(size, values):
    return eval(str(size), {}, dict(values))


FORMULAS = st.recursive(
    st.sampled_from(["a", "b", "1", "2", "3", "16"]),
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "//", "%"]), inner, inner).map(
        lambda parts: f"({parts[1]} {parts[0]} {parts[2]})"
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(FORMULAS)
def test_formulas_have_the_values_of_numbers(formula):
    _, a, b = symbols()
    try:
        open_size = eval(formula, {"a": a, "b": b})
        wanted = [eval(formula, {}, dict(values)) for values in VALUES]
    except ZeroDivisionError:
        return
    for values, number in zip(VALUES, wanted, strict=True):
        assert at(open_size, values) == number
        assert python(open_size, values) == number
        assert eval(f"2*{factor(open_size)} + 7//{divisor(open_size)}" if number else "0", {}, dict(values)) == (
            2 * number + 7 // number if number else 0
        )
        least = lower(open_size)
        assert least is None or least <= number
        known = proved(open_size)
        assert known is None or known == (number > 0)
    assert at(unnamed(open_size), VALUES[0]) == wanted[0]


def test_equal_formulas_are_equal():
    _, a, b = symbols()
    assert (a * b + b) // b == a + 1
    assert (a * b - b) // (a - 1) == b
    assert a * b % b == 0
    assert (4 * a + 3) // 4 == a
    assert (a + b) * 2 - 2 * b == 2 * a
    assert hash(a * b) == hash(b * a)
    assert a - a == 0
    assert plain(largest(1, a - 5) * b) == a * b - 5 * b


def test_what_can_be_proved_needs_no_guard():
    sizes, a, b = symbols()
    assert a * b > b
    assert a * b - 1 >= 1
    assert not a < 2
    assert not same(a, 1)
    assert not same(a * b, b)
    assert positive(a)
    assert not sizes.guards


def test_other_decisions_are_guards():
    sizes, a, b = symbols()
    assert a < 10
    assert not a > b
    assert not same(a, b)
    assert same(a + 2, b)
    assert sizes.guards == ["10 > a", "a <= b", "a != b", "a + 2 == b"]


def test_a_known_number_cannot_be_had():
    _, a, _ = symbols()
    with pytest.raises(Unsupported, match="left open"):
        int(a)
    assert hint(a * 2) == 12


def test_sizes_inside_of_other_things():
    _, a, b = symbols()
    buffer = Buffer("x", "float32", (a, b), (b, 1), "cpu")
    assert bound(buffer, {"a": 3, "b": 4}) == Buffer("x", "float32", (3, 4), (4, 1), "cpu")
    assert at_hints(buffer).bytes == 6 * 8 * 4
    assert Binding("a", 0, 1, times=2, plus=3).value(2 * 9 + 3) == 9
