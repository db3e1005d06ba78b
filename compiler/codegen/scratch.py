"""Where the values of a C++ kernel live between its phases: computed again where that is cheap, else in a row of scratch memory."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.codegen.templates import HALVES, readers
from compiler.ir import Apply, Constant, Kernel, Load, Position, Reduce, Store, operands


@dataclass(frozen=True, slots=True)
class Plan:
    """For each phase: ``lines``, what its innermost loop computes, and ``imports``, the values that it takes from earlier phases.

    ``scratch``: values kept for a whole row; ``carried``: values of phases that are not reduced which later phases read;
    ``unread``: lines nobody needs, because a store narrows their argument itself; ``vertical``: SIMD belongs on the last parallel loop.
    """

    lines: tuple[tuple[int, ...], ...]
    imports: tuple[tuple[int, ...], ...]
    scratch: tuple[int, ...]
    carried: tuple[int, ...]
    unread: frozenset[int]
    vertical: bool


def plan_kernel(kernel: Kernel) -> Plan:
    body = kernel.body
    phase_of = {position: number for number, phase in enumerate(kernel.phases) for position in range(phase.start, phase.stop)}
    unread = _unread(kernel)
    cheap: dict[int, bool] = {}

    def is_cheap(position: int) -> bool:
        if position not in cheap:
            line = body[position]
            free = isinstance(line, Constant | Position) or (isinstance(line, Load) and line.buffer not in kernel.writes)
            free = free or (isinstance(line, Apply) and line.op == "cast")
            cheap[position] = free and all(_settled(kernel, value, phase_of) or is_cheap(value) for value in operands(line))
        return cheap[position]

    lines: list[tuple[int, ...]] = []
    imports: list[tuple[int, ...]] = []
    scratch: set[int] = set()
    carried: set[int] = set()
    for number, phase in enumerate(kernel.phases):
        own = [position for position in range(phase.start, phase.stop) if position not in unread]
        computed, taken, waiting = set(own), set(), list(own)
        while waiting:
            for value in _operands(kernel, waiting.pop(), unread):
                if value in computed or value in taken or isinstance(body[value], Constant):
                    continue
                if phase_of[value] != number and _settled(kernel, value, phase_of):
                    taken.add(value)
                    if not isinstance(body[value], Reduce):
                        carried.add(value)
                elif is_cheap(value):
                    computed.add(value)
                    waiting.append(value)
                else:
                    taken.add(value)
                    scratch.add(value)
        lines.append(tuple(sorted(computed)))
        imports.append(tuple(sorted(taken)))
    return Plan(tuple(lines), tuple(imports), tuple(sorted(scratch)), tuple(sorted(carried)), unread, _vertical(kernel))


def _settled(kernel: Kernel, value: int, phase_of: dict[int, int]) -> bool:
    """A value that exists once for each point of the parallel loops."""
    return isinstance(kernel.body[value], Reduce) or not kernel.phases[phase_of[value]].reduced


def _operands(kernel: Kernel, position: int, unread: frozenset[int]) -> tuple[int, ...]:
    line = kernel.body[position]
    if isinstance(line, Store) and line.value in unread:
        return (*operands(kernel.body[line.value]), *(value for value, _ in line.indirect))
    return operands(line)


def _unread(kernel: Kernel) -> frozenset[int]:
    """Casts from float32 to a 16-bit float that only stores read: the store converts."""
    found = set()
    for position, users in enumerate(readers(kernel)):
        line = kernel.body[position]
        if isinstance(line, Apply) and line.op == "cast" and line.dtype in HALVES and users:
            source = kernel.body[line.args[0]]
            stores = all(isinstance(kernel.body[user], Store) for user in users)
            if stores and not isinstance(source, Store) and source.dtype == "float32":
                found.add(position)
    return frozenset(found)


def _vertical(kernel: Kernel) -> bool:
    """Whether neighbours in memory lie along the last parallel loop rather than along the last reduction loop."""
    if not kernel.reduction or not kernel.loops or (isinstance(kernel.loops[-1], int) and kernel.loops[-1] < 8):
        return False
    across = along = 0
    for phase in kernel.phases:
        for line in kernel.body[phase.start : phase.stop]:
            if phase.reduced and isinstance(line, Load | Store):
                parallel, reduced = line.strides[len(kernel.loops) - 1], line.strides[-1]
                across += parallel == 1 and reduced != 1
                along += reduced == 1
    return across > along
