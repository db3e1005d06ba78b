"""The stages below generated code, ``ttir`` to ``sass``: each is recorded as soon as all kernels of a program have reached it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.assembly.levels import Level, assemble_many
from compiler.assembly.x86 import disassemble_cpp
from compiler.codegen import KernelSource, Sources
from compiler.errors import CompileError
from compiler.ir import Program
from compiler.recorder import Recorder
from compiler.runtime.build import Library
from compiler.target import Target
from compiler.trace import Kernel, Part, StageName

LEVELS: tuple[StageName, ...] = ("ttir", "ttgir", "llir", "ptx", "sass")
NO_KERNELS = "This program has no kernels of its own: every step is a call of a library."
NOT_ON_CPU = "The CPU's kernels are C++, which g++ compiles without this stage. Their machine code is under 'sass'."
NO_PTX = "AMD GPUs have no PTX: the compiler goes from LLVM IR to the machine's own code, which is under 'sass'."


def record_levels(
    recorder: Recorder, region: int, part: Part, program: Program, sources: Sources, target: Target, library: Library | None
) -> None:
    """Record every level for every kernel, or say why there is none.

    Raises CompileError where a compiler below gives up; the levels above it stand.
    """
    kernels = [kernel for kernel in sources.kernels if not kernel.empty]
    skipped = {name: reason for name in LEVELS if (reason := _why_not(name, kernels, target))}
    for name, reason in skipped.items():
        with recorder.stage(region, name, part) as stage:
            stage.skip(reason)
    reached: dict[str, list[Level]] = {name: [] for name in LEVELS if name not in skipped}
    try:
        for level in _levels(kernels, sources, target, library):
            reached[level.stage].append(level)
            if len(reached[level.stage]) == len(kernels):
                _record(recorder, region, part, program, kernels, reached.pop(level.stage))
    except CompileError as error:
        with recorder.stage(region, error.stage, part):  # type: ignore[arg-type]  # it is one of LEVELS
            raise


def _why_not(name: str, kernels: Sequence[KernelSource], target: Target) -> str:
    if not kernels:
        return NO_KERNELS
    if not target.is_gpu and name != "sass":
        return NOT_ON_CPU
    return NO_PTX if target.kind == "hip" and name == "ptx" else ""


def _levels(kernels: Sequence[KernelSource], sources: Sources, target: Target, library: Library | None) -> Iterator[Level]:
    if not kernels:
        return
    if target.is_gpu:
        yield from assemble_many(kernels, target)
    elif library is not None and sources.unit is not None:
        yield from disassemble_cpp(library, sources.unit, kernels)


def _record(
    recorder: Recorder, region: int, part: Part, program: Program, kernels: Sequence[KernelSource], levels: Sequence[Level]
) -> None:
    by_kernel = {level.kernel: level for level in levels}
    with recorder.stage(region, levels[0].stage, part) as stage:  # type: ignore[arg-type]  # it is one of LEVELS
        stage.origins = program.graph.origins
        for kernel in kernels:
            level = by_kernel[kernel.name]
            stage.section(kernel.name, level.text, level.language, level.marks)
            if level.facts:
                record = Kernel(name=kernel.name, kind=kernel.language, part=part, facts=level.facts, origins=(kernel.origin,))
                stage.kernels.append(record)
        stage.millis = sum(level.millis for level in levels)
