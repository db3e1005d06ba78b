"""What lies below generated code: TTIR, TTGIR, LLVM IR, PTX and SASS of a Triton kernel for any target, the x86 code of a C++ kernel.

``assemble_stepwise(source, target)`` yields a ``Level`` (stage, text, marks, facts) as soon as it exists; ``assemble`` collects them;
``assemble_many`` yields the levels of several kernels; ``disassemble_cpp(library, unit, kernels)`` gives the ``sass`` level of C++ kernels.
``warm(target)`` loads what the first compilation would have to load. No GPU is needed.
"""

from compiler.assembly.levels import Assembly, Level, assemble, assemble_many, assemble_stepwise, warm
from compiler.assembly.occupancy import Occupancy, occupancy
from compiler.assembly.x86 import disassemble_cpp

__all__ = ["Assembly", "Level", "Occupancy", "assemble", "assemble_many", "assemble_stepwise", "disassemble_cpp", "occupancy", "warm"]
