"""The picture: well-formed, self-contained, complete, the same every time."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from icefield.declare import files
from icefield.graph import Edge, Graph, Node
from icefield.graph.svg import draw

SOURCE = files("landing/<a & b>/*.csv", schema="id BIGINT")


def graph_of(reads: dict[str, tuple[str, ...]]) -> Graph:
    nodes = {}
    for name, inputs in reads.items():
        edges = tuple(Edge(parameter=t, table=t, lookup=t.endswith("zones")) for t in inputs)
        nodes[name] = Node(name=name, edges=edges or (Edge(parameter="rows", source=SOURCE),), comment='a "b" <c> & d')
    return Graph(nodes=nodes, order=tuple(reads))


SMALL = {
    "raw.a": (),
    "raw.zones": (),
    "stg.b": ("raw.a", "raw.zones"),
    "mart.c": ("stg.b", "raw.a"),
    "mart.d": ("mart.c",),
}


def test_every_table_source_and_edge_is_drawn() -> None:
    picture = ElementTree.fromstring(draw(graph_of(SMALL)))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a", "zones", "b", "c", "d", "raw", "stg", "mart", "sources"} <= set(texts)
    assert texts.count("landing/<a & b>/*.csv") == 2
    paths = [element.get("class") for element in picture.iter("{http://www.w3.org/2000/svg}path")]
    assert len(paths) == 7
    assert paths.count("edge lookup") == 1


def test_it_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    text = draw(graph_of(SMALL))
    assert "<script" not in text
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in text


def test_the_same_graph_gives_the_same_bytes() -> None:
    assert draw(graph_of(SMALL)) == draw(graph_of(SMALL))


def test_rows_flow_to_the_right_and_no_two_boxes_overlap() -> None:
    boxes: dict[str, tuple[float, float, float, float]] = {}
    picture = ElementTree.fromstring(draw(graph_of(SMALL)))
    for number, group in enumerate(picture.iter("{http://www.w3.org/2000/svg}g")):
        box = group.find("{http://www.w3.org/2000/svg}rect")
        title = group.findtext("{http://www.w3.org/2000/svg}title", f"source {number}").partition(":")[0]
        assert box is not None
        boxes[title] = tuple(float(box.get(key, "0")) for key in ("x", "y", "width", "height"))  # type: ignore[assignment]
    for name, reads in SMALL.items():
        assert all(boxes[read][0] + boxes[read][2] < boxes[name][0] for read in reads)
    names = list(boxes)
    for position, one in enumerate(names):
        for other in names[position + 1 :]:
            (ax, ay, aw, ah), (bx, by, bw, bh) = boxes[one], boxes[other]
            assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay, (one, other)


@pytest.mark.parametrize("reads", [{}, {"a.b": ()}, {"a.x": (), "b.y": ("a.x",), "a.z": ("b.y",)}])
def test_small_and_awkward_graphs_are_drawn_too(reads: dict[str, tuple[str, ...]]) -> None:
    ElementTree.fromstring(draw(graph_of(reads)))
