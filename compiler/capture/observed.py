"""A region compiled by the real Inductor, or not at all: one of Dynamo's graphs comes in, a callable and the stages of the trace go out."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from compiler.capture.aot import Shown, draws
from compiler.capture.dynamo import readable_inputs
from compiler.capture.inductor_kernels import Below
from compiler.capture.inherited import Inherited
from compiler.capture.joint import INFERENCE, ShownJoint, describe_joint, joint_shown
from compiler.capture.observed_autotune import Tuned, describe_autotune
from compiler.capture.observed_code import (
    describe_code,
    describe_configuration,
    describe_outcome,
    describe_times,
    describe_wrapper,
    kernel_marks,
    kernels_of,
)
from compiler.capture.observed_graphs import Before, before_passes, describe_aten, describe_passes
from compiler.capture.observed_loops import describe_fusion, describe_loops
from compiler.capture.origins import OriginTable, aten_origins
from compiler.capture.places import Places, every_view
from compiler.capture.present import present_here
from compiler.capture.region import Observer, Region
from compiler.capture.running import with_eagers_place
from compiler.observe.inductor_autotune import tuned_kernel
from compiler.observe.inductor_calls import noted_calls
from compiler.observe.inductor_names import Lacking, Sighting, compile_observed, lacking
from compiler.observe.inductor_passes import PassLog
from compiler.observe.retarget import ByDefault, on_target, retargeted
from compiler.observe.torch_names import input_place, mutated_inputs
from compiler.recorder import Draft, Recorder
from compiler.target import Target
from compiler.trace import Kernel, Part, StageName

BELOW: tuple[StageName, ...] = ("ttir", "ttgir", "llir", "ptx", "sass")
COMPILED: tuple[StageName, ...] = ("aten", "loops", "fusion", "autotune", "code", "wrapper")
NO_TRITON = "The CPU's kernels are C++, which g++ compiles without this stage."
NO_ASSEMBLY = "The machine code of Inductor's C++ is not shown."
NOTHING = "Inductor had nothing to compile in this part."


@dataclass(slots=True)
class ObservedPart:
    """One part of a region as Inductor compiled it. ``module``: its loaded output code, or None. ``keep`` and ``last`` stay unused."""

    part: Part
    gm: GraphModule
    shown: Shown
    kernels: tuple[Kernel, ...] = ()
    module: Any = None
    retell: Callable[[Tuned], None] | None = None
    keep: bool = False
    last: list[Any] | None = None

    @property
    def random(self) -> bool:
        """Whether the graph draws random numbers, so that two runs of it may differ."""
        return any(draws(node) or "inductor_random" in str(node.target) for node in self.gm.graph.nodes)

    def tell_configurations(self) -> None:
        """The ``autotune`` stage once more, with the configurations that Triton kernels measured when they first ran."""
        names = [kernel.name for kernel in self.kernels if kernel.kind == "triton"]
        tuned = {name: found for name in names if (found := tuned_kernel(getattr(self.module, name, None)))}
        if tuned and self.retell is not None:
            self.retell(tuned)

    def launches(self, run: Callable[[], object]) -> list[tuple[Kernel, Callable[[], object]]]:
        """The kernels that ``run`` launches, each with a function that launches it again on the arguments that it had."""
        waiting = list(self.kernels)
        found: list[tuple[Kernel, Callable[[], object]]] = []
        for call in noted_calls(self.module, [kernel.name for kernel in self.kernels], run):
            place = next((place for place, kernel in enumerate(waiting) if kernel.name == call.kernel), None)
            if place is not None:
                found.append((waiting.pop(place), call.run))
        return found


@dataclass(slots=True)
class ObservedCompiler:
    """The parts of one region, by name; told by Inductor what it does (``observe.inductor_names.Told``)."""

    region: int
    graph: GraphModule
    recorder: Recorder
    origins: OriginTable
    target: Target
    present: bool  # asked before Inductor runs: while it is turned to a target, that device seems to be here
    missing: Lacking
    below: list[Below]  # what is left to be taken to machine code
    parts: dict[Part, ObservedPart] = field(default_factory=dict)
    mutated: tuple[int, ...] = ()
    passes: PassLog = field(default_factory=PassLog)
    shown: ShownJoint | None = None
    halves: tuple[GraphModule, GraphModule, int] | None = None
    before: Before | None = None
    seen: int = 0
    told_of_region: bool = False
    inherited: Inherited = field(default_factory=Inherited)
    undecided: list[ByDefault] = field(default_factory=list)

    @property
    def readable(self) -> list[str]:
        """The visitor's names of the inputs, in order."""
        return list(readable_inputs(self.graph.graph).values())

    @property
    def waiting(self) -> bool:
        """The backward part has not been compiled: Inductor does so when it is first called."""
        return self.halves is not None and "backward" not in self.parts

    def compile(self, inputs: Sequence[Any], settings: Mapping[str, Any]) -> Callable[..., Any]:
        """Inductor's callable for the region; where the target is not here, the region's graph, which runs eagerly on the CPU."""
        if self.present:
            compiled = with_eagers_place(compile_observed(self.graph, inputs, private_folder(), settings, self, self.passes), self.graph)
        else:
            with retargeted(self.target, self.undecided.append):
                moved, fakes = on_target(self.graph, inputs, self.target)
                compile_observed(moved, fakes, private_folder(), settings, self, self.passes)
            compiled = self.graph
        self._region_stages()
        return compiled

    # What Inductor tells

    def joint(self, gm: GraphModule) -> None:
        self.shown = joint_shown(gm, self.origins)

    def cut(self, forward: GraphModule, backward: GraphModule, forward_outputs: int) -> None:
        self.halves = (forward, backward, forward_outputs)

    def begin(self, backward: bool, gm: GraphModule) -> None:
        self._region_stages()
        part: Part = "backward" if backward else "forward"
        names = self._placeholders(gm)
        self.before = before_passes(gm, part, self._origins(gm, names), self._readable_notes(names))
        self.seen = len(self.passes.changes)

    def made(self, backward: bool, gm: GraphModule, sighting: Sighting, compiled: Callable[..., Any]) -> Callable[..., Any]:
        part: Part = "backward" if backward else "forward"
        if not backward:
            self.mutated = tuple(place for place in mutated_inputs() if place < len(self.readable))
        self._stages(part, sighting.code.graph or gm, sighting, compiled)
        return compiled

    # Stages

    def _region_stages(self) -> None:
        """The stages of the region as a whole, once."""
        if self.told_of_region:
            return
        self.told_of_region = True
        with self._stage("joint", "") as draft:
            if draft is None:
                return
            if self.shown is None or self.halves is None:
                draft.skip(INFERENCE)
            else:
                self.inherited.learn(self.passes.changes, self.origins)
                describe_joint(draft, self.shown, *self.halves, inherited=self.inherited.origins)
                draft.millis = self.passes.seconds.get("joint", 0.0) * 1e3
        with self._stage("passes", "") as draft:
            if draft is not None:
                describe_passes(draft, self.passes, ("pre-grad", "joint"))
                draft.millis = sum(self.passes.seconds.get(phase, 0.0) for phase in ("pre-grad", "joint")) * 1e3

    def _stages(self, part: Part, gm: GraphModule, sighting: Sighting, compiled: Callable[..., Any]) -> None:
        names = self._placeholders(gm)
        places = Places.of(gm.graph, self._origins(gm, names))
        with self._stage("passes", part) as draft:
            if draft is not None:
                describe_passes(draft, self.passes, ("post-grad",), self.seen)
        with self._stage("aten", part) as draft:
            if draft is not None:
                describe_aten(draft, gm, part, places, self.before, self._readable_notes(names))
        views = every_view([*sighting.before, *sighting.after])
        kernels = kernels_of(sighting.code, sighting.after, views, places, part, self.target)
        if not sighting.code.code and not self.missing.stages.get("code"):
            for name in COMPILED[1:]:
                self._skip(name, part, NOTHING)
        else:
            self._generated(part, sighting, places, kernels, compiled)
        if self.target.is_gpu and sighting.code.code:
            marks = kernel_marks(sighting.code, views, places)
            self.below.append(Below(self.region, part, sighting.code.code, marks, places.origins))
        else:
            for below in BELOW:
                self._skip(below, part, NO_ASSEMBLY if below == "sass" else NO_TRITON)
        made = self.parts[part] = ObservedPart(part, gm, Shown(places.origins, len(kernels)), tuple(kernels), sighting.code.module)

        def retell(tuned: Tuned) -> None:
            with self.recorder.stage(self.region, "autotune", part) as draft:
                describe_autotune(draft, sighting.tuning, kernels, places, (), tuned)

        made.retell = retell if not self._lacks("autotune") else None

    def _generated(self, part: Part, sighting: Sighting, places: Places, kernels: Sequence[Kernel], compiled: Callable[..., Any]) -> None:
        views = every_view([*sighting.before, *sighting.after])
        with self._stage("loops", part) as draft:
            if draft is not None:
                describe_loops(draft, sighting.before, places, self.target)
                draft.millis = sighting.code.lowering_seconds * 1e3
        with self.recorder.stage(self.region, "fusion", part) as draft:
            describe_fusion(draft, sighting.fusion, sighting.before, sighting.after, places, self._lacks("fusion"))
            draft.kernels = list(kernels)
            draft.millis = sighting.fusion.seconds * 1e3
        with self._stage("autotune", part) as draft:
            if draft is not None:
                describe_autotune(draft, sighting.tuning, kernels, places, self.undecided, {})
                self.undecided.clear()
        with self._stage("code", part) as draft:
            if draft is not None:
                describe_code(draft, sighting.code, kernels, views, places)
                draft.millis = max(0.0, sighting.code.codegen_seconds - sighting.fusion.seconds) * 1e3
        with self.recorder.stage(self.region, "wrapper", part) as draft:
            if self._lacks("code"):
                draft.section("Output code", self._lacks("code"))
            else:
                describe_wrapper(draft, sighting.code, views, places)
            describe_configuration(draft, sighting.config)
            describe_times(draft, sighting.times, sighting.seconds)
            describe_outcome(draft, compiled, sighting.counts, loaded=self.present)

    @contextmanager
    def _stage(self, name: StageName, part: Part) -> Iterator[Draft | None]:
        """The stage to be filled in, or None where it is skipped because a private name is missing."""
        with self.recorder.stage(self.region, name, part) as draft:
            if lacks := self._lacks(name):
                draft.skip(lacks)
                yield None
            else:
                yield draft

    def _lacks(self, name: str) -> str:
        found = self.missing.stages.get(name, ())
        return f"The installed PyTorch lacks {', '.join(found)}, which this stage relies on." if found else ""

    def _skip(self, name: StageName, part: Part, reason: str) -> None:
        with self.recorder.stage(self.region, name, part) as draft:
            draft.skip(reason)

    # Names and origins

    def _origins(self, gm: GraphModule, names: Mapping[str, str]) -> OriginTable:
        """The origins of a graph's nodes; those that a pass made come from what it replaced."""
        self.inherited.learn(self.passes.changes, self.origins)
        return self.inherited.completed(aten_origins(gm.graph, names, self.origins))

    def _placeholders(self, gm: GraphModule) -> dict[str, str]:
        """Dynamo's name of each placeholder that stands for one of the region's inputs."""
        dynamo = [node.name for node in self.graph.graph.nodes if node.op == "placeholder"]
        places = {node.name: input_place(node) for node in gm.graph.nodes if node.op == "placeholder"}
        return {name: dynamo[place] for name, place in places.items() if place is not None and place < len(dynamo)}

    def _readable_notes(self, names: Mapping[str, str]) -> dict[str, str]:
        readable = readable_inputs(self.graph.graph)
        return {name: readable[source] for name, source in names.items() if source in readable}


