"""On what a run ran: versions, device, processor, clocks where they can be read."""

from __future__ import annotations

import functools
import os
import platform
from importlib import metadata
from pathlib import Path

import torch

from compiler.target import Target
from compiler.trace import Scalar


def environment(target: Target) -> dict[str, Scalar]:
    """Facts for the trace's head."""
    facts: dict[str, Scalar] = {
        "torch": torch.__version__,
        "triton": version("triton"),
        "fuselab": version("fuselab"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "compiled_for": f"{target.name} ({target.example})",
    }
    gpu = target.is_gpu and torch.cuda.is_available()
    facts["device"] = torch.cuda.get_device_name(0) if gpu else cpu_model()
    if gpu:
        facts["cuda"] = torch.version.cuda or torch.version.hip or ""
    else:
        facts["clock_mhz"] = cpu_clock()
    return facts


@functools.cache
def version(package: str) -> str:
    """The installed version, "" without the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "0.1.0" if package == "fuselab" else ""


@functools.cache
def cpu_model() -> str:
    for line in _cpuinfo():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cpu_clock() -> float | None:
    """The first core's clock at this moment, None where the system does not tell."""
    for line in _cpuinfo():
        if line.startswith("cpu MHz"):
            return float(line.partition(":")[2])
    return None


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
