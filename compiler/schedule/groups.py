"""Groups of nests on one iteration space, and how two groups are brought onto a common one by splitting and reordering loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from compiler.ir import Extern, Load, Nest, Store
from compiler.lowering.nests import restride, row_major


@dataclass(frozen=True, slots=True)
class Member:
    """A nest whose addresses have one stride for each loop of its group; ``inner``: it runs at every point of the reduction loops."""

    nest: Nest
    inner: bool
    position: int


@dataclass(frozen=True, slots=True)
class Group:
    """Nests that run in one kernel, or one extern call. ``first`` and ``last`` are positions in the order of lowering."""

    id: int
    members: tuple[Member, ...]
    loops: tuple[int, ...]
    reduction: tuple[int, ...]
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
    def numel(self) -> int:
        return prod(self.loops)

    @property
    def rnumel(self) -> int:
        return prod(self.reduction)

    @property
    def reduces(self) -> bool:
        return bool(self.reduction)

    def accesses(self) -> Iterator[Load | Store]:
        for member in self.members:
            for line in member.nest.body:
                if isinstance(line, Load | Store):
                    yield line

    def reads(self) -> set[str]:
        if self.extern is not None:
            return {ref.buffer for ref in self.extern.refs()}
        return {line.buffer for line in self.accesses() if isinstance(line, Load)}

    def writes(self) -> set[str]:
        if self.extern is not None:
            return {name for name in self.extern.outputs if name is not None}
        return {line.buffer for line in self.accesses() if isinstance(line, Store)}


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

    size: int
    left: int
    left_times: int
    right: int
    right_times: int


def common_digits(
    left_sizes: Sequence[int], left_strides: Sequence[int], right_sizes: Sequence[int], right_strides: Sequence[int]
) -> list[Digit] | None:
    """Loops into which both sides can be split so that equal addresses meet, from the slowest-varying address to the fastest.

    Every loop longer than one must move the address, upwards; None if it does not or if the sizes do not divide each other.
    """
    left = sorted((stride, size, axis) for axis, (size, stride) in enumerate(zip(left_sizes, left_strides, strict=True)) if size != 1)
    right = sorted((stride, size, axis) for axis, (size, stride) in enumerate(zip(right_sizes, right_strides, strict=True)) if size != 1)
    if any(stride <= 0 for stride, _, _ in (*left, *right)):
        return None
    digits: list[Digit] = []
    i = j = 0
    done_left = done_right = 1
    while i < len(left) and j < len(right):
        left_stride, left_size, left_axis = left[i]
        right_stride, right_size, right_axis = right[j]
        if left_stride * done_left != right_stride * done_right:
            return None
        rest_left, rest_right = left_size // done_left, right_size // done_right
        step = min(rest_left, rest_right)
        if rest_left % step or rest_right % step:
            return None
        digits.append(Digit(step, left_axis, done_left, right_axis, done_right))
        done_left, done_right = done_left * step, done_right * step
        if done_left == left_size:
            i, done_left = i + 1, 1
        if done_right == right_size:
            j, done_right = j + 1, 1
    return digits[::-1] if i == len(left) and j == len(right) else None


Sources = tuple[tuple[int, int] | None, ...]
"""For each loop of a new space: the old loop and the factor on its stride; None where nothing depends on it."""


def moved_to(group: Group, loops: tuple[int, ...], reduction: tuple[int, ...], sources: Sources, *, inner: bool | None = None) -> Group:
    """The group on another space. ``inner`` says for all members whether they run at every point of the reduction loops."""

    def moved(strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(0 if source is None else strides[source[0]] * source[1] for source in sources)

    members = tuple(
        replace(
            member,
            inner=member.inner if inner is None else inner,
            nest=replace(member.nest, loops=loops, reduction=reduction, body=tuple(restride(line, moved) for line in member.nest.body)),
        )
        for member in group.members
    )
    return replace(group, members=members, loops=loops, reduction=reduction)


@dataclass(frozen=True, slots=True)
class Aligned:
    """Two groups on one space."""

    first: Group
    second: Group


def alignments(first: Group, second: Group) -> Iterator[Aligned]:
    """Ways to bring both groups onto one space, the most promising first: along a buffer that both touch, or point by point in order."""
    tried: set[tuple[Digit, ...]] = set()
    for left, right in _guides(first, second):
        digits = _digits(first, second, left, right)
        if digits is None or tuple(digits) in tried:
            continue
        tried.add(tuple(digits))
        aligned = _aligned(first, second, digits)
        if aligned is not None:
            yield aligned


def _guides(first: Group, second: Group) -> Iterator[tuple[Sequence[int] | None, Sequence[int] | None]]:
    """Pairs of strides to align along: of a buffer that one side writes and the other reads, of one that both read, of the flat order
    (None).
    """
    by_name: dict[str, list[Load | Store]] = {}
    for line in first.accesses():
        if not (isinstance(line, Load) and line.indirect):
            by_name.setdefault(line.buffer, []).append(line)
    shared: list[tuple[bool, Sequence[int], Sequence[int]]] = []
    for line in second.accesses():
        if isinstance(line, Load) and not line.indirect:
            for other in by_name.get(line.buffer, [])[:4]:
                shared.append((isinstance(other, Load), other.strides, line.strides))
    shared.sort(key=lambda item: item[0])
    for _, left, right in shared[:12]:
        yield left, right
    yield None, None


def _digits(first: Group, second: Group, left: Sequence[int] | None, right: Sequence[int] | None) -> list[Digit] | None:
    """The common loops of the two groups' full spaces, or of the parallel ones where only one side reduces and the other has no more
    points.
    """
    left_sizes, right_sizes = (*first.loops, *first.reduction), (*second.loops, *second.reduction)
    if first.reduces != second.reduces and first.numel == second.numel:
        left_sizes, right_sizes = first.loops, second.loops
    elif prod(left_sizes) != prod(right_sizes):
        return None
    left_strides = row_major(left_sizes) if left is None else left[: len(left_sizes)]
    right_strides = row_major(right_sizes) if right is None else right[: len(right_sizes)]
    return common_digits(left_sizes, left_strides, right_sizes, right_strides)


def _aligned(first: Group, second: Group, digits: list[Digit]) -> Aligned | None:
    """Both groups on the digits, in the loop order of the side that reduces (else of the first)."""
    if second.reduces and not first.reduces:
        swapped = [Digit(d.size, d.right, d.right_times, d.left, d.left_times) for d in digits]
        turned = _aligned(second, first, swapped)
        return None if turned is None else Aligned(turned.second, turned.first)
    outer = len(first.loops)
    ordered = sorted(digits, key=lambda digit: (digit.left, -digit.left_times))
    parallel = [digit for digit in ordered if digit.left < outer]
    reduced = [digit for digit in ordered if digit.left >= outer]
    only_outer = first.reduces and not second.reduces and first.numel == second.numel
    if second.reduces and any((digit.left < outer) != (digit.right < len(second.loops)) for digit in digits):
        return None
    ordered_reduction = _position_matters(first) or _position_matters(second)
    if ordered_reduction and not only_outer and not _keeps_order(reduced):
        return None
    left_sources: list[tuple[int, int] | None] = [(digit.left, digit.left_times) for digit in parallel]
    right_sources: list[tuple[int, int] | None] = [(digit.right, digit.right_times) for digit in parallel]
    loops = tuple(digit.size for digit in parallel)
    if only_outer:
        reduction = first.reduction
        left_sources += [(outer + axis, 1) for axis in range(len(reduction))]
        right_sources += [None] * len(reduction)
    else:
        reduction = tuple(digit.size for digit in reduced)
        left_sources += [(digit.left, digit.left_times) for digit in reduced]
        right_sources += [(digit.right, digit.right_times) for digit in reduced]
    inner = None if second.reduces else False if only_outer else first.reduces
    return Aligned(
        moved_to(first, loops, reduction, tuple(left_sources)), moved_to(second, loops, reduction, tuple(right_sources), inner=inner)
    )


def _position_matters(group: Group) -> bool:
    """Whether a reduction of the group gives the place of an extremum."""
    return any(getattr(line, "op", "").startswith("arg") for member in group.members for line in member.nest.body)


def _keeps_order(reduced: Sequence[Digit]) -> bool:
    """Whether the reduction loops, on the second side too, stand in their old order."""
    keys = [(digit.right, -digit.right_times) for digit in reduced]
    return keys == sorted(keys)
