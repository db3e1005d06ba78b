"""Inductor's loop IR, printed as the loops that a reader would write: scheduler nodes come in, lines with their origins go out.

A ``View`` keeps the node's loop body, which Inductor replaces rather than changes, so that the text can be made after the compilation.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, Node

RELIES_ON = (
    "torch._inductor.debug.log_ir_pre_fusion",
    "torch._inductor.debug.log_ir_post_fusion",
    "torch._inductor.ir.FallbackKernel",
    "torch._inductor.ir.MultiOutput",
    "torch._inductor.lowering.lowerings",
    "torch._inductor.loop_body.LoopBody.debug_str",
    "torch._inductor.scheduler.BaseSchedulerNode.debug_str",
    "torch._inductor.scheduler.BaseSchedulerNode.get_nodes",
)
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of loops: the scheduler node that it belongs to, and the operation that it does ("" for the structure around it)."""

    text: str
    node: str = ""
    op: str = ""


@dataclass(slots=True)
class View:
    """A scheduler node as it was at one moment. ``origins``: names of FX nodes; ``members``: the nodes of a fused one."""

    name: str
    kind: str
    buffers: tuple[str, ...]
    origins: tuple[str, ...]
    sizes: tuple[tuple[Any, ...], tuple[Any, ...]]
    body: Any = None
    ir: Any = None
    text: str = ""
    members: tuple[View, ...] = ()
    read_bytes: int | None = None
    written_bytes: int | None = None
    reads: tuple[str, ...] = ()
    device: str = ""

    @property
    def parts(self) -> tuple[View, ...]:
        return self.members or (self,)


FALLBACKS = {"FallbackKernel", "IndexPutFallback", "InplaceBernoulliFallback", "InplaceCopyFallback", "ScatterFallback"}
NO_CALLS = {"AssertScalar", "DynamicSelectStorageOffset", "DynamicSliceSize", "MultiOutput", "TMADescriptor"}
"""Extern kernels by their class alone: items of another call's result, and Python of the wrapper's own."""


def _kinds(ir: Any) -> set[str]:  # noqa: ANN401  # an ir.Operation
    return {kind.__name__ for kind in type(ir).__mro__}


def is_call(ir: Any) -> bool:  # noqa: ANN401  # an ir.ExternKernel
    """Whether the wrapper calls something for it, and does not only take an item of what another call gave."""
    return not _kinds(ir) & NO_CALLS


def is_extern_call(view: View) -> bool:
    """Whether it is a call of something that Inductor has not written."""
    return view.kind == "ExternKernelSchedulerNode" and is_call(view.ir)


def is_fallback(view: View) -> bool:
    """Whether it is a call of an ATen op that Inductor has neither loops nor a call of its own for (attention and sorts among them)."""
    return bool(_kinds(view.ir) & FALLBACKS)


def is_own_kernel(view: View) -> bool:
    """Whether it launches a Triton kernel that the script wrote."""
    return "UserDefinedTritonKernel" in _kinds(view.ir)


def has_lowering(ir: Any) -> bool:  # noqa: ANN401  # an ir.ExternKernel
    """Whether Inductor knows loops, or a call of its own, for some operands of the op that this falls back to."""
    from torch._inductor.lowering import lowerings

    rule = lowerings.get(getattr(ir, "op_overload", None))
    return rule is not None and not getattr(rule, "_is_fallback_handler", False)


def called_name(ir: Any) -> str:  # noqa: ANN401  # an ir.ExternKernel
    """``extern_kernels.mm``, or ``torch.ops.aten.linalg_qr.default``"""
    return str(
        getattr(ir, "python_kernel_name", None) or getattr(ir, "op_overload", None) or _call(ir, "get_kernel_name") or type(ir).__name__
    )


def view_of(node: Any) -> View:  # noqa: ANN401  # a scheduler node
    """The node as it is now."""
    inner = list(node.get_nodes())
    members = tuple(_plain_view(one) for one in inner) if len(inner) > 1 or inner[0] is not node else ()
    made = _plain_view(node)
    made.members = members
    made.origins = tuple(dict.fromkeys(name for part in made.parts for name in part.origins))
    return made


def _plain_view(node: Any) -> View:  # noqa: ANN401
    ir = getattr(node, "node", None)
    body = getattr(node, "_body", None)
    sizes = getattr(node, "_sizes", None) if body is not None else None
    view = View(
        name=node.get_name(),
        kind=type(node).__name__,
        buffers=tuple(_call(node, "get_buffer_names") or ()),
        origins=origin_names(ir, alone=body is None),
        sizes=(tuple(sizes[0]), tuple(sizes[1])) if sizes else ((), ()),
        body=body,
        ir=ir,
        reads=tuple(dict.fromkeys(dep.name for dep in getattr(getattr(node, "read_writes", None), "reads", ()))),
        device=str(_call(node, "get_device") or ""),
    )
    if body is None and (ir is None or not hasattr(ir, "inputs")):
        view.text = str(_call(node, "debug_str") or "")
    return view


