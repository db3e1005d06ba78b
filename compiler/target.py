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


@dataclass(frozen=True, slots=True)
class Reported:
    """What the driver of one GPU of a target says of it beyond the target's own facts; ``registers`` as it counts them.

    Source: the makers' data sheets and architecture papers.
    """

    model: str
    memory: int
    l2: int
    major: int
    minor: int
    arch: str = ""
    registers: int = 65536
    shared_per_block: int = 48 * _KB


_MB, _GB = _KB**2, _KB**3
REPORTED: dict[str, Reported] = {
    "sm_80": Reported("NVIDIA A100-SXM4-80GB", 80 * _GB, 40 * _MB, 8, 0),
    "sm_86": Reported("NVIDIA GeForce RTX 3090", 24 * _GB, 6 * _MB, 8, 6),
    "sm_89": Reported("NVIDIA GeForce RTX 4090", 24 * _GB, 72 * _MB, 8, 9),
    "sm_90": Reported("NVIDIA H200", 141 * _GB, 50 * _MB, 9, 0),
    "sm_100": Reported("NVIDIA B200", 180 * _GB, 126 * _MB, 10, 0),
    "sm_120": Reported("NVIDIA GeForce RTX 5090", 32 * _GB, 96 * _MB, 12, 0),
    "gfx942": Reported("AMD Instinct MI300X", 192 * _GB, 4 * _MB, 9, 4, "gfx942:sramecc+:xnack-", shared_per_block=64 * _KB),
}
