"""Where the nodes come from that a pass put into a graph: from what it took out.

A pattern that is replaced leaves new nodes without the visitor's stack; they get the place of the first node that was replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.capture.origins import OriginTable, origin_of
from compiler.observe.inductor_passes import Change, Row
from compiler.observe.torch_names import fx_node_name
from compiler.trace import Origin


@dataclass(slots=True)
class Inherited:
    """``origins``: places in the snippet for names of nodes that have none of their own. ``seen``: how many changes it has learnt from."""

    origins: dict[str, Origin] = field(default_factory=dict)
    seen: int = 0

    def learn(self, changes: Sequence[Change], dynamo: OriginTable) -> None:
        """Learns from the changes that it has not seen yet. ``dynamo``: the origins of the nodes of Dynamo's graph."""
        for change in changes[self.seen :]:
            kept, known = {row.name for row in change.after}, {row.name for row in change.before}
            removed = [row for row in change.before if row.name not in kept]
            places = [found for row in removed if (found := self._origin(row, dynamo)).line]
            for row in change.after:
                if row.name not in known and places:
                    self.origins.setdefault(row.name, places[0])
        self.seen = len(changes)

    def _origin(self, row: Row, dynamo: OriginTable) -> Origin:
        source = fx_node_name(row.node)
        return dynamo.get(source) or self.origins.get(row.name) or origin_of(row.node, {}, nodes=(row.name,), op="")

    def completed(self, table: OriginTable) -> OriginTable:
        """The table, with a place for every node that has none and inherits one."""
        return {name: self._filled(name, origin) for name, origin in table.items()}

    def _filled(self, name: str, origin: Origin) -> Origin:
        place = self.origins.get(name)
        if origin.line or place is None:
            return origin
        nodes = tuple(dict.fromkeys([*place.nodes[:1], *origin.nodes]))[:200]
        return place.model_copy(update={"nodes": nodes, "op": origin.op})
