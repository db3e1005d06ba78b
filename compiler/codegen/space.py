"""The iteration space of a kernel as the generators want it: loops merged where every address allows it, and names for flat indices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from compiler.ir import Constant, Kernel, Line, Load, Position, Store
from compiler.sizes import Atom, Size, Sym, atoms_changed, divisor, factor, found, made, mapped, operation, unnamed

Addressed = Load | Position | Store


def addressed(body: Iterable[Line]) -> list[Addressed]:
    return [line for line in body if isinstance(line, Load | Position | Store)]


def merge_loops(kernel: Kernel) -> Kernel:
    """The same kernel on as few loops as possible: loops that every address walks as one are merged, loops of size 1 are dropped."""
    outer, total = len(kernel.loops), len(kernel.loops) + len(kernel.reduction)
    lines = addressed(kernel.body)
    strides = [list(line.strides) + [0] * (total - len(line.strides)) for line in lines]
    parallel = _groups(kernel.loops, [row[:outer] for row in strides])
    reduction = _groups(kernel.reduction, [row[outer:] for row in strides])
    last = [*(group[-1] for group in parallel), *(outer + group[-1] for group in reduction)]
    renewed = {id(line): replace(line, strides=tuple(row[k] for k in last)) for line, row in zip(lines, strides, strict=True)}
    return replace(
        kernel,
        loops=tuple(prod(kernel.loops[k] for k in group) for group in parallel),
        reduction=tuple(prod(kernel.reduction[k] for k in group) for group in reduction),
        body=tuple(renewed.get(id(line), line) for line in kernel.body),
    )


def _groups(sizes: tuple[Size, ...], strides: list[list[Size]]) -> list[list[int]]:
    """Runs of loops that can be one loop. A reduction over loops of size 1 only keeps one of them."""
    groups: list[list[int]] = []
    for k, size in enumerate(sizes):
        if size == 1:
            continue
        if groups and all(row[groups[-1][-1]] == row[k] * size for row in strides):
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups or ([[len(sizes) - 1]] if sizes else [])


TILED_FROM = 4096  # elements; smaller kernels are over before the memory notices


def at_least(size: Size, least: int) -> bool:
    """Whether it is worth while to count on that many; an open size may grow."""
    return isinstance(size, Sym) or size >= least


def transposed_loops(kernel: Kernel) -> int:
    """How many outer loops of a pointwise kernel form one axis of a tile, because some accesses run along the last of them and
    others along the innermost loop; 0 where one axis is enough.
    """
    sizes = kernel.loops
    if kernel.reduction or len(sizes) < 2 or not at_least(kernel.numel, TILED_FROM) or not at_least(sizes[-1], 16):
        return 0
    accesses = [line.strides for line in kernel.body if isinstance(line, Load | Store)]
    along = any(strides[-1] == 1 for strides in accesses)
    across = [
        k for k in range(len(sizes) - 1) for strides in accesses if at_least(sizes[k], 16) and strides[k] == 1 and strides[-1] not in (0, 1)
    ]
    return max(across, key=across.count) + 1 if along and across else 0


@dataclass(frozen=True, slots=True)
class Index:
    """A name for a part of a flat index, and the expression that gives it: ``i1 = x % 128``."""

    name: str
    text: str


def flat_terms(flat: str, prefix: str, sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> list[tuple[Size, Index]]:
    """``sum(strides[k] * loop[k])`` in terms of one flat index over all the loops: (stride, index) pairs, runs of loops taken together."""
    terms: list[tuple[Size, Index]] = []
    stop = len(sizes)
    while stop > 0:
        start = stop - 1
        while start > 0 and strides[start - 1] == strides[start] * sizes[start]:
            start -= 1
        if strides[stop - 1]:
            terms.append((strides[stop - 1], _part(flat, prefix, sizes, start, stop)))
        stop = start
    return terms[::-1]


def _part(flat: str, prefix: str, sizes: tuple[Size, ...], start: int, stop: int) -> Index:
    inner, size = prod(sizes[stop:]), prod(sizes[start:stop])
    if start == 0 and stop == len(sizes):
        return Index(flat, flat)
    name = f"{prefix}{start}" if stop == start + 1 else f"{prefix}{start}to{stop - 1}"
    divided = f"{flat} // {divisor(inner)}" if walked(inner) else flat
    return Index(name, divided if start == 0 else f"{divided} % {divisor(size)}")


def walked(size: Size) -> bool:
    """Whether a loop of that size may run more than once."""
    return isinstance(size, Sym) or size > 1


def sum_text(offset: Size, terms: Iterable[tuple[Size, str]]) -> str:
    """``8*i0 + i1 + 3``; "0" for an empty sum."""
    parts = [name if stride == 1 else f"{factor(stride)} * {name}" for stride, name in terms if stride]
    if offset or not parts:
        parts.append(str(offset))
    return " + ".join(parts).replace("+ -", "- ")


def with_named_sizes(kernel: Kernel, taken: Iterable[str]) -> tuple[Kernel, tuple[tuple[str, Size], ...]]:
    """The kernel with a name for each open size that it is passed, and what these are: symbols, and what is no polynomial of them.

    Such operations, and numbers that are computed with, are worked out before the launch, by the rules of Python.
    """
    names: dict[Atom, str] = {}
    used = {*taken, *(name for size in found(kernel) for name in size.symbols())}

    def named(atom: Atom) -> Size | None:
        if not atom.op:
            names[atom] = atom.name
            return None
        if atom not in names:
            names[atom] = next(name for number in range(len(used) + 1) if (name := f"n{number}") not in used)
            used.add(names[atom])
        return made({(Atom(names[atom], atom.op, atom.args, atom.sizes),): 1})

    def constant(line: Line) -> Line:
        if not isinstance(line, Constant) or not isinstance(line.value, Sym) or line.value.atom is not None:
            return line
        return replace(line, value=operation(line.value.sizes, "value", line.value))

    kernel = replace(kernel, body=tuple(constant(line) for line in kernel.body))
    renamed = mapped(kernel, lambda size: atoms_changed(size, named))
    passed = sorted(names.items(), key=lambda item: (item[0].op != "", item[1]))
    return renamed, tuple((name, unnamed(made({(atom,): 1}))) for atom, name in passed)
