"""A region compiled by the real Inductor, or not at all: one of Dynamo's graphs comes in, a callable and the stages of the trace go out."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from compiler.capture.aot import Shown, draws
from compiler.capture.dynamo import readable_inputs
from compiler.capture.listing import drawing, listing
from compiler.capture.origins import OriginTable, aten_origins
from compiler.capture.region import Observer, Region
from compiler.observe.inductor_names import Pair, Sighting, compile_observed, config_diff, missing_names
from compiler.observe.torch_names import mutated_inputs
from compiler.recorder import Draft, Recorder
from compiler.target import Target
from compiler.trace import Decision, Kernel, Part, StageName

_KERNEL = re.compile(r"^(\w+) = async_compile\.(\w+)\(.*?r?'''(.*?)'''", re.MULTILINE | re.DOTALL)
_EXTERN = re.compile(r"^\s+(?:\w+ = )?(extern_kernels\.\w+|torch\.ops\.[\w.]+)\(", re.MULTILINE)
BELOW: tuple[StageName, ...] = ("ttir", "ttgir", "llir", "ptx", "sass")
ABSENT = "Inductor is observed on the CPU only so far: choose the target cpu. The region ran eagerly."
EAGER = "Eager PyTorch compiles nothing: each op is a kernel of its own, as the eager tab shows."


@dataclass(slots=True)
class ObservedPart:
    """One part of a region as Inductor compiled it. ``keep`` and ``last`` stay unused: its kernels are not timed singly."""

    part: Part
    gm: GraphModule
    shown: Shown
    keep: bool = False
    last: list[Any] | None = None

    @property
    def random(self) -> bool:
        """Whether the graph draws random numbers, so that two runs of it may differ."""
        return any(draws(node) or "inductor_random" in str(node.target) for node in self.gm.graph.nodes)


@dataclass(slots=True)
class ObservedCompiler:
    """The parts of one region, by name."""

    region: int
    graph: GraphModule
    recorder: Recorder
    origins: OriginTable
    parts: dict[Part, ObservedPart] = field(default_factory=dict)
    mutated: tuple[int, ...] = ()

    @property
    def readable(self) -> list[str]:
        """The visitor's names of the inputs, in order."""
        return list(readable_inputs(self.graph.graph).values())

    def compile(self, inputs: Sequence[Any], settings: Mapping[str, Any]) -> Callable[..., Any]:
        """Inductor's callable for the region."""
        return compile_observed(self.graph, inputs, private_folder(), settings, self._made)

    def _made(self, backward: bool, sighting: Sighting, compiled: Callable[..., Any]) -> Callable[..., Any]:
        part: Part = "backward" if backward else "forward"
        if not backward:
            self.mutated = tuple(place for place in mutated_inputs() if place < len(self.readable))
        if sighting.graph is None:
            for name in ("aten", "loops", "fusion", "code", "wrapper"):
                self._skip(name, part, "Inductor had nothing to compile in this part.")
            return compiled
        gm = sighting.graph
        origins = aten_origins(gm.graph, {}, self.origins)
        with self.recorder.stage(self.region, "aten", part) as draft:
            draft.origins = [origins[node.name] for node in gm.graph.nodes]
            shown = listing(gm.graph, part)
            draft.section("ATen graph after Inductor's passes", shown.text, "python", shown.marks)
            draft.drawing = drawing(gm.graph)
            draft.facts["operations"] = sum(node.op.startswith("call") for node in gm.graph.nodes)
        with self.recorder.stage(self.region, "loops", part) as draft:
            for name, text in sighting.before:
                draft.section(name, text)
            draft.facts["loops"] = len(sighting.before)
        with self.recorder.stage(self.region, "fusion", part) as draft:
            describe_fusion(draft, sighting)
        kernels = kernels_of(sighting.code, part)
        with self.recorder.stage(self.region, "code", part) as draft:
            for name, kind, text in _KERNEL.findall(sighting.code):
                draft.section(name, text.strip("\n"), "cpp" if kind.startswith("cpp") else "python")
            draft.kernels = kernels
        with self.recorder.stage(self.region, "wrapper", part) as draft:
            draft.section("Output code", sighting.code, "python")
            draft.facts |= {"config": "; ".join(f"{name}={value}" for name, value in config_diff().items())[:4_000] or "defaults"}
        for name in BELOW:
            reason = "Inductor's C++ is shown, not its machine code." if name == "sass" else "The CPU's kernels are C++."
            self._skip(name, part, reason)
        self.parts[part] = ObservedPart(part, gm, Shown(tuple(origins[node.name] for node in gm.graph.nodes), len(kernels)))
        return compiled

    def _skip(self, name: StageName, part: Part, reason: str) -> None:
        with self.recorder.stage(self.region, name, part) as draft:
            draft.skip(reason)


