"""Loads the generated text of a program into this process: a callable on tensors, and each of its steps by itself for timing."""

from __future__ import annotations

import ctypes
import itertools
import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compiler.codegen.sources import Sources
from compiler.codegen.wrapper import call_source
from compiler.ir import Extern, Kernel, Load, Program
from compiler.runtime.build import Library, build_cpp
from compiler.runtime.cache import KernelCache
from compiler.target import Target

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One launch or library call with the arguments that it had; calling it runs it again."""

    name: str
    function: Callable[..., object]
    arguments: tuple[object, ...]
    keywords: Mapping[str, object]

    def __call__(self) -> object:
        return self.function(*self.arguments, **self.keywords)


@dataclass(slots=True)
class LoadedProgram:
    """``program(inputs)`` returns the list of results. ``library`` says how the C++ was built, None without any."""

    program: Program
    sources: Sources
    target: Target
    library: Library | None
    namespace: dict[str, Any]

    def __call__(self, inputs: Sequence[object]) -> list[object]:
        results: list[object] = self.namespace["call"](list(inputs))
        return results

    def steps(self, inputs: Sequence[object]) -> Iterator[tuple[str, RecordedStep]]:
        """Runs the program once, then yields each step, which may be called again and again.

        Nothing that one step reads is overwritten by another: memory is not reused, and a step that works in place gets copies of its own.
        """
        recorded: list[RecordedStep] = []

        def record(name: str, function: Callable[..., object], arguments: list[object], keywords: dict[str, object]) -> object:
            recorded.append(RecordedStep(name, function, tuple(arguments), keywords))
            return function(*arguments, **keywords)

        namespace = dict(self.namespace, record=record)
        exec(compile(call_source(self.program, self.sources.kernels, self.target), "<fuselab steps>", "exec"), namespace)
        written = {name for step in self.program.steps if isinstance(step, Kernel) for name in step.writes}
        mutated = [name is not None and name in written for name in self.program.graph.inputs]
        namespace["call"]([_copied(value) if change else value for value, change in zip(inputs, mutated, strict=True)])
        in_place = {step.name: _in_place(step) for step in self.program.steps}
        for step in recorded:
            own = tuple(_copied(value) if place in in_place[step.name] else value for place, value in enumerate(step.arguments))
            yield step.name, RecordedStep(step.name, step.function, own, step.keywords)


def _copied(value: object) -> object:
    return (
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)
        if isinstance(value, torch.Tensor)
        else value
    )


def _in_place(step: Kernel | Extern) -> frozenset[int]:
    """The places of the arguments that a step both reads and writes."""
    if isinstance(step, Extern):
        return frozenset(range(len(step.args))) if all(name is None for name in step.outputs) else frozenset()
    read = {line.buffer for line in step.body if isinstance(line, Load)}
    return frozenset(place for place, name in enumerate(step.arguments) if name in read and name in step.writes)


def load_program(
    program: Program,
    sources: Sources,
    target: Target,
    constants: Mapping[str, torch.Tensor] | None = None,
    cache: KernelCache | None = None,
) -> LoadedProgram:
    """Builds what must be built and loads the wrapper.

    Raises CompileError when g++ refuses the C++.
    """
    library = build_cpp(sources.unit.text, cache) if sources.unit else None
    name = f"<fuselab wrapper {next(_numbers)}>"
    namespace: dict[str, Any] = {"__name__": "fuselab_wrapper", "__file__": name, "fuselab_constants": dict(constants or {})}
    # Graphs that higher-order ops call are no text: the wrapper finds them by name.
    namespace.update({name: value for name, value in (constants or {}).items() if not isinstance(value, torch.Tensor)})
    if library:
        namespace["fuselab_library"] = str(library.path)
    text = sources.wrapper.text
    # Triton reads the source of a kernel through linecache.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), namespace)
    return LoadedProgram(program, sources, target, library, namespace)


def set_threads(library: Library, threads: int) -> None:
    """How many OpenMP threads the kernels of a library use from now on in this process."""
    ctypes.CDLL(str(library.path)).omp_set_num_threads(threads)
