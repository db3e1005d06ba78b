"""One region, from the graph that Dynamo hands to a backend to the callable that it gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch.fx import GraphModule

from compiler.capture.aot import AotCompiler
from compiler.capture.frames import Frames
from compiler.capture.inductor_kernels import Below
from compiler.capture.present import present_here
from compiler.capture.running import telling_faults
from compiler.options import Options
from compiler.recorder import Recorder
from compiler.spans import Span
from compiler.target import Target


class Observer(Protocol):
    """Who wants to look at regions while a snippet runs. ``modules``: where the snippet built each module, by its id as text.

    ``frames`` has the regions found so far, and emits their ``dynamo`` stages. ``below``: code of Inductor's for when the
    script is done.
    """

    @property
    def modules(self) -> Mapping[str, Span]: ...

    @property
    def frames(self) -> Frames: ...

    @property
    def below(self) -> list[Below]: ...

    def called(self, region: Region, inputs: Sequence[Any]) -> None:
        """The region is about to run for the first time, with these inputs."""


@dataclass(slots=True)
class Region:
    """A compiled region: calling it runs the compiled code. ``graph`` is Dynamo's graph, which runs eagerly."""

    id: int
    graph: GraphModule
    compiler: Any  # an AotCompiler, or what stands in its place for a compiler that is observed
    compiled: Callable[..., Any]
    observer: Observer | None
    first: bool = True

    def __call__(self, *inputs: Any) -> Any:  # noqa: ANN401  # any values
        if self.first and self.observer is not None:
            self.first = False
            self.observer.called(self, inputs)
        return self.compiled(*inputs)


def compile_region(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Options,
    target: Target,
    recorder: Recorder,
    observer: Observer | None = None,
) -> Callable[..., Any]:
    """Compile one of Dynamo's graphs; the result takes the graph's inputs and gives its outputs.

    Raises CompileError when a stage fails; the recorder has that stage by then.
    """
    frames, modules = (observer.frames, observer.modules) if observer else (Frames(recorder), {})
    captured = frames.capture(gm, modules, "cuda" if target.is_gpu else "")

    compiler = AotCompiler(captured.region, gm, options, target, present_here(target), recorder, captured.origins)
    return Region(captured.region, gm, compiler, telling_faults(compiler.compile(example_inputs), gm), observer)
