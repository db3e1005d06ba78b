"""The ``joint`` stage: the graph of forward and backward together, where the partitioner cut it, and what is saved in between.

``joint_shown`` must be asked before the partitioner runs, which changes the graph; ``describe_joint`` afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch.fx import GraphModule, Node

from compiler.capture.listing import Listing, describe, drawing, listing, node_value, target_name
from compiler.capture.origins import OriginTable, aten_origins
from compiler.recorder import Draft
from compiler.trace import Decision, Drawing, Origin

NO_ORIGINS: Mapping[str, Origin] = MappingProxyType({})
INFERENCE = "No input of the graph requires a gradient: there is one graph, and nothing to partition."


@dataclass(frozen=True, slots=True)
class ShownJoint:
    """The joint graph as it was before it was partitioned. ``places``: the position of each node's name in ``origins``."""

    listing: Listing
    origins: tuple[Origin, ...]
    drawing: Drawing | None
    places: dict[str, int]
    operations: int


def joint_shown(gm: GraphModule, before: OriginTable, device: str = "") -> ShownJoint:
    """The joint graph of AOTAutograd; ``before`` holds the origins of Dynamo's nodes, ``device`` stands for the tensors' own if given."""
    origins = aten_origins(gm.graph, {}, before)
    names = [node.name for node in gm.graph.nodes]
    return ShownJoint(
        listing(gm.graph, "joint", device),
        tuple(origins[name] for name in names),
        drawing(gm.graph, device),
        {name: place for place, name in enumerate(names)},
        len(_operations(gm)),
    )


def describe_joint(
    draft: Draft,
    joint: ShownJoint,
    forward: GraphModule,
    backward: GraphModule,
    forward_outputs: int,
    device: str = "",
    inherited: Mapping[str, Origin] = NO_ORIGINS,
) -> None:
    """Fills in the stage. ``forward_outputs``: how many results of the forward graph are the visitor's; the others are saved.

    ``inherited``: the origins of nodes that passes made before the graph was cut.
    """
    joint = _with(joint, inherited)
    draft.origins = joint.origins
    draft.section("Joint graph", joint.listing.text, "python", joint.listing.marks)
    draft.drawing = joint.drawing
    first, second = _operations(forward), _operations(backward)
    both = [name for name in second if name in first]
    saved = saved_values(forward, forward_outputs)
    _partition(draft, joint, first, second, device)
    sizes = [byte_count(node_value(node)) for node in saved]
    rows = [
        (f"{node.name:<32} {size:>14,} bytes  {describe(node_value(node), device)}", _marks(joint, node.name))
        for node, size in zip(saved, sizes, strict=True)
    ]
    rows.append((f"{'total':<32} {sum(sizes):>14,} bytes", ()))
    draft.section("Saved for backward", "\n".join(text for text, _ in rows), "text", [marks for _, marks in rows])
    draft.decisions += [_kept(joint, node, size, device) for node, size in zip(saved, sizes, strict=True)]
    draft.decisions += [_recomputed(joint, first[name], device) for name in both]
    draft.facts |= {
        "operations": joint.operations,
        "forward_operations": len(first),
        "backward_operations": len(second),
        "recomputed_operations": len(both),
        "saved_tensors": sum(isinstance(node_value(node), torch.Tensor) for node in saved),
        "saved_bytes": sum(sizes),
    }


def _with(joint: ShownJoint, inherited: Mapping[str, Origin]) -> ShownJoint:
    more = {name: origin for name, origin in inherited.items() if name not in joint.places}
    places = {**joint.places, **{name: len(joint.origins) + place for place, name in enumerate(more)}}
    return replace(joint, origins=(*joint.origins, *more.values()), places=places)


def saved_values(forward: GraphModule, forward_outputs: int) -> list[Node]:
    """What the forward graph returns for the backward graph, each once."""
    (output,) = (node for node in forward.graph.nodes if node.op == "output")
    results = output.args[0] if isinstance(output.args[0], Sequence) else [output.args[0]]
    return list(dict.fromkeys(value for value in results[forward_outputs:] if isinstance(value, Node)))


def byte_count(value: object) -> int:
    """The bytes of a tensor, 0 of anything else; open sizes count with the hint that they were traced with."""
    if not isinstance(value, torch.Tensor):
        return 0
    count = value.numel() * value.element_size()
    return count if isinstance(count, int) else int(getattr(count.node, "hint", None) or 0)


def _partition(draft: Draft, joint: ShownJoint, first: dict[str, Node], second: dict[str, Node], device: str) -> None:
    rows: list[tuple[str, tuple[int, ...]]] = []
    for title, names in (
        ("# Forward only", [name for name in first if name not in second]),
        ("# Backward only", [name for name in second if name not in first]),
        ("# In both: computed again in the backward pass", [name for name in second if name in first]),
    ):
        rows += [("", ())] * bool(rows) + [(f"{title}: {len(names)}", ())]
        for name in names:
            node = first.get(name) or second[name]
            rows.append((f"{name:<32} {target_name(node):<40} {describe(node_value(node), device)}".rstrip(), _marks(joint, name)))
    draft.section("Partition", "\n".join(text for text, _ in rows), "text", [marks for _, marks in rows])


def _operations(gm: GraphModule) -> dict[str, Node]:
    return {node.name: node for node in gm.graph.nodes if node.op.startswith("call")}


def _marks(joint: ShownJoint, name: str) -> tuple[int, ...]:
    place = joint.places.get(name)
    return () if place is None else (place,)


def _kept(joint: ShownJoint, node: Node, size: int, device: str) -> Decision:
    whose = "an input of the forward pass" if node.op == "placeholder" else "a result of the forward pass"
    return Decision(
        subject=node.name[:400],
        verdict="kept",
        rule="saved",
        reason=f"The partitioner keeps it for the backward pass: {whose}, {describe(node_value(node), device)}."[:4_000],
        numbers={"bytes": size},
        origins=_marks(joint, node.name),
    )


def _recomputed(joint: ShownJoint, node: Node, device: str) -> Decision:
    return Decision(
        subject=node.name[:400],
        verdict="chosen",
        rule="recomputed",
        reason=f"The partitioner has the backward pass compute it again instead of keeping {describe(node_value(node), device)}."[:4_000],
        numbers={"bytes": byte_count(node_value(node))},
        origins=_marks(joint, node.name),
    )
