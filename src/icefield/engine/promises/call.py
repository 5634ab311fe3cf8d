"""A declared function, called with empty inputs: what its proof starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from icefield.declare import ByKey
from icefield.engine.promises.anchors import KEY, ROW, Input, placed
from icefield.engine.promises.spark_plans import tree_of
from icefield.engine.promises.values import column, value_of
from icefield.engine.refresh.keys import key_of
from icefield.errors import KeyUnknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from icefield.engine.promises.plan_tree import Tree
    from icefield.engine.promises.values import Value
    from icefield.graph import Edge, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function called with empty inputs: its output, and the author's line that made each frame."""

    node: Node
    function: object
    inputs: Mapping[str, DataFrame]
    output: DataFrame
    lines: Sequence[tuple[str, DataFrame]] = ()


def inputs_of(call: Call, anchors: Sequence[str]) -> list[Input]:
    """The parameters of a call with the anchors that its proof follows."""
    edges = call.node.edges
    on = sorted({name for edge in edges for name in edge.on})
    return [_input(call, edge, anchors, on) for edge in edges]


def _input(call: Call, edge: Edge, anchors: Sequence[str], on: Sequence[str]) -> Input:
    frame = call.inputs[edge.parameter]
    columns = tuple(frame.columns)
    places = {name: placed(number) for number, name in enumerate(columns)}
    if edge.lookup:
        followed = isinstance(call.node.refresh, ByKey) and edge.on
        own = {edge.parameter: {name: places[name] for name in edge.on}} if followed else {}
        return Input(edge.parameter, columns, own)
    found: dict[str, Mapping[str, Value]] = {ROW: {}} if ROW in anchors else {}
    if KEY in anchors:
        found[KEY] = _keys(call.node, edge, frame, places)
    carried = tuple(name for name in on if name in places)
    return Input(edge.parameter, columns, found, carried)


def _keys(node: Node, edge: Edge, frame: DataFrame, places: Mapping[str, Value]) -> dict[str, Value]:
    """The key of an input's rows as values of its columns."""
    texts = key_of(node, edge, frame.columns)
    own = {name: f"`{name}`" for name in places}
    if all(text in own.values() for text in texts.values()):
        return {key: places[text[1:-1]] for key, text in texts.items()}
    plan = tree_of(frame.select(*(F.expr(text).alias(f"k{n}") for n, text in enumerate(texts.values()))))
    if plan.name != "Project" or not is_input(plan.children[0]):
        raise KeyUnknown(
            f"the key of {node.name} is not computed from one row: {', '.join(texts.values())}",
            where=str(node.location),
            remedy="use an expression without aggregates, window functions and generators",
        )
    ids = {entry.id: n for n, entry in enumerate(plan.children[0].listed("projectList"))}
    known = {column(number): placed(n) for number, n in ids.items()}
    entries = plan.listed("projectList")
    return {key: _placed(value_of(entry), known) for key, entry in zip(texts, entries, strict=True)}


def _placed(value: Value, known: Mapping[Value, Value]) -> Value:
    if value in known:
        return known[value]
    return tuple(_placed(part, known) if isinstance(part, tuple) else part for part in value)


def is_input(plan: Tree) -> bool:
    """Whether a step is one of the frames that the function received."""
    return plan.name == "Project" and plan.children[0].name == "Range"
