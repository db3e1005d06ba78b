"""What the partitioner leaves out on calls of higher-order ops that it makes itself: their values.

Random numbers that the backward pass needs again are drawn twice from one state, which a call saves and another one sets.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg


def complete_values(gm: GraphModule) -> None:
    """Gives a call its value where it has none: what the ops that take items of it have, or what the op that it runs gives."""
    for node in gm.graph.nodes:
        if not isinstance(node.target, torch._ops.HigherOrderOperator) or "val" in node.meta:
            continue
        items = {user.args[1]: user.meta["val"] for user in node.users if user.target is operator.getitem and "val" in user.meta}
        if items:
            node.meta["val"] = tuple(items.get(place) for place in range(max(items) + 1))
        elif str(node.target) == "run_with_rng_state":
            node.meta["val"] = _run(node)


def _run(node: Node) -> Any:  # noqa: ANN401  # whatever the op gives
    """The fake result of a call ``run_with_rng_state(state, op, ...)``."""

    def value(argument: Node) -> Any:  # noqa: ANN401  # any value
        return argument.meta["val"]

    _, op, *arguments = node.args
    arguments, keywords = map_arg(arguments, value), map_arg(node.kwargs, value)
    return op(*arguments, **keywords)  # type: ignore[operator]  # an OpOverload, on fake tensors
