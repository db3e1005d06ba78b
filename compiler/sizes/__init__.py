"""Sizes that are left open: numbers of elements, strides and offsets that are polynomials of symbols such as ``s0``."""

from __future__ import annotations

from compiler.sizes.algebra import Atom, Op, Size, Sizes, Sym, at, divided, divisor, hint, lower, made, operation, positive, proved, symbol
from compiler.sizes.within import (
    Binding,
    at_hints,
    atoms_changed,
    bound,
    factor,
    found,
    is_one,
    known,
    largest,
    mapped,
    plain,
    same,
    unnamed,
)

__all__ = [
    "Atom",
    "Binding",
    "Op",
    "Size",
    "Sizes",
    "Sym",
    "at",
    "at_hints",
    "atoms_changed",
    "bound",
    "divided",
    "divisor",
    "factor",
    "found",
    "hint",
    "is_one",
    "known",
    "largest",
    "lower",
    "made",
    "mapped",
    "operation",
    "plain",
    "positive",
    "proved",
    "same",
    "symbol",
    "unnamed",
]
