"""A GPU that is described but not here: while ``answering`` is open, Inductor's and Triton's questions about the device are answered for a target.

The only place that puts such answers into torch. Nothing happens at import, and everything is put back afterwards.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch

from compiler.target import REPORTED, Target

DEVICE = torch.device("cuda", 0)


def properties(target: Target) -> types.SimpleNamespace:
    """What ``torch.cuda.get_device_properties`` says on such a machine."""
    said = REPORTED[target.name]
    return types.SimpleNamespace(
        name=said.model,
        major=said.major,
        minor=said.minor,
        multi_processor_count=target.multiprocessors,
        total_memory=said.memory,
        warp_size=target.warp,
        max_threads_per_multi_processor=target.threads_per_multiprocessor,
        max_threads_per_block=1024,
        regs_per_multiprocessor=said.registers,
        shared_memory_per_block=said.shared_per_block,
        shared_memory_per_block_optin=target.shared_per_block,
        shared_memory_per_multiprocessor=target.shared_per_multiprocessor,
        L2_cache_size=said.l2,
        gcnArchName=said.arch,
        is_integrated=0,
    )
