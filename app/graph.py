"""A drawing becomes DOT text, which the page lays out with Graphviz in the browser. Labels are hostile text, quoted here."""

from __future__ import annotations

from compiler.trace import Drawing, Node

MAX_NODES, MAX_EDGES, MAX_LABEL = 700, 2_500, 240
_SHAPES = {"input": "box", "op": "box", "view": "box", "output": "box", "extern": "box", "kernel": "box", "buffer": "cylinder"}


def quoted(text: str) -> str:
    """The text as a DOT string, in which a backslash escapes nothing but itself and line breaks stay."""
    kept = "".join(sign for sign in text if sign == "\n" or sign.isprintable())
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def too_large(drawing: Drawing) -> bool:
    """Whether laying the drawing out would keep a browser busy for longer than its picture is worth."""
    return len(drawing.nodes) > MAX_NODES or len(drawing.edges) > MAX_EDGES


def dot(drawing: Drawing) -> str:
    """DOT text of the drawing. Node ``i`` gets the element id ``node-i``, so that the page finds it again; groups become clusters."""
    numbers = {node.id: index for index, node in enumerate(drawing.nodes)}
    lines = [
        "digraph {",
        '  graph [rankdir=TB, bgcolor="transparent", nodesep=0.22, ranksep=0.34, pad=0.1, fontname="Courier", fontsize=10]',
        '  node [shape=box, style=filled, fontname="Courier", fontsize=10, height=0.28, margin="0.1,0.05"]',
        '  edge [arrowsize=0.55, fontname="Courier", fontsize=9]',
    ]
    groups: dict[str, list[int]] = {}
    for index, node in enumerate(drawing.nodes):
        groups.setdefault(node.group, []).append(index)
    for position, (group, members) in enumerate(groups.items()):
        rows = [_node(index, drawing.nodes[index]) for index in members]
        if group:
            rows = [
                f"  subgraph cluster_{position} {{",
                f"    label={quoted(group[:MAX_LABEL])}; labeljust=l",
                *("  " + row for row in rows),
                "  }",
            ]
        lines += rows
    for edge in drawing.edges:
        if edge.source in numbers and edge.target in numbers:
            source = drawing.nodes[numbers[edge.source]]
            told = edge.label not in source.label.split("\n")  # a buffer is often named as the step that writes it
            label = f" [label={quoted(edge.label[:MAX_LABEL])}]" if edge.label and told else ""
            lines.append(f"  n{numbers[edge.source]} -> n{numbers[edge.target]}{label}")
    return "\n".join([*lines, "}"])


def _node(index: int, node: Node) -> str:
    shown = "\n".join(dict.fromkeys(node.label.split("\n")))  # a nest is often named as its op is
    label = shown if len(shown) <= MAX_LABEL else shown[:MAX_LABEL] + "…"
    return f'  n{index} [id="node-{index}", class="{node.kind}", shape={_SHAPES[node.kind]}, label={quoted(label or node.id)}]'
