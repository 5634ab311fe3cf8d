"""dbt's selectors, by the examples of its documentation."""

from __future__ import annotations

import pytest

from icefield.errors import UnknownSelector
from icefield.graph import Edge, Graph, Node, select

# raw.a -> stg.a -> int.a -> mart.x -> mart.y ; raw.b -> stg.b -> mart.x ; raw.c -> mart.z
READS = {
    "raw.a": (),
    "raw.b": (),
    "raw.c": (),
    "stg.stg_a": ("raw.a",),
    "stg.stg_b": ("raw.b",),
    "mid.mid_a": ("stg.stg_a",),
    "mart.x": ("mid.mid_a", "stg.stg_b"),
    "mart.y": ("mart.x",),
    "mart.z": ("raw.c",),
}
TAGS = {"stg.stg_a": ("nightly",), "stg.stg_b": ("nightly", "slow"), "mart.x": ("finance",), "mart.y": ("finance",)}


@pytest.fixture
def graph() -> Graph:
    nodes = {
        name: Node(name=name, edges=tuple(Edge(parameter=t, table=t) for t in reads), tags=TAGS.get(name, ()))
        for name, reads in READS.items()
    }
    return Graph(nodes=nodes, order=tuple(READS))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("mart.x", "mart.x"),
        ("x", "mart.x"),
        ("+mid_a", "raw.a stg.stg_a mid.mid_a"),
        ("mid_a+", "mid.mid_a mart.x mart.y"),
        ("+mid_a+", "raw.a stg.stg_a mid.mid_a mart.x mart.y"),
        ("1+mart.x", "stg.stg_b mid.mid_a mart.x"),
        ("2+mart.x", "raw.b stg.stg_a stg.stg_b mid.mid_a mart.x"),
        ("stg_a+1", "stg.stg_a mid.mid_a"),
        ("1+mid_a+1", "stg.stg_a mid.mid_a mart.x"),
        ("@stg_a", "raw.a raw.b stg.stg_a stg.stg_b mid.mid_a mart.x mart.y"),
        ("tag:nightly", "stg.stg_a stg.stg_b"),
        ("tag:n*", "stg.stg_a stg.stg_b"),
        ("+tag:slow", "raw.b stg.stg_b"),
        ("tag:nightly+1", "stg.stg_a stg.stg_b mid.mid_a mart.x"),
        ("stg.*", "stg.stg_a stg.stg_b"),
        ("stg", "stg.stg_a stg.stg_b"),
        ("stg_?", "stg.stg_a stg.stg_b"),
        ("mart.[x-y]", "mart.x mart.y"),
        ("*_a", "stg.stg_a mid.mid_a"),
        ("mart.z raw.c", "raw.c mart.z"),
        ("tag:nightly,tag:slow", "stg.stg_b"),
        ("+mart.x,stg.* mart.z", "stg.stg_a stg.stg_b mart.z"),
        ("tag:slow,tag:finance", ""),
        ("fqn:mart.x", "mart.x"),
        ("*", " ".join(READS)),
    ],
)
def test_selectors_mean_what_they_mean_in_dbt(graph: Graph, selector: str, expected: str) -> None:
    assert select(graph, selector) == tuple(expected.split())


def test_nothing_selected_means_everything(graph: Graph) -> None:
    assert select(graph) == select(graph, "") == select(graph, []) == tuple(READS)


def test_several_arguments_are_a_union(graph: Graph) -> None:
    assert select(graph, ["raw.a", "raw.b raw.c"]) == ("raw.a", "raw.b", "raw.c")


def test_exclude_is_taken_away_last(graph: Graph) -> None:
    assert select(graph, "+mart.x", exclude="raw.* mid_a") == ("stg.stg_a", "stg.stg_b", "mart.x")
    assert select(graph, exclude="+mart.y") == ("raw.c", "mart.z")


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        ("mart.xx", "did you mean `mart.x`"),
        ("+stg_aa+", "did you mean `stg.stg_a`"),
        ("tag:nigthly", "did you mean `nightly`"),
        ("gold.*", "matches no table"),
        ("path:models", "uses the unknown method `path:`"),
        ("@mart.x+", "@ already selects everything downstream"),
        ("+", "is not valid"),
        (",", "is empty"),
        ("tag:", "is not valid"),
    ],
)
def test_an_unknown_selector_is_an_error_with_suggestions(graph: Graph, selector: str, says: str) -> None:
    with pytest.raises(UnknownSelector) as refused:
        select(graph, selector)
    assert says in str(refused.value)
    with pytest.raises(UnknownSelector):
        select(graph, exclude=selector)


def test_a_last_part_that_two_tables_have_is_not_guessed() -> None:
    graph = Graph(nodes={name: Node(name=name) for name in ("a.t", "b.t")}, order=("a.t", "b.t"))
    with pytest.raises(UnknownSelector, match=r"a\.t, b\.t"):
        select(graph, "t")
    assert select(graph, "*.t") == ("a.t", "b.t")