@functools.cache
def _folder(parent: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="inductor-", dir=parent)


def private_folder() -> str:
    """Where Inductor keeps what it builds: a folder of this process."""
    return _folder(tempfile.gettempdir()).name  # a forked process may have a temporary folder of its own


def observe_region(
    gm: GraphModule,
    inputs: Sequence[Any],
    *,
    settings: Mapping[str, Any],
    target: Target,
    recorder: Recorder,
    observer: Observer,
) -> Callable[..., Any]:
    """Has Inductor compile one of Dynamo's graphs; where the installed PyTorch lacks what observing takes, the graph runs in eager."""
    captured = observer.frames.capture(gm, observer.modules, "cuda" if target.is_gpu else "", [])
    region, origins = captured.region, captured.origins
    missing = lacking()
    made = ObservedCompiler(region, gm, recorder, origins, target, present_here(target), missing, observer.below)
    if not missing.core:
        return Region(region, gm, made, made.compile(inputs, settings), observer)
    reason = f"The installed PyTorch lacks {', '.join(missing.core)}, which observing relies on."
    for name in ("joint", "passes"):
        made._skip(name, "", reason)
    for name in (*COMPILED, *BELOW, "timing", "numerics"):
        made._skip(name, "forward", reason)
    return Region(region, gm, made, gm, observer)
