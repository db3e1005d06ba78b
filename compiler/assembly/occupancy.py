"""How many blocks of a kernel fit on a multiprocessor at once, and what limits them: the CUDA occupancy calculator's rules, and CDNA3's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compiler.target import Target

RESERVED_SHARED = 1024  # each block on compute capability 8.0 and later
SHARED_GRANULE = 128
REGISTER_GRANULE = 256  # registers of one warp are allocated in units of this many
WARP_GRANULE = 4  # a multiprocessor has four partitions, over which warps are spread evenly
AMD_REGISTER_GRANULE = 8
AMD_LANES_REGISTERS = 512  # vector registers that the waves of one SIMD share
AMD_WAVES_PER_SIMD = 8
AMD_SHARED_GRANULE = 512

Limit = Literal["threads", "registers", "shared memory", "blocks", "nothing fits"]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """``fraction``: resident warps over the most that a multiprocessor can hold; ``limit``: the resource that ends first."""

    blocks: int
    warps: int
    fraction: float
    limit: Limit


def occupancy(target: Target, registers: int, warps: int, shared: int) -> Occupancy:
    """For blocks of ``warps`` warps with ``registers`` registers a thread and ``shared`` bytes of shared memory of their own."""
    most = target.threads_per_multiprocessor // target.warp
    bounds: dict[Limit, int] = {
        "threads": most // warps,
        "registers": _warps_by_registers(target, registers, most) // warps,
        "shared memory": _blocks_by_shared(target, shared),
        "blocks": target.blocks_per_multiprocessor,
    }
    limit = min(bounds, key=lambda name: bounds[name])
    blocks = bounds[limit]
    return Occupancy(blocks, blocks * warps, blocks * warps / most, limit if blocks else "nothing fits")


def _up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _warps_by_registers(target: Target, registers: int, most: int) -> int:
    if registers == 0:
        return most
    if target.kind == "hip":
        return 4 * min(AMD_WAVES_PER_SIMD, AMD_LANES_REGISTERS // _up(registers, AMD_REGISTER_GRANULE))
    return target.registers // _up(registers * target.warp, REGISTER_GRANULE) // WARP_GRANULE * WARP_GRANULE


def _blocks_by_shared(target: Target, shared: int) -> int:
    if target.kind == "hip":
        return target.shared_per_multiprocessor // _up(shared, AMD_SHARED_GRANULE) if shared else target.blocks_per_multiprocessor
    if shared > target.shared_per_block:
        return 0
    return target.shared_per_multiprocessor // (_up(shared, SHARED_GRANULE) + RESERVED_SHARED)
