"""The ``dynamo`` stage: what TorchDynamo captured of one region, what must hold for it, and why it ended."""

from __future__ import annotations

import re

import torch
from torch.fx import Graph, GraphModule, Node

from compiler.capture.listing import describe, drawing, listing, node_value
from compiler.capture.origins import SNIPPET, OriginTable
from compiler.observe.torch_names import Break, GuardRow
from compiler.recorder import Draft
from compiler.trace import Decision, Origin

_OWN = re.compile(r"^_?[LG]_(?P<path>.*?)_*$")
QUIET_GUARDS = {"BUILTIN_MATCH", "MODULE_MATCH", "SHAPE_ENV", "GLOBAL_STATE", "TORCH_FUNCTION_STATE", "AUTOGRAD_SAVED_TENSORS_HOOKS"}


def readable_inputs(graph: Graph) -> dict[str, str]:
    """A name near to the visitor's own for each input, such as ``model_0_weight`` for ``G_model_modules_0_parameters_weight_``."""
    taken: set[str] = {node.name for node in graph.nodes if node.op != "placeholder"}
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        match = _OWN.match(str(node.target))
        path = re.sub(r"(^|_)(modules|parameters|buffers)_", r"\1", match["path"]) if match else node.name
        path = re.sub(r"(^|_)(modules|parameters|buffers)_", r"\1", path).removeprefix("self_").strip("_")
        plain = re.sub(r"\W+", "_", path) or node.name
        plain = plain if not plain[0].isdigit() else f"layer_{plain}"
        unique = plain
        for number in range(1, len(graph.nodes) + 2):
            if unique not in taken:
                break
            unique = f"{plain}_{number}"
        taken.add(unique)
        names[node.name] = unique
    return names


def title_of(gm: GraphModule, stopped: Break | None, origins: OriginTable) -> tuple[str, int]:
    """The function that a region came from, and its first line there."""
    lines = [origin.line for node in gm.graph.nodes if node.op not in ("placeholder", "output") and (origin := origins[node.name]).line]
    for node in gm.graph.nodes:
        for name in re.findall(rf'File "{re.escape(SNIPPET)}", line \d+, in (\S+)', node.meta.get("stack_trace") or "")[:1]:
            resumed = re.match(r"torch_dynamo_resume_in_(.+)_at_(\d+)", name)
            title = f"{resumed[1]}, after the break at line {resumed[2]}" if resumed else name
            return title, min(lines, default=0)
    for node in gm.graph.nodes:
        for _, kind in list((node.meta.get("nn_module_stack") or {}).values())[:1]:
            return str(getattr(kind, "__name__", kind)), min(lines, default=0)
    return "graph", stopped.frames[-1][1] if stopped and stopped.frames else 0


def describe_region(
    draft: Draft, gm: GraphModule, origins: OriginTable, guards: tuple[GuardRow, ...], stopped: Break | None, device: str
) -> None:
    """Fills in the stage."""
    nodes = list(gm.graph.nodes)
    draft.origins = [origins[node.name] for node in nodes]
    shown = listing(gm.graph, "forward", device)
    draft.section("FX graph", shown.text, "python", shown.marks)
    draft.section("Guards", guard_text(guards, nodes))
    if stopped:
        line = next((line for file, line in reversed(stopped.frames) if file == SNIPPET), stopped.frames[-1][1] if stopped.frames else 0)
        draft.origins = [*draft.origins, Origin(line=line, end_line=line)]
        short, rest = first_sentence(stopped.reason)
        draft.section("Graph breaks", f"line {line}: {stopped.reason}", "text", [(len(nodes),)])
        draft.decisions.append(
            Decision(
                subject=f"line {line}",
                verdict="refused",
                rule="graph_break",
                reason=short + rest,
                origins=(len(nodes),),
                numbers={"line": line},
            )
        )
    else:
        draft.section("Graph breaks", "None: the graph ends where the function returns.")
    draft.drawing = drawing(gm.graph, device)
    calls = sum(node.op.startswith("call") for node in nodes)
    inputs = sum(node.op == "placeholder" for node in nodes)
    draft.facts |= {"operations": calls, "inputs": inputs, "guards": len(guards), "graph_breaks": int(stopped is not None)}


def first_sentence(reason: str) -> tuple[str, str]:
    """Dynamo's headline, and its explanation and hint without the developer's part."""
    kept = [line.strip() for line in reason.splitlines() if line.strip()]
    kept = [line for line in kept if not line.startswith(("Developer debug context", "For more details"))]
    return kept[0] if kept else "unknown", (". " + " ".join(kept[1:]) if len(kept) > 1 else "")


def guard_text(guards: tuple[GuardRow, ...], nodes: list[Node]) -> str:
    """One guard a line: first those that name the visitor's values."""
    tensors = {str(node.target): node for node in nodes if node.op == "placeholder"}
    loud = [guard for guard in guards if guard.kind not in QUIET_GUARDS]
    quiet = [guard for guard in guards if guard.kind in QUIET_GUARDS]
    lines = [_guard_line(guard, tensors) for guard in loud]
    if quiet:
        lines += ["", "# About Python and PyTorch themselves:"] + [_guard_line(guard, tensors) for guard in quiet]
    return "\n".join(lines) or "None."


def _guard_line(guard: GuardRow, tensors: dict[str, Node]) -> str:
    subject = guard.subject if guard.subject not in ("", "None") else "global"
    detail = "; ".join(guard.code)
    if guard.kind == "TENSOR_MATCH":
        mangled = re.sub(r"\W+", "_", subject)
        node = next((node for target, node in tensors.items() if target.strip("_") == mangled.strip("_")), None)
        value = node_value(node) if node else None
        if isinstance(value, torch.Tensor):
            detail = describe(value) + (", requires grad" if value.requires_grad else "")
    return f"{guard.kind:<24} {subject}" + (f"  is  {detail}" if detail else "")
