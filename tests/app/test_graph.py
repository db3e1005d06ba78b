"""DOT text of drawings: what is hostile stays inside its quotes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.graph import MAX_NODES, dot, quoted, too_large
from compiler.trace import Drawing, Edge, Node


@given(st.text())
def test_a_quoted_string_ends_only_at_its_end(text):
    inside = quoted(text)[1:-1]
    position = 0
    while position < len(inside):
        assert inside[position] != '"'
        if inside[position] == "\\":
            assert inside[position + 1] in '\\"n'
            position += 1
        position += 1
    assert "\n" not in inside


def test_groups_are_clusters_and_dangling_edges_are_left_out():
    drawing = Drawing(
        nodes=(Node(id="a", label="a", group="k"), Node(id="b", label="", group="k"), Node(id="c", label="c")),
        edges=(Edge(source="a", target="c", label="8 bytes"), Edge(source="a", target="nowhere")),
    )
    text = dot(drawing)
    assert text.count("subgraph cluster_") == 1
    assert 'n0 -> n2 [label="8 bytes"]' in text
    assert "nowhere" not in text
    assert 'label="b"' in text, "a node without a label shows its id"
    assert text.count("{") == text.count("}")


def test_a_drawing_too_large_to_lay_out_is_not_laid_out():
    assert too_large(Drawing(nodes=tuple(Node(id=str(n), label="x") for n in range(MAX_NODES + 1))))
