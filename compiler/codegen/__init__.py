"""From a scheduled program to text: Triton or C++ for each kernel, and the wrapper module that runs them.

``generate(program, target, constants)`` returns ``Sources``: ``kernels`` (each with ``text``, ``marks`` into ``program.graph.origins``, its
launch), ``unit`` (all C++ as one translation unit) and ``wrapper``. ``runtime.launch.load_program`` runs them; ``assembly`` goes below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from compiler.codegen.cpp import cpp_kernel, cpp_unit
from compiler.codegen.sources import CppUnit, KernelSource, Sources, WrapperSource
from compiler.codegen.triton import triton_source
from compiler.codegen.wrapper import wrapper_source
from compiler.ir import Kernel, Program
from compiler.target import Target

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CppUnit", "KernelSource", "Sources", "WrapperSource", "generate", "generate_kernel"]


def generate_kernel(kernel: Kernel, program: Program, target: Target) -> KernelSource:
    """The text of one kernel for the target: Triton on a GPU, C++ on the CPU."""
    graph = program.graph
    if target.is_gpu:
        return triton_source(kernel, graph.buffers, target, graph.origins)
    return cpp_kernel(kernel, graph.buffers, graph.origins)


def generate(program: Program, target: Target, constants: Mapping[str, Tensor] | None = None) -> Sources:
    """All the text of a program. ``constants``: the tensors that the graph holds, by name."""
    kernels = tuple(generate_kernel(step, program, target) for step in program.steps if isinstance(step, Kernel))
    cpp = [kernel for kernel in kernels if kernel.language == "cpp"]
    unit = cpp_unit(cpp) if cpp else None
    return Sources(kernels, unit, wrapper_source(program, kernels, unit, target, constants))
