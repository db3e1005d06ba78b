"""When buffers get memory and when it is dropped: exact lifetimes, and the memory of a dead buffer for a new one of equal size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.ir import Allocation, Buffer, Extern, Graph, Kernel, Load, Ref, Store
from compiler.sizes import Size, hint


def written(step: Kernel | Extern) -> tuple[str, ...]:
    return step.writes if isinstance(step, Kernel) else tuple(name for name in step.outputs if name is not None)


def touched(step: Kernel | Extern) -> tuple[str, ...]:
    return step.arguments if isinstance(step, Kernel) else (*(ref.buffer for ref in step.refs()), *written(step))


def may_overwrite(kernel: Kernel, old: str, new: str) -> bool:
    """Whether ``new`` may be written over ``old`` while the kernel reads it: every element is read only where it is overwritten, and
    before.
    """
    if kernel.reduction:
        return False
    stores = {at: line for at, line in enumerate(kernel.body) if isinstance(line, Store) and line.buffer == new}
    loads = {at: line for at, line in enumerate(kernel.body) if isinstance(line, Load) and line.buffer == old}
    places = {(line.offset, line.strides) for line in stores.values()} | {(line.offset, line.strides) for line in loads.values()}
    if any(line.over for line in stores.values()):
        return False
    read_first = max(loads, default=-1) < min(stores, default=0)
    return len(places) == 1 and read_first and not any(line.indirect for line in loads.values())


def plan_memory(
    graph: Graph, steps: Sequence[Kernel | Extern]
) -> tuple[tuple[tuple[Allocation, ...], ...], tuple[tuple[str, ...], ...], int]:
    """Allocations before and frees after each step, and the greatest number of bytes of intermediate buffers alive at once.

    Inputs, constants and results are never reused. Results of extern calls bring their own memory.
    """
    last = {name: position for position, step in enumerate(steps) for name in touched(step)}
    pinned = {name for name in graph.inputs if name} | set(graph.constants) | {o.buffer for o in graph.outputs if isinstance(o, Ref)}
    alive: set[str] = set()
    spare: list[str] = []
    allocations: list[tuple[Allocation, ...]] = []
    frees: list[tuple[str, ...]] = []
    peak = size = 0
    for position, step in enumerate(steps):
        here: list[Allocation] = []
        dying = [name for name in dict.fromkeys(touched(step)) if last[name] == position and name in alive and name not in pinned]
        for name in written(step):
            if name in alive:
                continue
            alive.add(name)
            if isinstance(step, Extern):
                size += hint(graph.buffers[name].bytes)
                continue
            reuses = _reusable(graph.buffers, name, spare) or _reusable(
                graph.buffers, name, [old for old in dying if may_overwrite(step, old, name)]
            )
            if reuses is None:
                size += hint(graph.buffers[name].bytes)
            elif reuses in spare:
                spare.remove(reuses)
                size += hint(graph.buffers[name].bytes)
            else:
                dying.remove(reuses)
                alive.discard(reuses)
            here.append(Allocation(name, reuses))
        peak = max(peak, size)
        dead = {name for name in touched(step) if last[name] <= position and name in alive and name not in pinned}
        for name in sorted(dead):
            alive.discard(name)
            size -= hint(graph.buffers[name].bytes)
            spare.append(name)
        needed_later = _wanted(graph.buffers, steps[position + 1 :], alive, spare) if spare else set()
        frees.append(tuple(name for name in sorted(dead) if name not in needed_later))
        spare = [name for name in spare if name in needed_later]
        allocations.append(tuple(here))
    return tuple(allocations), tuple(frees), peak


def _key(buffer: Buffer) -> tuple[str, str, str, Size]:
    return buffer.device, buffer.dtype, buffer.layout, buffer.extent


def _reusable(buffers: Mapping[str, Buffer], name: str, candidates: Sequence[str]) -> str | None:
    wanted = _key(buffers[name])
    return next((old for old in reversed(candidates) if _key(buffers[old]) == wanted), None)


def _wanted(buffers: Mapping[str, Buffer], later: Sequence[Kernel | Extern], alive: set[str], spare: Sequence[str]) -> set[str]:
    """Spare buffers whose memory a kernel that comes soon can take over; the others are freed at once."""
    sizes: dict[tuple[str, str, str, Size], int] = {}
    for step in later[:2]:
        if isinstance(step, Kernel):
            for name in step.writes:
                if name not in alive:
                    sizes[_key(buffers[name])] = sizes.get(_key(buffers[name]), 0) + 1
    wanted: set[str] = set()
    for name in spare:
        if sizes.get(_key(buffers[name]), 0) > 0:
            sizes[_key(buffers[name])] -= 1
            wanted.add(name)
    return wanted