def with_bytes(view: View, node: Any) -> View:  # noqa: ANN401
    """The view with the bytes that Inductor counts as read and written by the node."""
    view.read_bytes, view.written_bytes = _call(node, "get_read_buffer_sizes"), _call(node, "get_write_buffer_sizes")
    return view


def _call(owner: Any, name: str) -> Any:  # noqa: ANN401
    """What a method without arguments gives, None where there is none or where it does not apply to this kind of node."""
    method = getattr(owner, name, None)
    if method is None:
        return None
    try:
        return method()
    except (AttributeError, NotImplementedError, AssertionError, TypeError, KeyError, ValueError):
        return None


def origin_names(ir: Any, *, alone: bool) -> tuple[str, ...]:  # noqa: ANN401
    """The FX nodes that a buffer stands for; ``alone``: only the one that it was made for, where Inductor knows it."""
    own = getattr(ir, "origin_node", None)
    if alone and isinstance(own, Node):
        return (own.name,)
    found = _call(ir, "get_origins")
    origins = found if found is not None else getattr(ir, "origins", None) or ()
    return tuple(origin.name for origin in origins if isinstance(origin, Node))


def print_view(view: View) -> list[Line]:
    """The loops of a node; those of a fused node share their outer loops where these are equal."""
    if not view.members:
        return [_title(view), *_nest(view)]
    lines = [Line(f"# {view.name}: {len(view.members)} nodes fused", view.name)]
    groups: list[list[View]] = []
    for member in view.members:
        if groups and member.body is not None and groups[-1][0].body is not None and _shared([groups[-1][0], member]):
            groups[-1].append(member)
        else:
            groups.append([member])
    for group in groups:
        shared = _shared(group) if group[0].body is not None else ()
        lines += [Line(f"{'    ' * depth}for i{depth} in range({size}):", group[0].name) for depth, size in enumerate(shared)]
        for member in group:
            lines.append(Line("    " * len(shared) + _title(member).text, member.name))
            lines += _nest(member, len(shared))
    return lines


def _shared(views: Sequence[View]) -> tuple[Any, ...]:
    """The outer loops that all of these nodes begin with."""
    shared = []
    for sizes in zip(*(view.sizes[0] for view in views), strict=False):
        if any(str(size) != str(sizes[0]) for size in sizes):
            break
        shared.append(sizes[0])
    return tuple(shared)


def _title(view: View) -> Line:
    what = ", ".join(view.origins[:8]) + (", ..." if len(view.origins) > 8 else "")
    return Line(f"# {view.name}" + (f" gives {', '.join(view.buffers)}" if view.buffers else "") + (f": {what}" if what else ""), view.name)


def _nest(view: View, shared: int = 0) -> list[Line]:
    """The loops of a node inside of the ``shared`` outermost ones, which are there already."""
    if view.body is None:
        text = extern_text(view.ir) if view.ir is not None and hasattr(view.ir, "inputs") else view.text
        return [Line(line, view.name, "extern") for line in text.splitlines()]
    try:
        return _Printer(view).lines(shared)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):  # a body of a form that this printer does not know
        return [Line(line, view.name) for line in str(_call(view.body, "debug_str") or view.text).splitlines()]


def extern_text(ir: Any) -> str:  # noqa: ANN401  # an ir.ExternKernel
    """``buf7 = extern_kernels.mm(buf6, primals_2)``"""
    given = [_argument(value) for value in getattr(ir, "inputs", ())] + [
        _argument(value) for value in getattr(ir, "constant_args", ()) or ()
    ]
    given += [f"{key}={_argument(value)}" for key, value in (getattr(ir, "kwargs", None) or {}).items()]
    return f"{_call(ir, 'get_name') or '_'} = {called_name(ir)}({', '.join(given)})"


def _argument(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_argument, value))}]"
    return str(_call(value, "get_name") or value)[:200]


