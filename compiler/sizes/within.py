"""What is done with sizes beyond arithmetic: decisions that need no order, texts, and sizes inside of frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from compiler.sizes.algebra import Atom, Size, Sizes, Sym, atoms_changed, made, operation, proved

Thing = TypeVar("Thing")


def same(one: Size, other: Size) -> bool:
    """Whether two sizes are equal: by their form, or decided by a guard."""
    difference = one - other
    if isinstance(difference, int):
        return difference == 0
    if proved(difference) or proved(-difference):
        return False
    return difference.sizes.ask(difference, "==")


def is_one(size: Size) -> bool:
    """Whether it is known to be 1, or never more."""
    return isinstance(size, int) and size == 1


def largest(one: Size, other: Size) -> Size:
    """The larger one, without a guard."""
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    for first, second in ((one, other), (other, one)):
        if proved(first - second + 1):
            return first
    sizes = one.sizes if isinstance(one, Sym) else other.sizes if isinstance(other, Sym) else Sizes({}, {})
    return operation(sizes, "max", one, other)


def known(sizes: Iterable[Size]) -> tuple[int, ...]:
    """The same as numbers.

    Raises Unsupported where one is left open.
    """
    return tuple(map(int, sizes))


def factor(size: Size) -> str:
    """The size as one side of a product."""
    return f"({size})" if isinstance(size, Sym) and len(size.terms) > 1 else str(size)


# Sizes inside of other things


def found(thing: object) -> Iterator[Sym]:
    """Every open size in a dataclass, tuple or mapping."""
    if isinstance(thing, Sym):
        yield thing
    elif isinstance(thing, tuple | list):
        for item in thing:
            yield from found(item)
    elif isinstance(thing, Mapping):
        for item in thing.values():
            yield from found(item)
    elif is_dataclass(thing) and not isinstance(thing, type | Sizes):
        for part in fields(thing):
            yield from found(getattr(thing, part.name))


def mapped(thing: Thing, change: Callable[[Sym], Size]) -> Thing:
    """The same thing with every open size changed."""
    made: Any = thing
    if isinstance(thing, Sym):
        made = change(thing)
    elif isinstance(thing, tuple):
        items = tuple(mapped(item, change) for item in thing)
        made = items if any(new is not old for new, old in zip(items, thing, strict=True)) else thing
    elif isinstance(thing, dict):
        made = {key: mapped(item, change) for key, item in thing.items()}
    elif is_dataclass(thing) and not isinstance(thing, type):
        changed: dict[str, Any] = {}
        for part in fields(thing):
            old = getattr(thing, part.name)
            new = mapped(old, change)
            if new is not old:
                changed[part.name] = new
        made = replace(thing, **changed) if changed else thing
    result: Thing = made
    return result


def bound(thing: Thing, values: Mapping[str, int]) -> Thing:
    """The same thing where the symbols have these values."""
    return mapped(thing, lambda size: size.at(values))


def at_hints(thing: Thing) -> Thing:
    """The same thing at the present sizes."""
    return mapped(thing, lambda size: size.hint)


def unnamed(size: Size) -> Size:
    """The size over symbols alone, whatever a kernel calls the values of operations."""

    def change(atom: Atom) -> Size | None:
        if not atom.op or atom.op == "python":
            return made({(replace(atom, name=""),): 1}) if atom.op else None
        args = tuple(unnamed(argument) for argument in atom.args)
        return args[0] if atom.op == "value" else made({(Atom("", atom.op, args, atom.sizes),): 1})

    return atoms_changed(size, change)


def plain(size: Size) -> Size:
    """The size as a stride in loops: ``max(1, n)`` is n, since a tensor that has an element has no axis of size 0."""
    return atoms_changed(size, lambda atom: atom.args[1] if atom.op == "max" and atom.args[0] == 1 else None)


@dataclass(frozen=True, slots=True)
class Binding:
    """Where the value of a symbol comes from: input ``place`` itself, or its size along ``axis``, is ``times * symbol + plus``."""

    symbol: str
    place: int
    axis: int | None = None
    times: int = 1
    plus: int = 0

    @property
    def formula(self) -> str:
        """What the input is."""
        scaled = self.symbol if self.times == 1 else f"{self.times} * {self.symbol}"
        return f"{scaled} + {self.plus}" if self.plus else scaled

    def value(self, given: int) -> int:
        return (given - self.plus) // self.times
