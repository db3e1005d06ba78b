"""AOTAutograd and the ``aten`` stage: a graph of Dynamo's comes in, compiled forward and backward parts go out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn.attention import SDPBackend, sdpa_kernel

from compiler.capture.decompositions import decompositions
from compiler.capture.dynamo import readable_inputs
from compiler.capture.higher_order import prepare_calls
from compiler.capture.joint import INFERENCE, byte_count, describe_joint, joint_shown
from compiler.capture.listing import describe, drawing, listing, node_value
from compiler.capture.origins import OriginTable, aten_origins
from compiler.capture.running import asked_of_eager, copied, is_own, laid_to_line
from compiler.observe.torch_names import aot_compile, input_place, keep_saved_tensors, mutated_inputs, real_tensors
from compiler.options import Options
from compiler.pipeline import Compiled, compile_graph
from compiler.recorder import Draft, Recorder
from compiler.target import Target
from compiler.trace import Decision, Origin, Part, StageName

RANDOM = ("rand", "bernoulli", "dropout", "normal", "uniform", "multinomial", "exponential", "geometric", "cauchy", "_philox")


@dataclass(frozen=True, slots=True)
class Shown:
    """What measuring shows of a part: where its lines come from, and how many kernels are launched."""

    origins: tuple[Origin, ...]
    launches: int


@dataclass(slots=True)
class CompiledPart:
    """One part of a region, called by AOTAutograd with a list of inputs that it empties.

    Where the target's device is not here, the ATen graph itself runs. While ``keep`` is set, ``last`` holds copies of the latest inputs.
    ``expected``: the inputs have once had the shapes that the graph was given.
    """

    part: Part
    gm: GraphModule
    compiled: Compiled
    present_here: bool
    origins: OriginTable
    keep: bool = False
    last: list[Any] | None = None
    expected: bool = False

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        inputs = list(arguments)
        arguments.clear()
        if self.keep:
            self.last = [copied(value) for value in inputs]
        return self.run(inputs)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        if self.present_here:
            try:
                if not self.expected:  # what is fixed once differs at the first call or never
                    self.compiled.expect(inputs)
                    self.expected = True
                return self.compiled(inputs)
            except Exception as error:
                own = error if is_own(error) else self._asked(inputs)
                if own is error:
                    raise
                if own is not None:
                    raise own from error
                raise laid_to_line(error, self.compiled.loaded, self.gm) from error
        results: Sequence[Any] = self.gm(*inputs)
        return results

    def _asked(self, inputs: Sequence[Any]) -> Exception | None:
        """What eager raises for the same inputs. The forward part is asked of Dynamo's graph, by the region."""
        return None if self.part == "forward" else asked_of_eager(self.gm, inputs)

    @property
    def shown(self) -> Shown:
        return Shown(tuple(self.compiled.lowered.graph.origins), len(self.compiled.program.steps))

    @property
    def random(self) -> bool:
        """Whether the graph draws random numbers, so that two runs of it may differ."""
        return any(draws(node) for node in self.gm.graph.nodes)


def draws(node: Node) -> bool:
    name = str(node.target).split(".")[1] if isinstance(node.target, torch._ops.OpOverload) else str(node.target)
    return node.op.startswith("call") and any(word in name for word in RANDOM) and not name.endswith("backward")


NO_PASSES = "Fuselab lowers the graph as AOTAutograd gave it: it has no passes over the FX graph."
BY_RULE = "Fuselab tries nothing out: it chooses tiles by rule. See the decisions under code."
ATTENTION = Decision(
    subject="scaled_dot_product_attention",
    verdict="chosen",
    rule="attention_as_products",
    reason="Which fused attention kernel runs depends on the device, and it is not here: the call is compiled as products and a softmax.",
)