@dataclass(slots=True)
class _Printer:
    """Prints one body. ``values`` gives each FX node of the body the name or the constant that stands for it."""

    view: View
    values: dict[Node, str] = field(default_factory=dict)
    indices: dict[Node, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    made: list[Line] = field(default_factory=list)
    count: int = 0
    depth: int = 0

    def lines(self, shared: int) -> list[Line]:
        body, (outer, inner) = self.view.body, self.view.sizes
        for letter, variables in (("i", body.iter_vars), ("r", body.reduce_vars)):
            self.names |= {str(variable): f"{letter}{place}" for place, variable in enumerate(variables)}
        for place, size in enumerate(outer):
            if place >= shared:
                self.add(f"for i{place} in range({size}):", "")
            self.depth += 1
        for place, size in enumerate(inner):
            self.add(f"for r{place} in range({size}):", "")
            self.depth += 1
        self.graph(body.root_block.graph, len(outer))
        return self.made

    def add(self, text: str, op: str) -> None:
        self.made.append(Line("    " * self.depth + text, self.view.name, op))

    def graph(self, graph: Graph, outer: int | None = None) -> str:
        """Prints the nodes of a block; what a masked block gives."""
        result = ""
        for node in graph.nodes:
            if node.op == "output":
                result = self.value(node.args[0])
            elif node.op in ("call_method", "call_module", "call_function"):
                reduced = self.node(node)
                if reduced and outer is not None:
                    self.depth = outer
        return result

    def node(self, node: Node) -> bool:
        """Prints one node; whether it ends the reduction loops."""
        if node.op == "call_function":
            name = "getitem" if node.target is operator.getitem else str(getattr(node.target, "__name__", node.target))
            self.let(node, f"{self.value(node.args[0])}[{node.args[1]}]" if name == "getitem" else self.call(name, node.args), name)
            return False
        target = str(node.target)
        if node.op == "call_module":
            self.module(node, target)
            return False
        arguments = node.args[1:]  # the first is the handler of operations
        match target:
            case "load":
                self.let(node, f"{arguments[0]}[{self.index(arguments[1])}]", target)
            case "store":
                mode = node.kwargs.get("mode", arguments[3] if len(arguments) > 3 else None)
                sign = "+=" if mode == "atomic_add" else "="
                self.add(f"{arguments[0]}[{self.index(arguments[1])}] {sign} {self.value(arguments[2])}", target)
            case "store_reduction":
                self.add(f"{arguments[0]}[{self.index(arguments[1])}] = {self.value(arguments[2])}", target)
            case "constant":
                self.values[node] = self.value(arguments[0])
            case "index_expr":
                self.let(node, self.index(arguments[0]), target)
            case "to_dtype":
                self.let(node, f"{_dtype(arguments[1])}({self.value(arguments[0])})", target)
            case "reduction":
                self.let(node, f"{arguments[2]} of {self.value(arguments[3])}", str(arguments[2]))
                return True
            case _ if target in INFIX and len(arguments) == 2:
                self.let(node, f"{self.value(arguments[0])} {INFIX[target]} {self.value(arguments[1])}", target)
            case _:
                self.let(node, self.call(target, arguments, node.kwargs), target)
        return target in ("scan", "sort")

    def module(self, node: Node, target: str) -> None:
        if target == "get_index":
            self.indices[node] = self.expression(self.view.body.indexing_exprs[node.args[0]])
        elif target.startswith("set_indirect"):
            self.add(f"{target.removeprefix('set_')} = {self.value(node.args[0])}", "indirect_indexing")
        elif target.startswith("masked_subblock"):
            name = self.fresh(node)
            self.add(f"if {self.value(node.args[0])}:", "masked")
            self.depth += 1
            result = self.graph(self.view.body.subblocks[target].graph)
            self.add(f"{name} = {result}", "masked")
            self.depth -= 1
            self.add("else:", "masked")
            self.made.append(Line("    " * (self.depth + 1) + f"{name} = {self.value(node.args[1])}", self.view.name, "masked"))
        else:
            self.let(node, self.call(target, node.args), target)

    def let(self, node: Node, text: str, op: str) -> None:
        self.add(f"{self.fresh(node)} = {text}", op)

    def fresh(self, node: Node) -> str:
        self.values[node] = f"v{self.count}"
        self.count += 1
        return self.values[node]

    def call(self, name: str, arguments: Sequence[Any], keywords: Any = None) -> str:  # noqa: ANN401
        given = [self.value(argument) for argument in arguments]
        given += [f"{key}={self.value(value)}" for key, value in (keywords or {}).items()]
        return f"{name}({', '.join(given)})"

    def value(self, value: Any) -> str:  # noqa: ANN401
        if isinstance(value, Node):
            return self.values.get(value) or self.indices.get(value) or value.name
        if isinstance(value, tuple | list):
            return f"({', '.join(map(self.value, value))})"
        return _dtype(value)

    def index(self, value: Any) -> str:  # noqa: ANN401
        return self.indices.get(value, self.value(value)) if isinstance(value, Node) else self.expression(value)

    def expression(self, expression: Any) -> str:  # noqa: ANN401  # sympy
        return _WORD.sub(lambda word: self.names.get(word[0], word[0]), str(expression))


def _dtype(value: object) -> str:
    return str(value).removeprefix("torch.")[:200]
