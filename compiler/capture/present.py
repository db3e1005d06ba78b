"""Whether a target's device is in this machine."""

from __future__ import annotations

import torch

from compiler.target import TARGETS, Target


def present_here(target: Target) -> bool:
    """Code for the target can run here: it is the CPU, or the first GPU has its architecture."""
    return not target.is_gpu or gpu_name() == target.name


def gpu_name() -> str:
    """The target name of the first GPU, "" without one."""
    if not torch.cuda.is_available():
        return ""
    if torch.version.hip:
        return str(torch.cuda.get_device_properties(0).gcnArchName).split(":")[0]
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}"


def native_target() -> Target:
    """The GPU that is here, if code can be generated for it, or else the CPU."""
    return TARGETS.get(gpu_name(), TARGETS["cpu"])
