"""The whole compiler on one page: an ATen graph of one part of a region comes in, a callable goes out, and every step is recorded as a
stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.fx import GraphModule

from compiler import present
from compiler.assembly.record import record_levels
from compiler.codegen import Sources, generate
from compiler.ir import Extern, Kernel, Program
from compiler.lowering import Lowered, lower
from compiler.observe.open_sizes import OpenSizes, open_sizes
from compiler.options import Options
from compiler.recorder import Draft, Recorder
from compiler.runtime.launch import LoadedProgram, load_program
from compiler.schedule import schedule
from compiler.target import Target
from compiler.trace import Decision, Origin, Part
from compiler.verify import verify, verify_program


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compiled part. ``loaded`` is None where the target is a GPU that is not here: the text exists, but cannot run."""

    lowered: Lowered
    program: Program
    sources: Sources
    loaded: LoadedProgram | None

    @property
    def wrapper_text(self) -> str:
        return self.sources.wrapper.text

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(step for step in self.program.steps if isinstance(step, Kernel))

    def __call__(self, inputs: Sequence[object]) -> list[object]:
        """The results for these inputs, one for each output of the graph."""
        if self.loaded is None:
            raise RuntimeError("this program was compiled for a device that is not here")
        return self.loaded(inputs)

    def expect(self, inputs: Sequence[object]) -> None:
        """Raises RuntimeError where a kernel would read an input of another shape than the graph was given: a forward part hands on
        what a library returned, whatever PyTorch's description of the op had said.
        """
        touched = self.program.touched
        for name, value in zip(self.program.graph.inputs, inputs, strict=True):
            if name in touched and isinstance(value, Tensor):
                shape = self.program.graph.buffers[name].shape
                pairs = zip(value.shape, shape, strict=False)
                if value.dim() != len(shape) or any(isinstance(want, int) and have != want for have, want in pairs):
                    raise RuntimeError(f"input {name} has the shape {tuple(value.shape)}, and {shape} was promised")

    def timed_steps(self, inputs: Sequence[object]) -> Iterator[tuple[Kernel | Extern, Callable[[], object]]]:
        """Each step with a callable that runs it again on the arguments that it had."""
        by_name = {step.name: step for step in self.program.steps}
        if self.loaded is not None:
            for name, run in self.loaded.steps(inputs):
                yield by_name[name], run


def compile_graph(
    gm: GraphModule,
    *,
    part: Part,
    region: int,
    options: Options,
    target: Target,
    present_here: bool,
    origins: Mapping[str, Origin],
    recorder: Recorder,
) -> Compiled:
    """Compile a functional, decomposed ATen graph whose nodes carry fake tensors in ``meta["val"]``.

    ``present_here``: the target's device is in this machine and the tensors are on it. ``origins`` gives each node's place in the snippet.
    Raises CompileError, which names stage, op and line.
    """
    sizes = open_sizes(gm)
    with recorder.stage(region, "loops", part) as stage:
        lowered = lower(gm, origins, target, retarget=not present_here, sizes=sizes)
        if options.check:
            verify(lowered.graph)
        present.loops(stage, lowered)
        tell_guards(stage, sizes)
    with recorder.stage(region, "fusion", part) as stage:
        program, decisions = schedule(lowered.graph, options, target)
        if options.check:
            verify_program(program)
        present.fusion(stage, program, decisions)
        tell_guards(stage, sizes)
    with recorder.stage(region, "code", part) as stage:
        sources = generate(program, target, lowered.constants)
        present.code(stage, program, sources)
        tell_guards(stage, sizes)
    with recorder.stage(region, "wrapper", part) as stage:
        loaded = load_program(program, sources, target, lowered.constants) if present_here else None
        present.wrapper(stage, program, sources, loaded)
    record_levels(recorder, region, part, program, sources, target, loaded.library if loaded else None)
    return Compiled(lowered, program, sources, loaded)


def tell_guards(stage: Draft, sizes: OpenSizes | None) -> None:
    """The guards that this stage added to Dynamo's, as decisions."""
    if sizes is None:
        return
    stage.decisions += [
        Decision(
            subject=guard[:400],
            verdict="noted",
            rule="guard",
            reason="This stage decided by the present sizes: where this does not hold, the region is compiled again.",
        )
        for guard in sizes.guards
    ]
    sizes.guards.clear()
