"""Sizes that are left open: a ``Sym`` is a polynomial over symbols such as ``s0``, and stands wherever a number of elements may stand.

Equality is that of the written form: unequal means "not known to be equal". Ordering decides; where it cannot be proved for all sizes, it
holds for the present ones, and a guard says so. ``hint`` is the present value, for preferences, which need no guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from compiler.errors import CompileError, Unsupported

Op = Literal["", "floordiv", "mod", "max", "min", "value", "python"]


@dataclass
class Sizes:
    """The symbols of one graph: their present values, what each is at least, and the guards that decisions needed so far."""

    hints: dict[str, int]
    least: dict[str, int]
    guards: list[str] = field(default_factory=list)

    def symbol(self, name: str) -> Sym:
        return symbol(self, name)

    def ask(self, difference: Sym, relation: Literal[">", "=="]) -> bool:
        """Whether ``difference`` is above (or equal to) 0 at the present sizes; a guard keeps the answer true."""
        value = difference.hint
        answer = value > 0 if relation == ">" else value == 0
        self.record(difference, relation if answer else {">": "<=", "==": "!="}[relation])
        return answer

    def record(self, difference: Sym, relation: str) -> None:
        """Adds the guard that ``difference`` stands so to 0, with what is subtracted on the other side."""
        left = made({monomial: times for monomial, times in difference.terms if times > 0})
        text = f"{left} {relation} {left - difference}"
        if text not in self.guards:
            self.guards.append(text)


@dataclass(frozen=True)
class Atom:
    """A symbol, or an operation on sizes that is no polynomial. ``name`` is the symbol's, or what a kernel calls the operation's value.

    ``value`` is a size by itself; ``python`` is an expression of Python (its first argument) over the symbols that follow it.
    """

    name: str
    op: Op = ""
    args: tuple[Any, ...] = ()
    sizes: Sizes = field(default_factory=lambda: Sizes({}, {}), compare=False, repr=False)

    @cached_property
    def text(self) -> str:
        return self.name or self.formula

    @cached_property
    def formula(self) -> str:
        """The operation in Python, whatever its value is called."""
        match self.op:
            case "":
                return self.name
            case "floordiv":
                return f"({divisor(self.args[0])} // {divisor(self.args[1])})"
            case "mod":
                return f"({divisor(self.args[0])} % {divisor(self.args[1])})"
            case "value":
                return divisor(self.args[0])
            case "python":
                return f"({self.args[0]})"
        return f"{self.op}({self.args[0]}, {self.args[1]})"

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.op, self.args))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def least(self) -> int | None:
        """A number that the value is never below; None: nothing is known."""
        if self.op in ("", "python"):
            return self.sizes.least.get(str(self.args[0]) if self.op else self.name)
        bounds = [lower(size) for size in self.args]
        first, last = bounds[0], bounds[-1]
        match self.op:
            case "floordiv" if first is not None and first >= 0 and last is not None and last >= 1:
                return first // self.args[1] if isinstance(self.args[1], int) else 0
            case "mod" if last is not None and last >= 1:
                return 0
            case "max":
                return max((bound for bound in bounds if bound is not None), default=None)
            case "min":
                return min(first, last) if first is not None and last is not None else None
            case "value":
                return first
        return None

    def at(self, values: Mapping[str, int]) -> int:
        """Its value where the symbols have these."""
        if not self.op:
            if self.name not in values:
                raise CompileError("loops", f"the size {self.name} has no value", hint="report this program")
            return values[self.name]
        if self.op == "python":
            return int(eval(self.args[0], {"math": math}, dict(values)))  # written by ``compiler.observe``: arithmetic of sizes
        args = [at(size, values) for size in self.args]
        match self.op:
            case "floordiv":
                return args[0] // args[1]
            case "mod":
                return args[0] % args[1]
            case "max":
                return max(args)
            case "min":
                return min(args)
        return args[0]

    def symbols(self) -> Iterator[str]:
        if not self.op:
            yield self.name
        for size in self.args:
            if isinstance(size, Sym):
                yield from size.symbols()


Monomial = tuple[Atom, ...]


class Sym:
    """A polynomial with whole coefficients that is no number. Arithmetic gives a number where everything cancels."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    @property
    def sizes(self) -> Sizes:
        return self.terms[0][0][0].sizes

    @property
    def atom(self) -> Atom | None:
        """The one atom that it is, or None."""
        (monomial, factor), *rest = self.terms
        return monomial[0] if not rest and factor == 1 and len(monomial) == 1 else None

    def atoms(self) -> Iterator[Atom]:
        for monomial, _ in self.terms:
            yield from monomial

    def symbols(self) -> Iterator[str]:
        for atom in self.atoms():
            yield from atom.symbols()

    def at(self, values: Mapping[str, int]) -> int:
        """Its value where the symbols have these."""
        return sum(factor * math.prod(atom.at(values) for atom in monomial) for monomial, factor in self.terms)

    @property
    def hint(self) -> int:
        return self.at(self.sizes.hints)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sym) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        written = ""
        for monomial, factor in self.terms:
            names = "*".join(atom.text for atom in monomial)
            size = str(abs(factor)) if not names else names if abs(factor) == 1 else f"{abs(factor)}*{names}"
            sign = "-" if factor < 0 else "+"
            written += f" {sign} {size}" if written else f"-{size}" if factor < 0 else size
        return written

    __repr__ = __str__

    def __bool__(self) -> bool:
        """It is not known to be zero."""
        return True

    def __index__(self) -> int:
        raise Unsupported("loops", f"the size {self} is left open, and this needs a known one")

    __int__ = __index__

    # Arithmetic

    def __add__(self, other: Size) -> Size:
        if not isinstance(other, int | Sym):
            return NotImplemented
        total = dict(self.terms)
        for monomial, factor in _terms(other):
            total[monomial] = total.get(monomial, 0) + factor
        return made(total)

    def __mul__(self, other: Size) -> Size:
        if not isinstance(other, int | Sym):
            return NotImplemented
        total: dict[Monomial, int] = {}
        for left, times in self.terms:
            for right, factor in _terms(other):
                both = tuple(sorted((*left, *right), key=_key)) if left and right else left or right
                total[both] = total.get(both, 0) + times * factor
        return made(total)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Size:
        return made({monomial: -factor for monomial, factor in self.terms})

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __rsub__(self, other: int) -> Size:
        return -self + other

    def __floordiv__(self, other: Size) -> Size:
        return divided(self, other)[0]

    def __mod__(self, other: Size) -> Size:
        return divided(self, other)[1]

    def __rfloordiv__(self, other: int) -> Size:
        return divided(other, self)[0]

    def __rmod__(self, other: int) -> Size:
        return divided(other, self)[1]

    # Decisions

    def __lt__(self, other: Size) -> bool:
        return positive(other - self)

    def __le__(self, other: Size) -> bool:
        return positive(other - self + 1)

    def __gt__(self, other: Size) -> bool:
        return positive(self - other)

    def __ge__(self, other: Size) -> bool:
        return positive(self - other + 1)


