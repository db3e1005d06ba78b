"""Which pass changed an FX graph, and how: while ``watching_passes`` is open, every named pass of Inductor's is noted.

A graph is remembered as one row a node. Nodes keep their arguments in immutable tuples, so that comparing the identities of these tells
whether anything changed, and texts are made of changed graphs only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest.mock import patch

from torch.fx import Graph, GraphModule, Node

Phase = Literal["pre-grad", "joint", "post-grad"]

RELIES_ON = (
    "torch._inductor.compile_fx._recursive_pre_grad_passes",
    "torch._inductor.compile_fx._recursive_joint_graph_passes",
    "torch._inductor.compile_fx._recursive_post_grad_passes",
    "torch._inductor.pattern_matcher.PatternMatcherPass.apply",
    "torch.fx.passes.graph_transform_observer.GraphTransformObserver.__enter__",
    "torch.fx.passes.graph_transform_observer.GraphTransformObserver.__exit__",
)
BETWEEN = "between named passes"


@dataclass(frozen=True, slots=True)
class Row:
    """A node as it was at one moment."""

    node: Node
    name: str
    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def same(self, other: Row) -> bool:
        """Whether the node is called with the very same arguments; equality of values would take long."""
        return self.node is other.node and self.target is other.target and self.args is other.args and self.kwargs is other.kwargs


Rows = tuple[Row, ...]


def rows_of(graph: Graph) -> Rows:
    return tuple(Row(node, node.name, node.op, node.target, node._args, node._kwargs) for node in graph.nodes)


def same_rows(first: Rows, second: Rows) -> bool:
    return len(first) == len(second) and all(one.same(other) for one, other in zip(first, second, strict=True))


@dataclass(slots=True)
class Change:
    """What one pass did to one graph. ``matches``: how many patterns it replaced by its own count, None for a pass without patterns."""

    phase: Phase
    name: str
    before: Rows
    after: Rows
    matches: int | None = None


@dataclass(slots=True)
class PassLog:
    """The changes of one compilation in order, and how often each pass ran."""

    changes: list[Change] = field(default_factory=list)
    ran: dict[tuple[Phase, str], int] = field(default_factory=dict)
    seconds: dict[Phase, float] = field(default_factory=dict)
    phase: Phase | None = None
    active: bool = False
    _stack: list[str] = field(default_factory=list)
    _last: dict[int, tuple[Graph, Rows]] = field(default_factory=dict)

    def look(self, graph: Graph | None, name: str) -> None:
        """The graph as it is now; what changed since the last look was done by the pass ``name``."""
        if graph is None or self.phase is None:
            return
        now = rows_of(graph)
        known = self._last.get(id(graph))
        self._last[id(graph)] = (graph, now)
        if known is not None and not same_rows(known[1], now):
            self.changes.append(Change(self.phase, name, known[1], now))

    def enter(self, graph: Graph | None, name: str) -> None:
        self.look(graph, self.current)
        self._stack.append(name)
        if self.phase is not None:
            self.ran[self.phase, self.current] = self.ran.get((self.phase, self.current), 0) + 1

    def leave(self, graph: Graph | None, matches: int | None = None) -> None:
        before = len(self.changes)
        self.look(graph, self.current)
        if len(self.changes) > before:
            self.changes[-1].matches = matches
        if self._stack:
            self._stack.pop()

    @property
    def current(self) -> str:
        return " > ".join(dict.fromkeys(self._stack)) if self._stack else BETWEEN

    @contextmanager
    def running(self, phase: Phase, gm: GraphModule) -> Iterator[None]:
        """The passes of a phase run inside."""
        outer, self.phase = self.phase, phase
        start = time.perf_counter()
        self.look(gm.graph, BETWEEN)
        try:
            yield
        finally:
            self.look(gm.graph, BETWEEN)
            self.phase = outer
            if outer is None:
                self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start

    def of(self, *phases: Phase) -> list[Change]:
        return [change for change in self.changes if change.phase in phases]


@contextmanager
def watching_passes(log: PassLog) -> Iterator[None]:
    """Tells ``log`` what the FX passes of Inductor change inside, unless something outside does so already."""
    if log.active:
        yield
        return
    from torch._inductor import compile_fx
    from torch._inductor.pattern_matcher import PatternMatcherPass
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    enter, leave, apply = GraphTransformObserver.__enter__, GraphTransformObserver.__exit__, PatternMatcherPass.apply

    def entered(self: Any) -> Any:  # noqa: ANN401  # the observer itself
        log.enter(getattr(self.gm, "graph", None), str(self.passname))
        return enter(self)

    def left(self: Any, *error: Any) -> Any:  # noqa: ANN401
        log.leave(getattr(self.gm, "graph", None))
        return leave(self, *error)

    def applied(self: Any, gm: Any) -> int:  # noqa: ANN401
        graph = gm.graph if isinstance(gm, GraphModule) else gm
        place = len(log.changes)
        log.look(graph, log.current)
        found: int = apply(self, gm)
        for change in log.changes[place:]:
            change.matches = (change.matches or 0) + found
        return found

    with ExitStack() as stack:
        stack.enter_context(patch.object(GraphTransformObserver, "__enter__", entered))
        stack.enter_context(patch.object(GraphTransformObserver, "__exit__", left))
        stack.enter_context(patch.object(PatternMatcherPass, "apply", applied))
        phases: tuple[tuple[str, Phase], ...] = (
            ("_recursive_pre_grad_passes", "pre-grad"), ("_recursive_joint_graph_passes", "joint"),
            ("_recursive_post_grad_passes", "post-grad"),
        )  # fmt: skip
        for name, phase in phases:
            stack.enter_context(patch.object(compile_fx, name, _in_phase(log, phase, getattr(compile_fx, name))))
        log.active = True
        try:
            yield
        finally:
            log.active = False


def _in_phase(log: PassLog, phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    def inside(gm: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # Inductor's own function
        if not isinstance(gm, GraphModule):
            return function(gm, *args, **kwargs)
        with log.running(phase, gm):
            return function(gm, *args, **kwargs)

    return inside
