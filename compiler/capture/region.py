"""One region, from the graph that Dynamo hands to a backend to the callable that it gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.fx import GraphModule, Node

from compiler.capture.aot import AotCompiler
from compiler.capture.frames import Frames
from compiler.capture.inductor_kernels import Below
from compiler.capture.origins import Span
from compiler.capture.present import present_here
from compiler.observe.torch_names import static_fakes
from compiler.options import Options
from compiler.recorder import Recorder
from compiler.target import Target
from compiler.trace import Decision


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


@dataclass(slots=True)
class Specialised:
    """A region whose sizes Dynamo left open: compiled anew for each set of sizes that it is called with."""

    compile: Callable[[GraphModule, Sequence[Any]], Region]
    gm: GraphModule
    regions: dict[tuple[object, ...], Region] = field(default_factory=dict)

    def __call__(self, *inputs: Any) -> Any:  # noqa: ANN401  # any values
        key = tuple(
            (tuple(value.shape), value.stride(), value.dtype, value.requires_grad) if isinstance(value, torch.Tensor) else value
            for value in inputs
        )
        if key not in self.regions:
            self.regions[key] = self.compile(with_sizes(self.gm, inputs), static_fakes(inputs))
        return self.regions[key](*inputs)


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
    symbolic = any(isinstance(value, torch.SymInt | torch.SymFloat) or _symbolic(value) for value in example_inputs) or _symbolic_inputs(gm)
    frames, modules = (observer.frames, observer.modules) if observer else (Frames(recorder), {})
    captured = frames.capture(gm, modules, "cuda" if target.is_gpu else "", [FOR_EACH_SIZE] if symbolic else [])
    region = captured.region

    def compile_static(static: GraphModule, inputs: Sequence[Any]) -> Region:
        compiler = AotCompiler(region, static, options, target, present_here(target), recorder, captured.origins)
        return Region(region, static, compiler, compiler.compile(inputs), observer)

    return Specialised(compile_static, gm) if symbolic else compile_static(gm, example_inputs)


FOR_EACH_SIZE = Decision(
    subject="sizes",
    verdict="noted",
    rule="specialised",
    reason="Dynamo left sizes of this graph open; it is compiled for the sizes that it is called with, and again for others.",
)


def _symbolic(value: object) -> bool:
    return isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride()))


def _symbolic_inputs(gm: GraphModule) -> bool:
    values = [node.meta.get("example_value") for node in gm.graph.nodes if node.op == "placeholder"]
    return any(isinstance(value, torch.SymInt | torch.SymFloat) or _symbolic(value) for value in values)


def with_sizes(gm: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The graph with its numbers put in: an input that is a number keeps its place, but is no longer read."""
    graph, values = torch.fx.Graph(), iter(inputs)
    known: dict[Node, Any] = {}
    for node in gm.graph.nodes:
        known[node] = graph.node_copy(node, known.__getitem__)
        if node.op == "placeholder" and not isinstance(value := next(values), torch.Tensor):
            known[node] = value
    return GraphModule(gm, graph)
