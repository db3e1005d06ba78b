"""Occupancy against numbers worked out by hand from NVIDIA's rules (CUDA C++ Programming Guide, compute capabilities) and CDNA3's."""

from __future__ import annotations

import pytest

from compiler.assembly import occupancy
from compiler.target import TARGETS


@pytest.mark.parametrize(
    ("target", "registers", "warps", "shared", "blocks", "fraction", "limit"),
    [
        # A100, 64 registers: a warp takes 2048, 65536 / 2048 = 32 warps = 8 blocks of 4, of 64 warps.
        ("sm_80", 64, 4, 0, 8, 0.5, "registers"),
        # 33 registers: 33 * 32 = 1056 becomes 1280; 51 warps, in fours 48; 12 blocks of 4.
        ("sm_80", 33, 4, 0, 12, 0.75, "registers"),
        # 255 registers: 8160 becomes 8192; 8 warps; one block of 8.
        ("sm_80", 255, 8, 0, 1, 0.125, "registers"),
        # 32 registers and 4 warps: 16 blocks fill 64 warps; registers allow the same.
        ("sm_80", 32, 4, 0, 16, 1.0, "threads"),
        # One warp a block: 32 blocks are the most.
        ("sm_80", 16, 1, 0, 32, 0.5, "blocks"),
        # RTX 3090: 16 blocks of 2 warps of 48.
        ("sm_86", 32, 2, 0, 16, 32 / 48, "blocks"),
        # H100: 48 KiB and 1 KiB reserved: 228 / 49 = 4 blocks of 8 warps.
        ("sm_90", 32, 8, 48 * 1024, 4, 0.5, "shared memory"),
        # A100: the same is 164 / 49 = 3.
        ("sm_80", 32, 8, 48 * 1024, 3, 24 / 64, "shared memory"),
        # L4: 60 KiB: 100 / 61 = 1 block of 4 warps of 48.
        ("sm_89", 32, 4, 60 * 1024, 1, 4 / 48, "shared memory"),
        # More than a block may have.
        ("sm_89", 32, 4, 100 * 1024, 0, 0.0, "nothing fits"),
        # 1024 threads with 65 registers: 72 * 32 = 2304 a warp, 28 warps: no block of 32.
        ("sm_90", 65, 32, 0, 0, 0.0, "nothing fits"),
        # MI300X: 128 vector registers: 512 / 128 = 4 waves on each of 4 SIMDs: 4 blocks of 4 waves, of 32.
        ("gfx942", 128, 4, 0, 4, 0.5, "registers"),
        # 65 become 72: 7 waves a SIMD, 28 in all.
        ("gfx942", 65, 4, 0, 7, 28 / 32, "registers"),
        # 24 KiB of 64: 2 blocks.
        ("gfx942", 32, 4, 24 * 1024, 2, 0.25, "shared memory"),
    ],
)  # fmt: skip
def test_worked_examples(target: str, registers: int, warps: int, shared: int, blocks: int, fraction: float, limit: str) -> None:
    found = occupancy(TARGETS[target], registers, warps, shared)
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.warps == blocks * warps
    assert found.fraction == pytest.approx(fraction)
