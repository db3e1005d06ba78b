"""The iteration space of a kernel as the generators want it: loops merged where every address allows it, and names for flat indices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from compiler.ir import Kernel, Line, Load, Position, Store

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


def _groups(sizes: tuple[int, ...], strides: list[list[int]]) -> list[list[int]]:
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


def transposed_loops(kernel: Kernel) -> int:
    """How many outer loops of a pointwise kernel form one axis of a tile, because some accesses run along the last of them and
    others along the innermost loop; 0 where one axis is enough.
    """
    sizes = kernel.loops
    if kernel.reduction or len(sizes) < 2 or kernel.numel < TILED_FROM or sizes[-1] < 16:
        return 0
    accesses = [line.strides for line in kernel.body if isinstance(line, Load | Store)]
    along = any(strides[-1] == 1 for strides in accesses)
    across = [k for k in range(len(sizes) - 1) for strides in accesses if sizes[k] >= 16 and strides[k] == 1 and strides[-1] not in (0, 1)]
    return max(across, key=across.count) + 1 if along and across else 0


@dataclass(frozen=True, slots=True)
class Index:
    """A name for a part of a flat index, and the expression that gives it: ``i1 = x % 128``."""

    name: str
    text: str


def flat_terms(flat: str, prefix: str, sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, Index]]:
    """``sum(strides[k] * loop[k])`` in terms of one flat index over all the loops: (stride, index) pairs, runs of loops taken together."""
    terms: list[tuple[int, Index]] = []
    stop = len(sizes)
    while stop > 0:
        start = stop - 1
        while start > 0 and strides[start - 1] == strides[start] * sizes[start]:
            start -= 1
        if strides[stop - 1]:
            terms.append((strides[stop - 1], _part(flat, prefix, sizes, start, stop)))
        stop = start
    return terms[::-1]


def _part(flat: str, prefix: str, sizes: tuple[int, ...], start: int, stop: int) -> Index:
    inner, size = prod(sizes[stop:]), prod(sizes[start:stop])
    if start == 0 and stop == len(sizes):
        return Index(flat, flat)
    name = f"{prefix}{start}" if stop == start + 1 else f"{prefix}{start}to{stop - 1}"
    divided = f"{flat} // {inner}" if inner > 1 else flat
    return Index(name, divided if start == 0 else f"{divided} % {size}")


def sum_text(offset: int, terms: Iterable[tuple[int, str]]) -> str:
    """``8*i0 + i1 + 3``; "0" for an empty sum."""
    parts = [name if stride == 1 else f"{stride} * {name}" for stride, name in terms if stride]
    if offset or not parts:
        parts.append(str(offset))
    return " + ".join(parts).replace("+ -", "- ")
