"""ATen to loop IR: a functional graph comes in, loop nests and extern calls over named buffers go out."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch.fx import GraphModule, Node

from compiler.errors import CompileError, Unsupported
from compiler.ir import OpenNumber, Ref, Symbol
from compiler.lowering import create, index, pointwise, pooling, reduction, scan, scatter, search
from compiler.lowering.graph import RULES, Lowered, Lowering, Result, TracedSizes, overload_name
from compiler.lowering.libraries import library_for
from compiler.lowering.pointwise import lower_pointwise
from compiler.sizes import Binding, Sym, found
from compiler.target import Target
from compiler.trace import Origin

__all__ = ["RULES", "WHOLE", "Lowered", "create", "index", "lower", "pointwise", "pooling", "reduction", "scan", "scatter", "search"]

WHOLE = frozenset(RULES) | {
    "aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default", "aten.convolution.default",
    "aten.convolution_backward.default",
}  # fmt: skip
"""Overloads that capture must not decompose: lowering has a rule for them, or a library takes them whole."""


def lower(gm: GraphModule, origins: Mapping[str, Origin], target: Target, *, retarget: bool, sizes: TracedSizes | None = None) -> Lowered:
    """The loop IR of an ATen graph whose nodes carry fake tensors in ``meta["val"]``.

    ``origins`` gives the origin of a node by name. ``retarget``: the tensors live on the CPU but stand for ones on the GPU ``target``.
    ``sizes``: what its open sizes are, if it has any; one that no input has becomes a constant, with a guard.

    Raises CompileError where a node can be neither a nest nor an extern call.
    """
    while True:
        lowered = lower_once(gm, origins, target, retarget, sizes)
        known = {binding.symbol for binding in lowered.graph.symbols}
        unknown = sorted({name for size in found(lowered.graph) for name in size.symbols()} - known)
        if sizes is None or not unknown:
            return lowered
        for name in unknown:
            sizes.specialise(name)


def lower_once(gm: GraphModule, origins: Mapping[str, Origin], target: Target, retarget: bool, sizes: TracedSizes | None) -> Lowered:
    lowering = Lowering(target, retarget, sizes=sizes)
    inputs: list[str | None] = []
    outputs: tuple[Ref | Symbol | OpenNumber | None, ...] = ()
    for node in gm.graph.nodes:
        lowering.origin = len(lowering.origins)
        lowering.origins.append(origins.get(node.name, Origin(nodes=(node.name,))))
        match node.op:
            case "placeholder":
                inputs.append(_placeholder(lowering, node, len(inputs)))
            case "get_attr":
                _attribute(lowering, gm, node)
            case "output":
                outputs = tuple(_output(lowering, item) for item in _flat(node.args[0]))
            case _:
                lowering.results[node] = _call(lowering, node)
    return Lowered(lowering.graph(inputs, outputs), lowering.constants, tuple(lowering.decisions))


def _placeholder(lowering: Lowering, node: Node, place: int) -> str | None:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        buffer = lowering.buffer(node.name, value)
        lowering.results[node] = lowering.own(buffer, value)
        for axis, size in enumerate(buffer.shape):
            _bind(lowering, size, place, axis)
        return buffer.name
    number = lowering.results[node] = symbolic(lowering, value)
    _bind(lowering, number, place, None)
    return None


def _bind(lowering: Lowering, size: object, place: int, axis: int | None) -> None:
    """Remember what an input says of a symbol, if it says all of it."""
    if not isinstance(size, Sym):
        return
    linear = [(monomial[0], times) for monomial, times in size.terms if len(monomial) == 1]
    plus = next((times for monomial, times in size.terms if not monomial), 0)
    if len(linear) + bool(plus) != len(size.terms) or len(linear) != 1 or linear[0][0].op:
        return
    (atom, times), before = linear[0], next((one for one in lowering.symbols if one.symbol == linear[0][0].name), None)
    if before is None or (before.axis is not None and axis is None and (times, plus) == (1, 0)):
        lowering.symbols[:] = [*(one for one in lowering.symbols if one is not before), Binding(atom.name, place, axis, times, plus)]


def symbolic(lowering: Lowering, value: object) -> Result:
    """A number of the graph: open ones by their symbols, truths by a guard."""
    if isinstance(value, torch.SymInt):
        return lowering.size(value)
    if isinstance(value, torch.SymFloat):
        if lowering.sizes is None:
            raise CompileError("loops", f"the number {value} is symbolic", hint="compile with dynamic=False")
        return Symbol(lowering.sizes.python(value))
    return bool(value) if isinstance(value, torch.SymBool) else cast(Result, value)


def _attribute(lowering: Lowering, gm: GraphModule, node: Node) -> None:
    value: object = gm
    for part in str(node.target).split("."):
        value = getattr(value, part)
    if isinstance(value, torch.Tensor):
        buffer = lowering.buffer(node.name, value)
        lowering.constants[buffer.name] = value
        lowering.results[node] = lowering.own(buffer, node.meta.get("val", value))
    else:
        lowering.constants[node.name] = value
        lowering.results[node] = Symbol(node.name)


def _call(lowering: Lowering, node: Node) -> Result:
    if node.target is operator.getitem:
        return _item(lowering, node)
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | bool | int | float):
        return symbolic(lowering, value)
    known = lowering.seen_through(node, value)
    if known is not None:
        return known
    if isinstance(value, list | tuple) and value:
        views = [lowering.seen_through(node, item) for item in value]
        if all(view is not None for view in views):
            return tuple(views)
    if not isinstance(node.target, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
        raise CompileError("loops", f"a call of {overload_name(node.target)} is no ATen op", hint="report this program")
    op = overload_name(node.target)
    if op not in RULES and _is_view(node.target):
        view = lowering.view_of(node.args[0], value)
        if view is not None:
            return view
    library = library_for(op)
    why = ""
    mark = lowering.mark()
    if isinstance(node.target, torch._ops.OpOverload):
        try:
            rule = RULES.get(op)
            result = rule(lowering, node) if rule else lower_pointwise(lowering, node)
            if result is not None:
                return result
        except Unsupported as error:
            why = error.message
            lowering.undo(mark)
    if why and library.rule == "fallback":
        return lowering.extern(node, library.name(lowering.target), "unsupported", f"PyTorch's own kernel is called: {why}.")
    return lowering.extern(node, library.name(lowering.target), library.rule, library.reason)


def _is_view(target: object) -> bool:
    """Whether the result is the operand's memory."""
    if not isinstance(target, torch._ops.OpOverload) or len(target._schema.returns) != 1:
        return False
    alias = target._schema.returns[0].alias_info
    return alias is not None and not alias.is_write


def _item(lowering: Lowering, node: Node) -> Result:
    whole = lowering.results[cast(Node, node.args[0])]
    if not isinstance(whole, tuple):
        raise CompileError("loops", "an item is taken of a result that is no tuple")
    return whole[cast(int, node.args[1])]


def _output(lowering: Lowering, item: object) -> Ref | Symbol | OpenNumber | None:
    if isinstance(item, Node):
        result = lowering.results[item]
        if isinstance(result, tuple) or (isinstance(result, Symbol) and result.text in lowering.constants):
            raise CompileError("loops", "a result of the graph is neither a tensor nor a number")
        return result
    return cast("OpenNumber | None", item)


def _flat(results: object) -> Sequence[object]:
    return results if isinstance(results, list | tuple) else [results]