Size = int | Sym


def symbol(sizes: Sizes, name: str) -> Sym:
    return Sym((((Atom(name, sizes=sizes),), 1),))


def operation(sizes: Sizes, op: Op, *args: Any, name: str = "") -> Sym:  # noqa: ANN401  # sizes, and the text of a ``python`` atom
    return Sym((((Atom(name, op, args, sizes),), 1),))


def _key(atom: Atom) -> str:
    return atom.text


def _order(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    return -len(term[0]), tuple(atom.text for atom in term[0])


def made(total: Mapping[Monomial, int]) -> Size:
    """The sum of these terms."""
    terms = sorted(((monomial, factor) for monomial, factor in total.items() if factor), key=_order)
    if not terms:
        return 0
    return terms[0][1] if terms[0][0] == () else Sym(tuple(terms))


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Sym) else (((), size),)


def divided(number: Size, by: Size) -> tuple[Size, Size]:
    """Quotient and remainder as Python has them: what divides exactly is divided, of the rest it is written down."""
    sizes = number.sizes if isinstance(number, Sym) else by.sizes if isinstance(by, Sym) else None
    if sizes is None:
        assert isinstance(number, int)
        assert isinstance(by, int)
        return number // by, number % by
    if by == 1:
        return number, 0
    quotient, rest = _long_division(number, by)
    if isinstance(rest, int) and isinstance(by, int):
        return quotient + rest // by, rest % by
    if rest == 0:
        return quotient, 0
    low = lower(rest)
    if low is not None and low >= 0 and proved(by - rest):
        return quotient, rest
    return quotient + operation(sizes, "floordiv", rest, by), operation(sizes, "mod", rest, by)


def _long_division(number: Size, by: Size) -> tuple[Size, Size]:
    """``number == quotient * by + rest``: every term that the first term of ``by`` divides goes into the quotient if that ends exactly."""
    (first, times), *others = _terms(by)
    quotient: Size = 0
    rest: Size = 0
    left = number
    while left != 0:
        (monomial, factor), *_ = _terms(left)
        part = _without(monomial, first)
        own = made({monomial: factor})
        if part is None or factor % times:
            if others:
                return (0, number)  # not exact: the order of the terms says nothing of their sizes
            rest, left = rest + own, left - own
            continue
        share = made({part: factor // times})
        quotient, left = quotient + share, left - share * by
    return quotient, rest


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    remaining = list(monomial)
    for atom in factors:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return tuple(remaining)


def atoms_changed(size: Size, change: Callable[[Atom], Size | None]) -> Size:
    """The size with other sizes in the place of atoms; None leaves one as it is."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for monomial, times in size.terms:
        product: Size = times
        for atom in monomial:
            new = change(atom)
            product = product * (made({(atom,): 1}) if new is None else new)
        total = total + product
    return total


def lower(size: Size) -> int | None:
    """A number that the size is never below; None: nothing is known.

    Every atom is replaced by its least value plus what it has more; if nothing is subtracted then, the constant is the answer.
    """
    if isinstance(size, int):
        return size
    if any(atom.least is None for monomial, _ in size.terms for atom in monomial):
        return None
    terms = dict(_terms(atoms_changed(size, lambda atom: made({(atom,): 1}) + (atom.least or 0))))
    constant = terms.pop((), 0)
    return None if any(factor < 0 for factor in terms.values()) else constant


def proved(size: Size) -> bool | None:
    """Whether the size is above 0 whatever the symbols are; None: it depends, or is not known."""
    low = lower(size)
    if low is not None and low > 0:
        return True
    high = lower(-size)
    return False if high is not None and high >= 0 else None


def positive(size: Size) -> bool:
    """Whether the size is above 0: proved, or decided by a guard."""
    known = proved(size)
    if known is not None:
        return known
    assert isinstance(size, Sym)
    return size.sizes.ask(size, ">")


def hint(size: Size) -> int:
    """The present value."""
    return size if isinstance(size, int) else size.hint


def at(size: Size, values: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else size.at(values)


def divisor(size: Size) -> str:
    """The size as one side of a division."""
    return str(size) if isinstance(size, int) or size.atom is not None else f"({size})"
