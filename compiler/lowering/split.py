"""Long reductions with few results are split in two on a GPU, so that more than a few blocks have work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from compiler.ir import Apply, Buffer, Line, Load, Nest, Position, Reduce, Store
from compiler.lowering.nests import in_memory_order, row_major
from compiler.sizes import Size, Sym
from compiler.target import Target
from compiler.trace import Decision

LONG = 8192  # elements that one block reduces quickly enough alone
SHORTEST = 512  # elements that each block shall have at least
ACROSS = 64  # results that one block makes side by side where neighbours in memory belong to different results


def chunks(size: int, wanted: int) -> int:
    """The divisor of ``size`` that is nearest to ``wanted`` from below, if it is at least half of it or all of ``size``, else 1."""
    if size <= wanted:
        return size
    for parts in range(min(wanted, size), max(1, wanted // 2) - 1, -1):
        if size % parts == 0:
            return parts
    return 1


def reduces_across(nest: Nest) -> bool:
    """Whether neighbours in memory lie along the parallel loops, so that threads read side by side for different results."""
    outer = len(nest.loops)
    loads = [load.strides for load in nest.loads() if any(load.strides[outer:])]
    return outer > 0 and sum(strides[outer - 1] == 1 for strides in loads) > sum(strides[-1] == 1 for strides in loads)


def split_reduction(nest: Nest, buffers: Mapping[str, Buffer], target: Target) -> tuple[Nest, Nest, Buffer, Decision] | None:
    """Partial results over chunks of the slowest reduction loop, then their reduction; None where one step is as good.

    Positions of extrema are not split: their tie rule needs the order.
    """
    reduce = next((position for position, line in enumerate(nest.body) if isinstance(line, Reduce)), None)
    if not target.is_gpu or reduce is None or any(isinstance(size, Sym) for size in (*nest.loops, *nest.reduction)):
        return None  # chunks of an open size would not be equal
    numel, rnumel = cast(int, nest.numel), cast(int, nest.rnumel)
    across = reduces_across(nest)
    blocks = -(-numel // ACROSS) if across else numel
    if rnumel <= (SHORTEST if across else LONG) or blocks * 2 > target.multiprocessors:
        return None
    line = cast(Reduce, nest.body[reduce])
    if line.op.startswith("arg") or any(isinstance(before, Position) for before in nest.body[:reduce]):
        return None
    if any(arg < reduce for after in nest.body[reduce + 1 :] if isinstance(after, Apply) for arg in after.args):
        return None
    wanted = max(1, min(4 * target.multiprocessors // max(1, blocks), rnumel // (SHORTEST // ACROSS if across else SHORTEST)))
    parts = chunks(cast(int, nest.reduction[0]), wanted)
    if parts == 1 or parts == rnumel:
        return None
    rest = nest.reduction[0] // parts
    outer = len(nest.loops)

    def chunked(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return (*strides[:outer], strides[outer] * rest, *strides[outer:])

    output = buffers[nest.store.buffer]
    shape = (*nest.loops, parts)
    strides = (*row_major(nest.loops), nest.numel) if across else row_major(shape)
    partial_buffer = Buffer(f"{nest.name}_partial", line.dtype, shape, strides, output.device)
    before: list[Line] = [replace(item, strides=chunked(item.strides)) if isinstance(item, Load) else item for item in nest.body[:reduce]]
    depth = outer + 1 + len(nest.reduction)
    store = Store(partial_buffer.name, 0, (*strides, *(0,) * (depth - outer - 1)), reduce, line.dtype, nest.origin)
    partial = Nest(
        partial_buffer.name, f"{nest.op}, {parts} chunks", shape, (rest, *nest.reduction[1:]), (*before, line, store), nest.origin
    )

    load = Load(partial_buffer.name, 0, strides, line.dtype, origin=nest.origin)
    after = [_moved(item, reduce, outer) for item in nest.body[reduce + 1 :]]
    final = Nest(nest.name, nest.op, nest.loops, (parts,), (load, replace(line, arg=0), *after), nest.origin)
    decision = Decision(
        subject=nest.name,
        verdict="chosen",
        rule="split_reduction",
        reason="The reduction is long and has few results: chunks of it are reduced side by side first.",
        numbers={"results": numel, "reduced": rnumel, "chunks": parts},
        origins=(nest.origin,),
    )
    return in_memory_order(partial), in_memory_order(final), partial_buffer, decision


def _moved(line: Line, reduce: int, outer: int) -> Line:
    """A line after the reduction, renumbered for a body in which the reduction is line 1 and whose one reduction loop has no stride."""
    shift = reduce - 1
    match line:
        case Store():
            return replace(line, value=line.value - shift, strides=(*line.strides[:outer], 0))
        case Load() | Position():
            return replace(line, strides=(*line.strides[:outer], 0))
        case Reduce():
            return line
        case Apply():
            return replace(line, args=tuple(arg - shift for arg in line.args))
        case _:
            return line
