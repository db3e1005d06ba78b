"""What the generators return: the text of each kernel with its marks, and what a launch of it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compiler.codegen.writer import Marks
from compiler.sizes import Size


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A generated kernel. ``text`` is a whole Triton module, or one C++ function; ``marks`` has the origins of each of its lines.

    ``arguments`` names the buffers in the order of the launch, ``parameters`` what the text calls them, ``dtypes`` their torch dtypes.
    ``sizes``: what the text calls the open sizes that follow the buffers, and what each of them is; ``wide``: they need 64 bits.
    For Triton: ``grid`` programs, ``constants`` are the tl.constexpr parameters, and the function starts at line ``definition`` (from 0).
    """

    name: str
    language: Literal["triton", "cpp"]
    text: str
    marks: Marks
    arguments: tuple[str, ...]
    parameters: tuple[str, ...]
    dtypes: tuple[str, ...]
    origin: int
    grid: Size = 1
    constants: tuple[tuple[str, int], ...] = ()
    warps: int = 4
    stages: int = 1
    definition: int = 0
    threads: int = 1
    sizes: tuple[tuple[str, Size], ...] = ()
    wide: bool = False

    @property
    def empty(self) -> bool:
        """A kernel without iterations, which is never launched."""
        return self.grid == 0


@dataclass(frozen=True, slots=True)
class CppUnit:
    """All C++ kernels of a program as one translation unit; ``starts`` has the line (from 0) at which each kernel's text begins."""

    text: str
    marks: Marks
    starts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class WrapperSource:
    """The Python module that runs a program: ``call(inputs) -> outputs``."""

    text: str
    marks: Marks


@dataclass(frozen=True, slots=True)
class Sources:
    """All the text of one program. ``unit`` is None where no kernel is C++."""

    kernels: tuple[KernelSource, ...]
    unit: CppUnit | None
    wrapper: WrapperSource

    def kernel(self, name: str) -> KernelSource:
        return next(kernel for kernel in self.kernels if kernel.name == name)
