"""Calls of higher-order ops, made ready for lowering: regions that are called by name are written out, dictionaries are named, and
values that the partitioner left out are filled in.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument, map_arg
from torch.fx.passes.fake_tensor_prop import FakeTensorProp


def prepare_calls(gm: GraphModule) -> None:
    """Changes the graph in place: it is AOTAutograd's, and nobody else has it."""
    if write_out_regions(gm):
        _describe_anew(gm)
    for node in list(gm.graph.nodes):
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            _name_dictionaries(gm, node)
            _complete_value(node)
    gm.recompile()


def write_out_regions(gm: GraphModule) -> bool:
    """Puts the ops of each region in the place of its calls, so that they can be fused with what is around them; whether there was one."""
    found = False
    while calls := gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph):
        found = True
        for call in calls:
            _write_out(gm, call)
    return found


def _write_out(gm: GraphModule, call: Node) -> None:
    region, _, *operands = call.args
    inner = getattr(gm, str(region.target))  # type: ignore[union-attr]  # the region is an attribute of the graph
    copies: dict[Node, Any] = dict(zip(inner.graph.find_nodes(op="placeholder"), operands, strict=True))
    results: Sequence[Any] = ()
    with gm.graph.inserting_before(call):
        for node in inner.graph.nodes:
            if node.op == "get_attr":
                name = f"{call.name}_{str(node.target).replace('.', '_')}"
                setattr(gm, name, operator.attrgetter(str(node.target))(inner))
                copies[node] = gm.graph.get_attr(name)
                copies[node].meta = dict(node.meta)
            elif node.op == "output":
                results = map_arg(node.args[0], copies.__getitem__)
            elif node.op != "placeholder":
                copies[node] = gm.graph.node_copy(node, copies.__getitem__)
    for item in list(call.users):
        _replace(item, results[item.args[1]])  # type: ignore[index]  # the result is a tuple: only items of it are used
        gm.graph.erase_node(item)
    gm.graph.erase_node(call)


def _replace(node: Node, value: Argument) -> None:
    """A result of a region may be a number, or None for a gradient that there is not."""
    for user in list(node.users):
        user.args = map_arg(user.args, lambda one: value if one is node else one)
        user.kwargs = map_arg(user.kwargs, lambda one: value if one is node else one)


def _describe_anew(gm: GraphModule) -> None:
    """Values of each node's own: those of a region describe all its calls at once."""
    inputs = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    mode = next((value.fake_mode for node in gm.graph.nodes if hasattr(value := node.meta.get("val"), "fake_mode")), None)
    if mode is not None:
        FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*inputs)


def _name_dictionaries(gm: GraphModule, call: Node) -> None:
    """Options of a call become attributes of the graph, as its functions are."""
    arguments = list(call.args)
    for place, value in enumerate(arguments):
        if isinstance(value, dict):
            name = f"{call.name}_options_{place}"
            setattr(gm, name, dict(value))
            with gm.graph.inserting_before(call):
                arguments[place] = gm.graph.get_attr(name)
    call.args = tuple(arguments)


def _complete_value(call: Node) -> None:
    """Gives a call its value where it has none: what the ops that take items of it have, or what the op that it runs gives.

    Random numbers that the backward pass needs again are drawn twice from one state, which a call saves and another one sets.
    """
    if "val" in call.meta:
        return
    items = {user.args[1]: user.meta["val"] for user in call.users if user.target is operator.getitem and "val" in user.meta}
    if items:
        call.meta["val"] = tuple(items.get(place) for place in range(max(items) + 1))  # type: ignore[type-var,operator]  # places
    elif str(call.target) == "run_with_rng_state":
        call.meta["val"] = _run(call)


def _run(node: Node) -> Any:  # noqa: ANN401  # whatever the op gives
    """The fake result of a call ``run_with_rng_state(state, op, ...)``."""

    def value(argument: Node) -> Any:  # noqa: ANN401  # any value
        return argument.meta["val"]

    _, op, *arguments = node.args
    arguments, keywords = map_arg(arguments, value), map_arg(node.kwargs, value)
    return op(*arguments, **keywords)  # type: ignore[operator]  # an OpOverload, on fake tensors
