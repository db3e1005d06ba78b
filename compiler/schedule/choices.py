"""Preference only: which legal fusions are worth it and in which order, and how a kernel is cut up. Nothing here may change an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

from compiler.ir import Buffer, Load, Phase, Store, Tiling, item_bytes
from compiler.options import Policy
from compiler.schedule.groups import Alignment, Group
from compiler.sizes import Size, Sym, hint
from compiler.target import Target

DOMINANCE = 16  # a pair that saves this many times more bytes goes first, whatever its kind


@dataclass(frozen=True, slots=True)
class FusionScore:
    """What fusing a pair is worth, compared as Inductor compares: traffic alone where it differs by more than 16 times, else field by
    field.

    ``same_kind``: 1 if both or neither reduce. ``saved_bytes``: traffic that one kernel does not have and two would. ``shared_buffers``:
    buffers both touch. ``proximity``: minus the distance in the graph. ``compactness``: minus the number of nests of the fused kernel.
    """

    same_kind: int
    saved_bytes: int
    shared_buffers: int
    proximity: int
    compactness: int

    def __lt__(self, other: FusionScore) -> bool:
        low, high = sorted((self.saved_bytes, other.saved_bytes))
        if high > DOMINANCE * low:
            return self.saved_bytes < other.saved_bytes
        return self._key() < other._key()

    def _key(self) -> tuple[int, int, int, int, int]:
        return (self.same_kind if self.saved_bytes else 0, self.saved_bytes, self.shared_buffers, self.proximity, self.compactness)


def access_bytes(line: Load | Store, loops: tuple[Size, ...], buffer: Buffer) -> int:
    """Distinct bytes that an access touches over all loops; at most the buffer's."""
    item = item_bytes(buffer.dtype)
    points = prod(
        hint(size) for size, stride in zip(loops, line.strides, strict=True) if stride or (isinstance(line, Load) and line.indirect)
    )
    return min(points * item, max(hint(buffer.numel), 1) * item)


def score_fusion(first: Group, second: Group, space: Alignment, buffers: Mapping[str, Buffer], readers: Mapping[str, int]) -> FusionScore:
    """The score of two groups on a common space. ``readers`` counts for each buffer the groups and results that read it."""
    loops = (*space.loops, *space.reduction)
    saved = 0
    shared = first.accesses.keys() & second.accesses.keys()
    for name in shared:
        seen = {(line.offset, space.strides_first(line.strides)): line for line in first.accesses[name]}
        counted: set[tuple[Size, tuple[Size, ...]]] = set()
        for line in second.accesses[name]:
            strides = space.strides_second(line.strides)
            key = line.offset, strides
            if key not in seen or key in counted:
                continue
            counted.add(key)
            size = access_bytes(replace(line, strides=strides), loops, buffers[name])
            inside = (name in first.reads) + (name in second.reads)
            dies = isinstance(seen[key], Store) and readers.get(name, 0) == inside
            saved += 2 * size if dies else size
    distance = max(abs(first.first - second.last), abs(second.first - first.last))
    return FusionScore(int(first.reduces == second.reduces), saved, len(shared), -distance, -len(first.members) - len(second.members))


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a policy goes. ``distance`` bounds the fusion of kernels that do not depend on each other."""

    nests: int
    distance: int
    least_saved_bytes: int


LIMITS: dict[Policy, Limits] = {"none": Limits(1, 0, 0), "greedy": Limits(64, 64, 1), "max": Limits(1024, 1 << 30, 0)}


@dataclass(frozen=True, slots=True)
class Candidate:
    first: Group
    second: Group
    depends: bool
    score: FusionScore
    limits: Limits


def no_shared_data(candidate: Candidate) -> bool:
    """They share no element at the same point of the loops, so that one kernel would move as many bytes as two."""
    return candidate.score.saved_bytes < candidate.limits.least_saved_bytes


def too_many_nests(candidate: Candidate) -> bool:
    """The fused kernel would hold more nests than the policy allows: its registers would run out."""
    return len(candidate.first.members) + len(candidate.second.members) > candidate.limits.nests


def too_far_apart(candidate: Candidate) -> bool:
    """They do not depend on each other and lie far apart in the graph: fusing them would keep buffers alive for longer."""
    return not candidate.depends and -candidate.score.proximity > candidate.limits.distance


PREFERENCES: tuple[Callable[[Candidate], bool], ...] = (no_shared_data, too_many_nests, too_far_apart)


# -- how a kernel is cut up

PERSISTENT_ELEMENTS = 16384  # the longest row that one block holds in registers
SCRATCH_BYTES = 256 << 10  # what a row of scratch memory may take on a CPU: it shall stay in the second-level cache


def power_of_two(size: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, size - 1).bit_length()


def contiguous_in_reduction(accesses: list[Load | Store], loops: int) -> bool:
    """Whether neighbouring elements in memory lie along the reduction loops for most of the large accesses."""
    along = sum(1 for line in accesses if line.strides[loops:] and line.strides[-1] == 1)
    across = sum(1 for line in accesses if any(line.strides[loops:]) and line.strides[:loops] and line.strides[loops - 1] == 1)
    return along >= across


def prefer_persistent(rnumel: Size, reduced_phases: int, along: bool, kept: int, target: Target) -> bool:
    """Whether values that several reduced phases use are kept, rather than computed again. A block holds no row of open length."""
    if not target.is_gpu:
        return reduced_phases > 1 and hint(rnumel) * 8 * max(1, kept) <= SCRATCH_BYTES
    if isinstance(rnumel, Sym):
        return False
    return rnumel <= (PERSISTENT_ELEMENTS if along and reduced_phases > 1 else 1024 if along else 64)


OPEN_ROW = 256  # elements of a row of open length that a block takes at once, if there are not more now
OPEN = 1 << 30  # more than any block: what an open size may grow to


def choose_tiling(numel: Size, rnumel: Size, reduces: bool, persistent: bool, along: bool, target: Target) -> Tiling:
    """Block sizes and warps; only GPUs have them. Blocks are not cut down to the present value of an open size."""
    if not target.is_gpu:
        return Tiling(1, 1, 1)
    most = power_of_two(numel) if isinstance(numel, int) else OPEN
    if not reduces:
        block = min(1024, most)
        if hint(numel) // 256 < 2 * target.multiprocessors:
            block = min(block, 256)
        return Tiling(block, 1, warps=max(1, min(4, block // target.warp)))
    if persistent:
        width = power_of_two(hint(rnumel))
        block = max(1, min((1024 if along else 4096) // width, most))
        return Tiling(block, width, warps=_warps(block * width, target))
    if along:
        width = min(4096, power_of_two(rnumel) if isinstance(rnumel, int) else max(OPEN_ROW, power_of_two(hint(rnumel))))
        return Tiling(1, width, warps=_warps(width, target))
    block = min(64, most)
    width = min(64, power_of_two(rnumel) if isinstance(rnumel, int) else OPEN)
    return Tiling(block, width, warps=_warps(block * width, target))


def _warps(elements: int, target: Target) -> int:
    """About eight elements a thread, and at most 32 warps of 32 threads."""
    return max(1, min(1024 // target.warp, power_of_two(elements) // (8 * target.warp)))


def reduced_phases(phases: tuple[Phase, ...]) -> int:
    return sum(phase.reduced for phase in phases)
