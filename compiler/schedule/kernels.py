"""From a group of nests to a kernel: one flat body in phases, where stored values are passed on in registers and nobody's stores are
dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from compiler.ir import Apply, Buffer, Constant, Kernel, Line, Load, Phase, Position, Reduce, Scan, Store, Value, operands
from compiler.schedule.choices import access_bytes, choose_tiling, contiguous_in_reduction, prefer_persistent
from compiler.schedule.groups import Group, Member
from compiler.sizes import Size
from compiler.target import Target

Place = tuple[str, Size, tuple[Size, ...]]


def place(line: Load | Store) -> Place:
    """Where an access goes; what is stored at a place can be passed on to whoever loads from it."""
    return line.buffer, line.offset, line.strides


def levels(group: Group) -> dict[int, int]:
    """For each member its level: inner members of level k run in the k-th reduced phase, the others after it (-1: before any)."""
    level: dict[int, int] = {}
    writer = {place(member.nest.store): member for member in group.members}
    for member in group.members:
        least = 0 if member.inner else -1
        for line in member.nest.loads():
            source = writer.get(place(line))
            if source is None or source is member:
                continue
            waits = member.inner and not (source.inner and not source.nest.is_reduction)
            least = max(least, level[source.position] + (1 if waits and level[source.position] >= 0 else 0))
        level[member.position] = least
    return level


@dataclass(slots=True)
class Body:
    """Collects the lines of a kernel, phase by phase, and computes nothing twice that is still at hand."""

    group: Group
    persistent: bool
    live: frozenset[str]
    lines: list[Line] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    known: dict[tuple[object, object], Value] = field(default_factory=dict)
    stored: dict[tuple[Place, object], Value] = field(default_factory=dict)
    scope: object = "outer"

    def add(self, line: Line) -> Value:
        """The value of an equal line that may be used here, or of this one, added now."""
        if not isinstance(line, Store | Reduce):
            key = (type(line), repr(line.value), line.dtype) if isinstance(line, Constant) else line
            for scope in ("outer", self.scope):
                if (scope, key) in self.known:
                    return self.known[scope, key]
            self.known[self.scope, key] = len(self.lines)
        self.lines.append(line)
        return len(self.lines) - 1

    def begin(self, level: int, reduced: bool) -> None:
        self.scope = "outer" if not reduced else "row" if self.persistent else level
        self.start = len(self.lines)
        self.reduced = reduced

    start: int = 0
    reduced: bool = False

    def end(self) -> None:
        if len(self.lines) > self.start:
            self.phases.append(Phase(self.start, len(self.lines), self.reduced))

    def value_of(self, line: Load) -> Value | None:
        """What a member of this group stored at the place, if its value may be used in the present phase."""
        for scope in ("outer", self.scope):
            if (place(line), scope) in self.stored:
                return self.stored[place(line), scope]
        return None

    def emit(self, member: Member, values: dict[int, Value], lines: range, *, keep: bool) -> None:
        """Add lines of a member's nest. ``values`` maps its line numbers to the body's; ``keep``: its store is wanted in memory."""
        for number in lines:
            line = renumbered(member.nest.body[number], values)
            if isinstance(line, Store):
                if not line.over:
                    self.stored[place(line), self.scope] = line.value
                if keep and line.buffer in self.live:
                    self.add(line)
                continue
            if isinstance(line, Load):
                values[number] = self.load(line)
                continue
            values[number] = self.add(line)

    def load(self, line: Load) -> Value:
        passed = None if line.indirect else self.value_of(line)
        if passed is None and any(place(member.nest.store) == place(line) for member in self.group.members):
            passed = self.again(line)
        if passed is None:
            return self.add(line)
        if line.mask is None:
            return passed
        other = self.add(Constant(line.other, line.dtype, line.origin))
        return self.add(Apply("where", (line.mask, passed, other), line.dtype, line.origin))

    def again(self, line: Load) -> Value:
        """Compute what an earlier reduced phase computed, since its values are gone."""
        member = next(member for member in self.group.members if place(member.nest.store) == place(line))
        self.emit(member, {}, range(len(member.nest.body)), keep=False)
        value = self.value_of(line)
        assert value is not None
        return value


def renumbered(line: Line, values: Mapping[int, Value]) -> Line:
    """The line with its operands' numbers replaced."""
    match line:
        case Load():
            indirect = tuple((values[value], stride) for value, stride in line.indirect)
            return replace(line, indirect=indirect, mask=None if line.mask is None else values[line.mask])
        case Apply():
            return replace(line, args=tuple(values[arg] for arg in line.args))
        case Reduce() | Scan():
            return replace(line, arg=values[line.arg])
        case Store():
            indirect = tuple((values[value], stride) for value, stride in line.indirect)
            return replace(line, value=values[line.value], indirect=indirect)
        case Constant() | Position():
            return line


