"""Where a graph node comes from: the stack traces that Dynamo keeps, as spans of the visitor's file."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Mapping
from typing import TypeAlias

from torch.fx import Graph, Node

from compiler.observe.torch_names import fx_node_name
from compiler.spans import SNIPPET, Span, spans
from compiler.trace import Origin

OriginTable: TypeAlias = Mapping[str, Origin]
"""The origin of each node of a graph, by the node's name."""


def span_of(node: Node, modules: Mapping[str, Span]) -> Span | None:
    """The visitor's innermost expression that led to the node; outside of a snippet the innermost frame.

    ``modules``: where the snippet built each module, by the module's id as text. A layer inside of a container of PyTorch's, such as
    ``Sequential``, comes from where it was built, since the visitor's code calls the container only.
    """
    frames = spans(node.meta.get("stack_trace") or "")
    own = [span for file, span in frames if file == SNIPPET]
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    foreign = [str(key) for key, (_, kind) in stack.items() if getattr(kind, "__module__", "") != "__main__"]
    if foreign and foreign[-1] in modules and (not own or len(foreign) > 1):
        return modules[foreign[-1]]
    if own:
        return narrowed(own[-1], called(node))
    return None if SNIPPET in linecache.cache or not frames else frames[-1][1]


def narrowed(span: Span, name: str) -> Span:
    """The call of ``name`` inside of the marked expression, if that is an operator's: Dynamo marks the whole for the first call in it."""
    for expression in _expressions("".join(linecache.getlines(SNIPPET))):
        if (expression.lineno, expression.col_offset, expression.end_col_offset) != (span.line, span.column, span.end_column):
            continue
        if not isinstance(expression, ast.BinOp | ast.Compare | ast.UnaryOp):
            continue
        for inner in ast.walk(expression):
            if isinstance(inner, ast.Call) and inner.lineno == inner.end_lineno == span.line and _callee(inner) == name:
                return Span(inner.lineno, inner.col_offset, inner.lineno, inner.end_col_offset or span.end_column)
    return span


def _callee(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


@functools.lru_cache(maxsize=4)
def _expressions(source: str) -> tuple[ast.expr, ...]:
    try:
        return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.expr))
    except (SyntaxError, ValueError, RecursionError):
        return ()


def origin_of(node: Node, modules: Mapping[str, Span], *, nodes: tuple[str, ...], op: str) -> Origin:
    span = span_of(node, modules)
    if span is None:
        return Origin(nodes=nodes, op=op)
    return Origin(line=span.line, column=span.column, end_line=span.end_line, end_column=span.end_column, nodes=nodes, op=op)


def dynamo_origins(graph: Graph, modules: Mapping[str, Span]) -> dict[str, Origin]:
    """The origins of the nodes of a graph of Dynamo's."""
    return {node.name: origin_of(node, modules, nodes=(node.name,), op=called(node)) for node in graph.nodes}


def aten_origins(graph: Graph, names: Mapping[str, str], before: OriginTable) -> dict[str, Origin]:
    """The origins of the nodes of a graph of AOTAutograd's, by those of Dynamo's graph.

    ``names``: Dynamo's name of each placeholder that has one.
    """
    table: dict[str, Origin] = {}
    for node in graph.nodes:
        source = names.get(node.name) or fx_node_name(node)
        path = tuple(dict.fromkeys(name for name in (source, node.name) if name))
        op = str(node.meta.get("original_aten") or called(node))
        known = before.get(source)
        table[node.name] = known.model_copy(update={"nodes": path, "op": op}) if known else origin_of(node, {}, nodes=path, op=op)
    return table


def called(node: Node) -> str:
    """The name of what a node calls, "" for inputs, attributes and outputs."""
    if node.op in ("placeholder", "output", "get_attr"):
        return ""
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.target))
