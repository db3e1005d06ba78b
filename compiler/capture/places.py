"""From names of FX nodes, as Inductor keeps them, to places in a stage's table of origins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph

from compiler.capture.origins import OriginTable
from compiler.observe.inductor_loops import Line, View
from compiler.trace import Origin

MAX_PLACES = 200
MAX_MARKS = 300_000
"""How many places all lines of a text may have together: an event of the trace is bounded."""


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes of one part's graph: ``index`` gives the place of each name, ``ops`` the op that it calls, by its plain name."""

    origins: tuple[Origin, ...]
    index: dict[str, int]
    ops: dict[str, str]

    @staticmethod
    def of(graph: Graph, origins: OriginTable) -> Places:
        nodes = list(graph.nodes)
        return Places(
            tuple(origins[node.name] for node in nodes),
            {node.name: place for place, node in enumerate(nodes)},
            {node.name: op_name(node.target) for node in nodes},
        )

    def marks(self, names: Iterable[str], op: str = "") -> tuple[int, ...]:
        """The places of these nodes; if some of them call ``op``, of those only."""
        known = [name for name in dict.fromkeys(names) if name in self.index]
        doing = [name for name in known if op and self.ops[name] == op]
        return tuple(sorted(self.index[name] for name in doing or known))[:MAX_PLACES]


def op_name(target: object) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target.overloadpacket.__name__)
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


def fitted(marks: Sequence[tuple[int, ...]], share: float = 1.0) -> list[tuple[int, ...]]:
    """The marks of a text, with fewer places a line where there would be too many. ``share``: what the text is of all the stage's."""
    if sum(map(len, marks)) <= MAX_MARKS * share:
        return list(marks)
    limit = max(1, int(MAX_MARKS * share) // len(marks))
    return [places[:limit] for places in marks]


ALIASES = {"truediv": "div", "max": "amax", "min": "amin", "to_dtype": "convert_element_type"}


def line_marks(lines: Sequence[Line], views: dict[str, View], places: Places) -> list[tuple[int, ...]]:
    """The origins of each line of printed loops: the nodes that the scheduler node stands for, narrowed to those that do the line's op."""
    return fitted([places.marks(views[line.node].origins, ALIASES.get(line.op, line.op)) if line.node in views else () for line in lines])


def every_view(views: Iterable[View]) -> dict[str, View]:
    """The views and their members, by name."""
    found: dict[str, View] = {}
    for view in views:
        for one in (view, *view.members):
            found.setdefault(one.name, one)
    return found
