"""Groups of nests on one iteration space, and how two groups are brought onto a common one by splitting and reordering loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from compiler.ir import Extern, Load, Nest, Reduce, Scan, Store
from compiler.lowering.nests import restride, row_major
from compiler.sizes import Size, hint, is_one


@dataclass(frozen=True, slots=True)
class Member:
    """A nest whose addresses have one stride for each loop of its group; ``inner``: it runs at every point of the reduction loops."""

    nest: Nest
    inner: bool
    position: int


@dataclass(frozen=True)
class Group:
    """Nests that run in one kernel, or one extern call. ``first`` and ``last`` are positions in the order of lowering."""

    id: int
    members: tuple[Member, ...]
    loops: tuple[Size, ...]
    reduction: tuple[Size, ...]
    extern: Extern | None
    first: int
    last: int

    @property
    def name(self) -> str:
        if self.extern is not None:
            return self.extern.name
        names = [member.nest.name for member in self.members]
        return " + ".join(names) if len(names) <= 6 else f"{' + '.join(names[:3])} + … + {names[-1]} ({len(names)} nests)"

    @property
    def numel(self) -> Size:
        return prod(self.loops)

    @property
    def rnumel(self) -> Size:
        return prod(self.reduction)

    @property
    def reduces(self) -> bool:
        return bool(self.reduction)

    @cached_property
    def accesses(self) -> Mapping[str, tuple[Load | Store, ...]]:
        """The distinct loads and stores of each buffer, in order."""
        found: dict[str, dict[tuple[object, ...], Load | Store]] = {}
        for member in self.members:
            for line in member.nest.body:
                if isinstance(line, Load | Store):
                    key = (type(line), line.offset, line.strides, line.indirect)
                    found.setdefault(line.buffer, {}).setdefault(key, line)
        return {name: tuple(lines.values()) for name, lines in found.items()}

    @cached_property
    def reads(self) -> frozenset[str]:
        """What must be there before it runs: whatever is loaded, and what is written over."""
        if self.extern is not None:
            return frozenset(ref.buffer for ref in self.extern.refs())
        named = self.accesses.items()
        return frozenset(name for name, lines in named if any(isinstance(line, Load) or line.over for line in lines))

    @cached_property
    def writes(self) -> frozenset[str]:
        if self.extern is not None:
            return frozenset(name for name in self.extern.outputs if name is not None)
        return frozenset(name for name, lines in self.accesses.items() if any(isinstance(line, Store) for line in lines))

    @cached_property
    def overwrites(self) -> frozenset[str]:
        """Buffers in which it replaces or adds to what an earlier step wrote."""
        return frozenset(name for name, lines in self.accesses.items() if any(isinstance(line, Store) and line.over for line in lines))

    @cached_property
    def writes_in_order(self) -> bool:
        return any(member.nest.writes_in_order for member in self.members)

    @cached_property
    def in_order(self) -> bool:
        """Whether the order of the reduction loops matters: a reduction gives the place of an extremum, or runs along them."""
        lines = (line for member in self.members for line in member.nest.body)
        return any(isinstance(line, Scan) or (isinstance(line, Reduce) and line.op.startswith("arg")) for line in lines)


def group_of(step: Nest | Extern, position: int) -> Group:
    """A group of one."""
    if isinstance(step, Extern):
        return Group(position, (), (), (), step, position, position)
    member = Member(step, bool(step.reduction), position)
    return Group(position, (member,), step.loops, step.reduction, None, position, position)


@dataclass(frozen=True, slots=True)
class Digit:
    """A loop of the common space: part ``times`` (a factor on the stride) of loop ``left`` of one side and of loop ``right`` of the
    other.
    """

    size: Size
    left: int
    left_times: Size
    right: int
    right_times: Size


def common_digits(
    left_sizes: Sequence[Size], left_strides: Sequence[Size], right_sizes: Sequence[Size], right_strides: Sequence[Size]
) -> list[Digit] | None:
    """Loops into which both sides can be split so that equal addresses meet, from the slowest-varying address to the fastest.

    Every loop longer than one must move the address, upwards; None if it does not or if the sizes do not divide each other. The present
    values of open sizes only say what to try: loops are paired where strides and sizes are equal for all values.
    """
    left, right = _by_stride(left_sizes, left_strides), _by_stride(right_sizes, right_strides)
    if any(hint(stride) <= 0 for stride, _, _ in (*left, *right)):
        return None
    digits: list[Digit] = []
    if any(size == 0 for _, size, _ in (*left, *right)):
        return None
    i = j = 0
    done_left: Size = 1
    done_right: Size = 1
    while i < len(left) and j < len(right):
        left_stride, left_size, left_axis = left[i]
        right_stride, right_size, right_axis = right[j]
        if left_stride * done_left != right_stride * done_right:
            return None
        rest_left, rest_right = left_size // done_left, right_size // done_right
        step = _divides_both(rest_left, rest_right)
        if step is None:
            return None
        digits.append(Digit(step, left_axis, done_left, right_axis, done_right))
        done_left, done_right = done_left * step, done_right * step
        if done_left == left_size:
            i, done_left = i + 1, 1
        if done_right == right_size:
            j, done_right = j + 1, 1
    return digits[::-1] if i == len(left) and j == len(right) else None


def _by_stride(sizes: Sequence[Size], strides: Sequence[Size]) -> list[tuple[Size, Size, int]]:
    """Stride, size and number of each loop that is not known to run once, by rising stride."""
    rows = [(stride, size, axis) for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)) if not is_one(size)]
    return sorted(rows, key=lambda row: (hint(row[0]), hint(row[1]), row[2]))


def _divides_both(one: Size, other: Size) -> Size | None:
    """The one of the two that divides the other, whatever the open sizes are."""
    if one == other or other % one == 0:
        return one
    return other if one % other == 0 else None


Sources = tuple[tuple[int, Size] | None, ...]
"""For each loop of a new space: the old loop and the factor on its stride; None where nothing depends on it."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """A space on which two groups can run together, and where each finds its loops in it. ``inner``: see ``Member``, None: as it was."""

    loops: tuple[Size, ...]
    reduction: tuple[Size, ...]
    first: Sources
    second: Sources
    inner_first: bool | None
    inner_second: bool | None

    def strides_first(self, strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return moved(strides, self.first)

    def strides_second(self, strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return moved(strides, self.second)

    def members(self, first: Group, second: Group) -> tuple[Member, ...]:
        """The nests of both groups on the common space, in the order of lowering."""
        both = [self._member(member, self.first, self.inner_first) for member in first.members]
        both += [self._member(member, self.second, self.inner_second) for member in second.members]
        return tuple(sorted(both, key=lambda member: member.position))

    def _member(self, member: Member, sources: Sources, inner: bool | None) -> Member:
        body = tuple(restride(line, lambda strides: moved(strides, sources)) for line in member.nest.body)
        nest = replace(member.nest, loops=self.loops, reduction=self.reduction, body=body)
        return Member(nest, member.inner if inner is None else inner, member.position)


def moved(strides: tuple[Size, ...], sources: Sources) -> tuple[Size, ...]:
    """Strides over the loops of a new space."""
    return tuple(0 if source is None else strides[source[0]] * source[1] for source in sources)


def alignments(first: Group, second: Group) -> Iterator[Alignment]:
    """Spaces for both groups, the most promising first: along a buffer that both touch, or point by point in order."""
    tried: set[tuple[Digit, ...]] = set()
    for left, right in _guides(first, second):
        digits = _digits(first, second, left, right)
        if digits is None or tuple(digits) in tried:
            continue
        tried.add(tuple(digits))
        aligned = _aligned(first, second, digits)
        if aligned is not None:
            yield aligned


def _guides(first: Group, second: Group) -> Iterator[tuple[Sequence[Size] | None, Sequence[Size] | None]]:
    """Pairs of strides to align along: of a buffer one side writes and the other reads, of one both read, of the flat order (None)."""
    shared: list[tuple[bool, Sequence[Size], Sequence[Size]]] = []
    for name, lines in second.accesses.items():
        for other in first.accesses.get(name, ())[:4]:
            for line in lines[:4]:
                if isinstance(line, Load) and not line.indirect and not (isinstance(other, Load) and other.indirect):
                    shared.append((isinstance(other, Load), other.strides, line.strides))
    shared.sort(key=lambda item: item[0])
    for _, left, right in shared[:12]:
        yield left, right
    yield None, None


def _digits(first: Group, second: Group, left: Sequence[Size] | None, right: Sequence[Size] | None) -> list[Digit] | None:
    """The common loops of both full spaces, or of the parallel ones where only one side reduces and the other has no more points."""
    left_sizes, right_sizes = (*first.loops, *first.reduction), (*second.loops, *second.reduction)
    if first.reduces != second.reduces and first.numel == second.numel:
        left_sizes, right_sizes = first.loops, second.loops
    elif prod(left_sizes) != prod(right_sizes):
        return None
    left_strides = row_major(left_sizes) if left is None else left[: len(left_sizes)]
    right_strides = row_major(right_sizes) if right is None else right[: len(right_sizes)]
    return common_digits(left_sizes, left_strides, right_sizes, right_strides)


def _aligned(first: Group, second: Group, digits: list[Digit]) -> Alignment | None:
    """The space made of the digits, in the loop order of the side that reduces (else of the first)."""
    if second.reduces and not first.reduces:
        turned = _aligned(second, first, [Digit(d.size, d.right, d.right_times, d.left, d.left_times) for d in digits])
        if turned is None:
            return None
        return Alignment(turned.loops, turned.reduction, turned.second, turned.first, turned.inner_second, turned.inner_first)
    outer = len(first.loops)
    ordered = sorted(digits, key=lambda digit: (digit.left, -hint(digit.left_times)))
    parallel = [digit for digit in ordered if digit.left < outer]
    reduced = [digit for digit in ordered if digit.left >= outer]
    only_outer = first.reduces and not second.reduces and first.numel == second.numel
    if second.reduces and any((digit.left < outer) != (digit.right < len(second.loops)) for digit in digits):
        return None
    if (first.in_order or second.in_order) and not only_outer and not _keeps_order(reduced):
        return None
    left: list[tuple[int, Size] | None] = [(digit.left, digit.left_times) for digit in parallel]
    right: list[tuple[int, Size] | None] = [(digit.right, digit.right_times) for digit in parallel]
    if only_outer:
        left += [(outer + axis, 1) for axis in range(len(first.reduction))]
        right += [None] * len(first.reduction)
    else:
        left += [(digit.left, digit.left_times) for digit in reduced]
        right += [(digit.right, digit.right_times) for digit in reduced]
    loops = tuple(digit.size for digit in parallel)
    reduction = first.reduction if only_outer else tuple(digit.size for digit in reduced)
    inner = None if second.reduces else False if only_outer else first.reduces
    return Alignment(loops, reduction, tuple(left), tuple(right), None, inner)


def _keeps_order(reduced: Sequence[Digit]) -> bool:
    """Whether the reduction loops, on the second side too, stand in their old order."""
    keys = [(digit.right, -hint(digit.right_times)) for digit in reduced]
    return keys == sorted(keys)