def body_of(group: Group, live: frozenset[str], persistent: bool) -> tuple[tuple[Line, ...], tuple[Phase, ...]]:
    """The fused body without dead lines."""
    body = Body(group, persistent, live)
    level = levels(group)
    values: dict[int, dict[int, Value]] = {member.position: {} for member in group.members}

    def split(member: Member) -> int:
        found = (number for number, line in enumerate(member.nest.body) if isinstance(line, Reduce))
        return next(found, len(member.nest.body) - 1) + 1

    for number in range(-1, max(level.values()) + 1):
        here = [member for member in group.members if level[member.position] == number]
        body.begin(number, reduced=True)
        for member in here:
            if member.inner:
                body.emit(member, values[member.position], range(split(member)), keep=True)
        body.end()
        body.begin(number, reduced=False)
        for member in here:
            first = split(member) if member.inner else 0
            body.emit(member, values[member.position], range(first, len(member.nest.body)), keep=True)
        body.end()
    return without_dead_lines(body.lines, body.phases)


def without_dead_lines(lines: list[Line], phases: list[Phase]) -> tuple[tuple[Line, ...], tuple[Phase, ...]]:
    needed: set[Value] = set()
    for number in range(len(lines) - 1, -1, -1):
        if isinstance(lines[number], Store) or number in needed:
            needed.add(number)
            needed.update(operands(lines[number]))
    values: dict[int, Value] = {}
    kept: list[Line] = []
    remaining: list[Phase] = []
    for phase in phases:
        start = len(kept)
        for number in range(phase.start, phase.stop):
            if number in needed:
                values[number] = len(kept)
                kept.append(renumbered(lines[number], values))
        if len(kept) > start:
            remaining.append(Phase(start, len(kept), phase.reduced))
    return tuple(kept), tuple(remaining)


def build_kernel(group: Group, name: str, live: frozenset[str], buffers: Mapping[str, Buffer], target: Target) -> Kernel:
    """The kernel of a group. ``live`` are the buffers that something outside the group reads."""
    loops = (*group.loops, *group.reduction)
    accesses = [line for lines in group.accesses.values() for line in lines]
    along = contiguous_in_reduction(accesses, len(group.loops))
    phases_of = levels(group)
    reduced = len({phases_of[member.position] for member in group.members if member.inner})
    kept = sum(1 for member in group.members if member.inner and not member.nest.is_reduction)
    persistent = group.reduces and prefer_persistent(group.rnumel, reduced, along, kept, target)
    body, phases = body_of(group, live, persistent)
    touched: dict[str, list[Load | Store]] = {}
    for line in body:
        if isinstance(line, Load | Store):
            touched.setdefault(line.buffer, []).append(line)
    writes = tuple(dict.fromkeys(line.buffer for line in body if isinstance(line, Store)))
    return Kernel(
        name=name,
        steps=tuple(member.nest.name for member in group.members),
        loops=group.loops,
        reduction=group.reduction,
        persistent=persistent,
        phases=phases,
        body=body,
        arguments=tuple(touched),
        writes=writes,
        tiling=choose_tiling(group.numel, group.rnumel, group.reduces, persistent, along, target),
        bytes=sum(max(access_bytes(line, loops, buffers[buffer]) for line in lines) for buffer, lines in touched.items()),
        origin=group.members[-1].nest.origin,
    )