@functools.cache
def _folder(parent: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="inductor-", dir=parent)


def private_folder() -> str:
    """Where Inductor keeps what it builds: a folder of this process."""
    return _folder(tempfile.gettempdir()).name  # a forked process may have a temporary folder of its own


def describe_fusion(draft: Draft, sighting: Sighting) -> None:
    """Fills in the stage: the groups that are left, and every pair of every round."""
    for name, text, _ in sighting.after:
        draft.section(name, text)
    draft.decisions = [decision_of(pair) for pair in sighting.pairs.values()]
    draft.facts |= {"rounds": sighting.round, "groups": len(sighting.after), "refusals_said": len(sighting.reasons)}
    draft.facts |= {"fusions": sighting.fusions, "nodes": len(sighting.before)}


def decision_of(pair: Pair) -> Decision:
    verdict = "fused" if pair.fused else "lost" if pair.legal else "refused"
    rule = "score_fusion" if pair.legal or pair.fused else re.sub(r"\W+", "_", pair.reason.split(":")[0])[:60].strip("_") or "can_fuse"
    said = {
        "fused": "Inductor may fuse them, and did.",
        "lost": "Inductor may fuse them, but another fusion came first or this one was given up.",
        "refused": pair.reason or "Inductor's can_fuse refused without a reason.",
    }
    subject = f"{pair.first} + {pair.second}"
    return Decision.model_validate({
        "subject": subject[:400], "verdict": verdict, "rule": rule, "reason": said[verdict][:4_000], "numbers": dict(pair.score),
        "round": pair.round,
    })  # fmt: skip


def kernels_of(code: str, part: Part) -> list[Kernel]:
    """The launches of the output code: generated kernels, and calls of libraries."""
    made = [
        Kernel(name=name[:400], kind="cpp" if kind.startswith("cpp") else "triton", part=part) for name, kind, _ in _KERNEL.findall(code)
    ]
    return made + [Kernel(name=name[:400], kind="extern", part=part) for name in _EXTERN.findall(code)]


def observe_region(
    gm: GraphModule,
    inputs: Sequence[Any],
    *,
    compiler: str,
    settings: Mapping[str, Any],
    target: Target,
    recorder: Recorder,
    observer: Observer,
) -> Callable[..., Any]:
    """Has Inductor compile one of Dynamo's graphs, or leaves it to eager."""
    captured = observer.frames.capture(gm, observer.modules, "cuda" if target.is_gpu else "")
    region = captured.region
    made = ObservedCompiler(region, gm, recorder, captured.origins)
    missing = missing_names() if compiler == "inductor" else ()
    lacking = f"The installed PyTorch lacks {', '.join(missing)}, which observing relies on." if missing else ""
    reason = EAGER if compiler == "eager" else ABSENT if target.is_gpu else lacking
    if not reason:
        return Region(region, gm, made, made.compile(inputs, settings), observer)
    for name in ("aten", "loops", "fusion", "code", "wrapper", *BELOW, "timing", "numerics"):
        made._skip(name, "forward", reason)
    return Region(region, gm, made, gm, observer)