@dataclass(slots=True)
class AotCompiler:
    """Compiles the parts of one region. ``parts`` holds them by name once AOTAutograd has asked for them."""

    region: int
    graph: GraphModule
    options: Options
    target: Target
    present_here: bool
    recorder: Recorder
    origins: OriginTable
    parts: dict[Part, CompiledPart] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    mutated: tuple[int, ...] = ()
    partitioned: bool = False

    @property
    def readable(self) -> list[str]:
        """The visitor's names of the inputs, in order."""
        return list(readable_inputs(self.graph.graph).values())

    def compile(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The region as a function of Dynamo's inputs, with gradients where they are needed."""
        forward, backward = self._compiler("forward"), self._compiler("backward")
        # CPU tensors that stand for ones on a GPU would choose the CPU's attention kernel, which no GPU has.
        attention = sdpa_kernel(SDPBackend.MATH) if self._stands_in else contextlib.nullcontext()
        with self.recorder.boundary(self.region, lambda: self._tracing(inputs)), attention:
            compiled = aot_compile(self.graph, inputs, forward, backward, decompositions(), self._joint)
        if not self.partitioned:
            self._skip("joint", INFERENCE)
        self._skip("passes", NO_PASSES)
        self._skip("autotune", BY_RULE)
        return compiled

    def _tracing(self, inputs: Sequence[Any]) -> StageName:
        """What AOTAutograd is making: the joint graph, or the one graph where nothing requires gradients."""
        wanted = any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)
        return "joint" if wanted and torch.is_grad_enabled() and not self.parts else "aten"

    def _joint(self, gm: GraphModule) -> Callable[[GraphModule, GraphModule, int], None]:
        """The ``joint`` stage, once the graph is cut."""
        self.partitioned = True
        device = "cuda" if self.target.is_gpu else ""
        before = joint_shown(gm, self.origins, device)

        def cut(forward: GraphModule, backward: GraphModule, outputs: int) -> None:
            with self.recorder.stage(self.region, "joint") as draft:
                describe_joint(draft, before, forward, backward, outputs, device)

        return cut

    def _skip(self, name: StageName, reason: str) -> None:
        with self.recorder.stage(self.region, name) as draft:
            draft.skip(reason)

    @property
    def _stands_in(self) -> bool:
        """Whether the tensors are on the CPU in the stead of a GPU."""
        return self.target.is_gpu and not self.present_here

    def _compiler(self, part: Part) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
        def compile_part(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            prepare_calls(gm)
            keep_saved_tensors()
            origins = self._aten(gm, part)
            with real_tensors():
                compiled = compile_graph(
                    gm,
                    part=part,
                    region=self.region,
                    options=self.options,
                    target=self.target,
                    present_here=self.present_here,
                    origins=origins,
                    recorder=self.recorder,
                )
            made = self.parts[part] = CompiledPart(part, gm, compiled, self.present_here, origins)

            def boxed(arguments: list[Any]) -> Sequence[Any]:
                return made(arguments)

            boxed._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd then hands over a list that may be emptied
            return boxed

        return compile_part

    def _aten(self, gm: GraphModule, part: Part) -> OriginTable:
        with self.recorder.stage(self.region, "aten", part) as draft:
            sources = self._rename(gm, part)
            origins = aten_origins(gm.graph, sources, self.origins)
            device = "cuda" if self.target.is_gpu else ""
            notes = {node.name: _note(node, origins) for node in gm.graph.nodes}
            draft.origins = [origins[node.name] for node in gm.graph.nodes]
            shown = listing(gm.graph, part, device, notes)
            draft.section("ATen graph", shown.text, "python", shown.marks)
            draft.drawing = drawing(gm.graph, device)
            draft.facts["operations"] = sum(node.op.startswith("call") for node in gm.graph.nodes)
            if (
                self._stands_in
                and part == "forward"
                and any("scaled_dot_product_attention" in str(n.target) for n in self.graph.graph.nodes)
            ):
                draft.decisions.append(ATTENTION)
            if part == "forward":
                self._forward_facts(draft, gm)
            else:
                self._saved_facts(draft, gm)
        return origins

    def _rename(self, gm: GraphModule, part: Part) -> dict[str, str]:
        """Gives inputs the visitor's names; returns Dynamo's name of each node that stands for an input."""
        dynamo = [node.name for node in self.graph.graph.nodes if node.op == "placeholder"]
        readable = readable_inputs(self.graph.graph)
        taken = {node.name for node in gm.graph.nodes}
        sources: dict[str, str] = {}
        for node in gm.graph.nodes:
            if node.op != "placeholder":
                continue
            place = input_place(node)
            source = dynamo[place] if place is not None and place < len(dynamo) else self.renamed.get(node.name, "")
            if not source:
                continue
            wanted = readable[source]
            if part == "forward":
                self.renamed[node.name] = source
            if wanted not in taken:
                taken.add(wanted)
                node.name = node.target = wanted
            sources[node.name] = source
        gm.recompile()
        return sources

    def _forward_facts(self, draft: Draft, gm: GraphModule) -> None:
        names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        readable = self.readable
        self.mutated = tuple(place for place in mutated_inputs() if place < len(readable))
        mutated = [readable[place] for place in self.mutated]
        draft.facts["inputs"] = len(names)
        draft.facts["mutated_inputs"] = ", ".join(mutated) or "none"
        if mutated:
            text = "".join(f"{name}: computed as a new tensor, copied back into {name} after the graph has run\n" for name in mutated)
            draft.section("Mutation", text.rstrip())
        (output,) = (node for node in gm.graph.nodes if node.op == "output")
        draft.facts["outputs"] = len(output.args[0]) if isinstance(output.args[0], list | tuple) else 1

    def _saved_facts(self, draft: Draft, gm: GraphModule) -> None:
        rows = [
            (node, value)
            for node in gm.graph.nodes
            if node.op == "placeholder" and not node.name.startswith("tangents") and isinstance(value := node_value(node), torch.Tensor)
        ]
        total = sum(byte_count(value) for _, value in rows)
        places = {node: place for place, node in enumerate(gm.graph.nodes)}
        lines = [f"{node.name:<32} {byte_count(value):>14,} bytes  {describe(value)}" for node, value in rows]
        draft.section(
            "Saved for backward", "\n".join([*lines, f"{'total':<32} {total:>14,} bytes"]), "text", [(places[node],) for node, _ in rows]
        )
        draft.facts |= {"saved_tensors": len(rows), "saved_bytes": total}


def _note(node: Node, origins: Mapping[str, Any]) -> str:
    origin = origins[node.name]
    parts = []
    original = node.meta.get("original_aten")
    if original is not None and str(original) != str(node.target):
        parts.append(f"from {original}")
    if origin.line:
        parts.append(f"line {origin.line}")
    return ", ".join(parts)
