"""What each step of the pipeline shows: texts with the origin of every line, decisions, kernels, drawings. Reads results, decides
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from compiler.codegen import Sources
from compiler.ir import Extern, Graph, Kernel, Load, Nest, Program, Ref, Store
from compiler.ir_text import Printed, print_extern, print_graph, print_kernel
from compiler.lowering import Lowered
from compiler.recorder import Draft
from compiler.runtime.launch import LoadedProgram
from compiler.stats import is_fallback
from compiler.trace import Decision, Drawing, Edge, Node, Scalar
from compiler.trace import Kernel as KernelRecord


def section(stage: Draft, title: str, printed: Sequence[Printed]) -> None:
    text = "\n".join(line.text for line in printed)
    stage.section(title, text, "python", [() if line.origin is None else (line.origin,) for line in printed])


def loops(stage: Draft, lowered: Lowered) -> None:
    """The nests as loops, and why the other ops are calls."""
    graph = lowered.graph
    stage.origins = graph.origins
    section(stage, "Loops", print_graph(graph))
    stage.decisions += lowered.decisions
    nests = sum(isinstance(step, Nest) for step in graph.steps)
    fallbacks = [str(decision.numbers.get("op")) for decision in lowered.decisions if is_fallback(decision)]
    stage.facts |= {"nests": nests, "extern_calls": len(graph.steps) - nests, "fallbacks": len(fallbacks), "buffers": len(graph.buffers)}
    if fallbacks:
        stage.facts["fallback_ops"] = ", ".join(dict.fromkeys(fallbacks))[:400]


def fusion(stage: Draft, program: Program, decisions: Sequence[Decision]) -> None:
    """The fused loops, the kernels, every decision of every round, and a drawing of which nest ended up where."""
    stage.origins = program.graph.origins
    printed: list[Printed] = []
    for step in program.steps:
        printed += [*(print_kernel(step) if isinstance(step, Kernel) else print_extern(step)), Printed("")]
    section(stage, "Fused loops", printed)
    stage.decisions += decisions
    stage.kernels += [record(step, program) for step in program.steps]
    stage.drawing = drawing(program)
    section(stage, "Memory", memory(program))
    stage.facts |= {
        "kernels": sum(isinstance(step, Kernel) for step in program.steps),
        "extern_calls": sum(isinstance(step, Extern) for step in program.steps),
        "rounds": max((decision.round or 0 for decision in decisions), default=0),
        "pairs": len(decisions),
        "fused": sum(decision.verdict == "fused" for decision in decisions),
        "peak_intermediate_bytes": program.peak_bytes,
    }


def record(step: Kernel | Extern, program: Program) -> KernelRecord:
    """A launch as the trace describes it."""
    if isinstance(step, Extern):
        places = (step.origin,)
        return KernelRecord(
            name=step.name, kind="extern", library=step.library, steps=(step.op,), facts={"reason": step.reason}, origins=places
        )
    language = "triton" if any(program.graph.buffers[name].device == "cuda" for name in step.arguments) else "cpp"
    facts: dict[str, Scalar] = {
        "loops": " x ".join(map(str, step.loops)) or "1",
        "reduction": " x ".join(map(str, step.reduction)),
        "bytes": step.bytes,
        "reads": sum(isinstance(line, Load) for line in step.body),
        "writes": sum(isinstance(line, Store) for line in step.body),
    }
    if step.reduction:
        facts["rows"] = "kept" if step.persistent else "read in each pass"
    if language == "triton":
        tiling = step.tiling
        facts |= {"block": tiling.block, "reduction_block": tiling.reduction_block, "warps": tiling.warps}
    origins = tuple(sorted({line.origin for line in step.body}))[:200]
    return KernelRecord(name=step.name, kind=language, steps=step.steps[:2000], facts=facts, origins=origins)  # type: ignore[arg-type]


def memory(program: Program) -> list[Printed]:
    """When each buffer gets memory, whose memory it takes over, and when it is dropped."""
    printed: list[Printed] = []
    for step, allocations, frees in zip(program.steps, program.allocations, program.frees, strict=True):
        for allocation in allocations:
            size = program.graph.buffers[allocation.buffer].bytes
            source = f"takes over {allocation.reuses}" if allocation.reuses else f"{size} bytes, new"
            printed.append(Printed(f"{allocation.buffer}: {source}", step.origin))
        printed.append(Printed(step.name, step.origin))
        printed += [Printed(f"{name}: dropped", step.origin) for name in frees]
    return printed


def drawing(program: Program) -> Drawing:
    """Nests and calls as boxes, grouped by kernel; an edge for each buffer that goes from one to another."""
    graph: Graph = program.graph
    kernel_of = {name: step.name for step in program.steps if isinstance(step, Kernel) for name in step.steps}
    nodes = [Node(id=f"in:{name}", label=name, kind="input") for name in graph.inputs if name]
    edges: list[Edge] = []
    writers: dict[str, list[str]] = {name: [f"in:{name}"] for name in graph.inputs if name}
    for step in graph.steps:
        kind: Literal["op", "extern"] = "op" if isinstance(step, Nest) else "extern"
        label = step.op.split(",")[0].removeprefix("aten.").rsplit(".", 1)[0]
        identity = f"step:{step.name}"
        nodes.append(
            Node(id=identity, label=f"{step.name}\n{label}", kind=kind, group=kernel_of.get(step.name, ""), origins=(step.origin,))
        )
        reads = (
            dict.fromkeys(line.buffer for line in step.loads()) if isinstance(step, Nest) else dict.fromkeys(r.buffer for r in step.refs())
        )
        for name in reads:
            edges += [Edge(source=source, target=identity, label=name) for source in writers.get(name, ())]
        for name in [step.store.buffer] if isinstance(step, Nest) else [name for name in step.outputs if name]:
            writers.setdefault(name, []).append(identity)
    for position, output in enumerate(graph.outputs):
        if isinstance(output, Ref):
            nodes.append(Node(id=f"out:{position}", label=f"result {position}", kind="output"))
            edges += [Edge(source=source, target=f"out:{position}", label=output.buffer) for source in writers.get(output.buffer, ())]
    return Drawing(nodes=tuple(nodes[:2000]), edges=tuple(edges[:6000]))


def code(stage: Draft, program: Program, sources: Sources) -> None:
    """The generated text of each kernel."""
    stage.origins = program.graph.origins
    for kernel in sources.kernels:
        language = "python" if kernel.language == "triton" else "cpp"
        stage.section(kernel.name, kernel.text, language, kernel.marks)
    if not sources.kernels:
        stage.section("No kernels", "# Every step of this program is a call of a library.", "python")
    stage.kernels += [record(step, program) for step in program.steps]


def wrapper(stage: Draft, program: Program, sources: Sources, loaded: LoadedProgram | None) -> None:
    """The module that runs the program, and whether its C++ had been built before."""
    stage.origins = program.graph.origins
    stage.section("Wrapper", sources.wrapper.text, "python", sources.wrapper.marks)
    if loaded is not None and loaded.library is not None:
        stage.facts |= {"cache": "hit" if loaded.library.hit else "miss", "build_millis": round(loaded.library.millis, 1)}
