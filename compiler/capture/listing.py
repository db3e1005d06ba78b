"""FX graphs as text, one line a node with what it is made of, and as drawings."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch.fx import Graph, Node

from compiler.trace import Drawing, Edge
from compiler.trace import Node as Box

MAX_BOXES = 2_000
INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//", operator.mod: "%",
    operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=", operator.lshift: "<<", operator.rshift: ">>",
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=",
}  # fmt: skip
VIEWS = {
    "view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze", "squeeze", "as_strided", "alias", "detach",
    "split", "unbind", "diagonal", "unfold", "getitem", "_unsafe_view",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listing:
    """A graph as text; ``marks[i]`` are the places, in graph order, of the nodes that line ``i`` shows."""

    text: str
    marks: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class _Lines:
    rows: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)

    def add(self, code: str, comment: str = "", *marks: int) -> None:
        self.rows.append((code, comment, marks))

    def listing(self) -> Listing:
        width = min(72, max((len(code) for code, comment, _ in self.rows if comment), default=0))
        lines = [f"{code.ljust(width)}  # {comment}" if comment else code for code, comment, _ in self.rows]
        return Listing("\n".join(lines), tuple(marks for _, _, marks in self.rows))


def describe(value: object, device: str = "") -> str:
    """``float32[3, 4] (4, 1) cpu`` for a tensor; ``device`` stands for the tensor's own where it is given."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        layout = f" {tuple(value.stride())}" if value.layout == torch.strided and value.dim() else ""
        return f"{dtype}[{', '.join(map(str, value.shape))}]{layout} {device or value.device}"
    if isinstance(value, list | tuple):
        return f"({', '.join(describe(item, device) for item in value)})"
    return "" if value is None else f"{type(value).__name__} {value}"


def node_value(node: Node) -> object:
    """The fake tensor that a node stands for, in graphs of Dynamo's and of AOTAutograd's."""
    return node.meta["val"] if "val" in node.meta else node.meta.get("example_value")


def target_name(node: Node) -> str:
    """What a node calls, spelled so that a reader of Python recognises it."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, str):
        return str(target)
    name = str(getattr(target, "__name__", target))
    module = str(getattr(target, "__module__", None) or "")
    if module.startswith("torch.nn.functional") or module == "torch._C._nn":
        return f"F.{name}"
    return f"torch.{name}" if getattr(torch, name, None) is target else name


def expression(node: Node) -> str:
    """The call as Python."""
    arguments = [written(argument) for argument in node.args] + [f"{key}={written(value)}" for key, value in node.kwargs.items()]
    if node.op == "get_attr":
        return f"self.{node.target}"
    if node.op == "call_method":
        return f"{arguments[0]}.{node.target}({', '.join(arguments[1:])})"
    if node.target is operator.getitem and len(arguments) == 2:
        return f"{arguments[0]}[{arguments[1]}]"
    sign = INFIX.get(node.target) if not isinstance(node.target, str) else None
    if sign and len(arguments) == 2:
        return f"{arguments[0]} {sign.rstrip('=') if sign in ('+=', '-=', '*=', '/=') else sign} {arguments[1]}"
    return f"{target_name(node)}({', '.join(arguments)})"


def written(argument: object) -> str:
    if isinstance(argument, Node):
        return str(argument.name)
    if isinstance(argument, slice):
        parts = ["" if part is None else written(part) for part in (argument.start, argument.stop, argument.step)]
        return ":".join(parts if argument.step is not None else parts[:2])
    if isinstance(argument, tuple):
        return f"({', '.join(map(written, argument))}{',' if len(argument) == 1 else ''})"
    if isinstance(argument, list):
        return f"[{', '.join(map(written, argument))}]"
    return str(argument) if isinstance(argument, torch.dtype | torch.device | torch.layout) else repr(argument)[:200]


def listing(graph: Graph, name: str, device: str = "", notes: Mapping[str, str] | None = None) -> Listing:
    """The graph as a Python function. ``notes`` adds to the comments of nodes, by name."""
    notes = notes or {}
    lines = _Lines()
    nodes = list(graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    if len(inputs) == len({node.name for node in inputs}) and inputs:
        lines.add(f"def {name}(")
        for place, node in enumerate(nodes):
            if node.op == "placeholder":
                lines.add(f"    {node.name},", _comment(node, device, notes), place)
        lines.add("):")
    else:
        lines.add(f"def {name}():")
    for place, node in enumerate(nodes):
        if node.op == "output":
            lines.add(f"    return {written(node.args[0])}", notes.get(node.name, ""), place)
        elif node.op != "placeholder":
            lines.add(f"    {node.name} = {expression(node)}", _comment(node, device, notes), place)
    return lines.listing()


def _comment(node: Node, device: str, notes: Mapping[str, str]) -> str:
    parts = [describe(node_value(node), device), notes.get(node.name, "")]
    return "; ".join(part for part in parts if part)


def drawing(graph: Graph, device: str = "") -> Drawing | None:
    """The graph as boxes and arrows, None when it is too large to be looked at."""
    nodes: Sequence[Node] = list(graph.nodes)
    if len(nodes) > MAX_BOXES:
        return None
    boxes, edges = [], []
    for place, node in enumerate(nodes):
        value = describe(node_value(node), device)
        title = node.name if node.op in ("placeholder", "get_attr", "output") else f"{node.name} = {target_name(node)}"
        boxes.append(Box(id=node.name, label=f"{title}\n{value}".strip()[:300], kind=_kind(node), origins=(place,)))
        edges += [Edge(source=source.name, target=node.name) for source in node.all_input_nodes]
    return Drawing(nodes=tuple(boxes), edges=tuple(edges))


def _kind(node: Node) -> Literal["input", "op", "view", "output"]:
    if node.op in ("placeholder", "get_attr"):
        return "input"
    if node.op == "output":
        return "output"
    name = node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", "")).split(".")[0]
    return "view" if name in VIEWS else "op"
