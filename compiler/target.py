"""What code is generated for: the CPU, or a GPU architecture with the facts that decide tile shapes and occupancy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compiler.errors import TargetError


@dataclass(frozen=True, slots=True)
class Target:
    """A target and its device facts.

    Sizes are in bytes per streaming multiprocessor (compute unit on AMD) or block; ``registers`` are 32-bit registers of one
    multiprocessor.
    Source for NVIDIA: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"; for gfx942: the CDNA3 ISA
    reference.
    """

    name: str
    kind: Literal["cpu", "cuda", "hip"]
    device: str
    example: str
    capability: int = 0
    warp: int = 32
    multiprocessors: int = 1
    threads_per_multiprocessor: int = 1
    blocks_per_multiprocessor: int = 1
    registers: int = 0
    shared_per_multiprocessor: int = 0
    shared_per_block: int = 0

    @property
    def is_gpu(self) -> bool:
        return self.kind != "cpu"


_KB = 1024
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("cpu", "cpu", "cpu", "this machine's CPU"),
        Target("sm_80", "cuda", "cuda", "A100", 80, 32, 108, 2048, 32, 65536, 164 * _KB, 163 * _KB),
        Target("sm_86", "cuda", "cuda", "RTX 3090", 86, 32, 82, 1536, 16, 65536, 100 * _KB, 99 * _KB),
        Target("sm_89", "cuda", "cuda", "L4, RTX 4090", 89, 32, 128, 1536, 24, 65536, 100 * _KB, 99 * _KB),
        Target("sm_90", "cuda", "cuda", "H100, H200", 90, 32, 132, 2048, 32, 65536, 228 * _KB, 227 * _KB),
        Target("sm_100", "cuda", "cuda", "B200", 100, 32, 148, 2048, 32, 65536, 228 * _KB, 227 * _KB),
        Target("sm_120", "cuda", "cuda", "RTX 5090", 120, 32, 170, 1536, 24, 65536, 100 * _KB, 99 * _KB),
        Target("gfx942", "hip", "cuda", "MI300X", 942, 64, 304, 2048, 32, 131072, 64 * _KB, 64 * _KB),
    )
}


def find_target(name: str) -> Target:
    """The target of that name.

    Raises TargetError, which lists the names that exist.
    """
    if name not in TARGETS:
        raise TargetError(f"no target {name!r}; targets are {', '.join(TARGETS)}")
    return TARGETS[name]
