"""What a refresh kind promises of a function, as far as Spark's analysis of it over empty frames can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DoubleType, FloatType

from icefield.declare import Accumulate
from icefield.engine.author import line_of, told
from icefield.engine.frames import empty_frame
from icefield.engine.keyed import key_of
from icefield.engine.lineage import hands_through, steps_of
from icefield.errors import BadFunction, KeyUnknown, NotExact, PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from icefield.graph import Edge, Node


def require_keys(spark: SparkSession, node: Node, schemas: Mapping[str, StructType]) -> None:
    """Every input of a keyed table tells the key of its rows, or is a lookup; and so does the table itself."""
    for key in node.keys:
        if key not in schemas[node.name].names:
            raise KeyUnknown(
                f"{node.name} is refreshed by {key}, which its function does not return",
                where=str(node.location),
                remedy=f"let it return a column {key}, or name another key",
            )
    for edge in node.edges:
        if edge.lookup:
            _require_carried(node, edge, schemas)
        else:
            _require_key(spark, node, edge, schemas)


def _require_key(spark: SparkSession, node: Node, edge: Edge, schemas: Mapping[str, StructType]) -> None:
    assert edge.table is not None
    schema = schemas[edge.table]
    told = key_of(node, edge, schema.names)
    missing = [key for key, text in told.items() if not text]
    if not missing:
        try:
            _ = empty_frame(spark, schema).selectExpr(*told.values()).schema
        except PySparkException as error:
            missing, told = list(told), {key: f"{text}: {str(error).splitlines()[0]}" for key, text in told.items()}
        else:
            return
    key = missing[0]
    seen = f" ({told[key]})" if told[key] else ""
    raise KeyUnknown(
        f"{node.name} is refreshed by {key}, which the rows of its input {edge.table} do not tell{seen}",
        where=str(node.location),
        remedy=f'say where it is, inputs={{"{edge.parameter}": ref("{edge.table}", {key}="...")}}, or that all of it is'
        f' passed to every key: lookup("{edge.table}")',
    )


def _require_carried(node: Node, edge: Edge, schemas: Mapping[str, StructType]) -> None:
    keyed = [other.table for other in node.edges if not other.lookup and other.table is not None]
    for column in edge.on:
        assert edge.table is not None
        if column not in schemas[edge.table].names or not any(column in schemas[t].names for t in keyed):
            raise KeyUnknown(
                f'lookup("{edge.table}", on="{column}") of {node.name}: both {edge.table} and an input with the key'
                f" must have the column {column}",
                where=str(node.location),
                remedy="name a column that both have, or leave `on` out: then a change of it rebuilds the table",
            )


def measured(node: Node, output: DataFrame) -> StructType:
    """The keys and measures that an accumulating function gives; anything else cannot be merged."""
    assert isinstance(node.refresh, Accumulate)
    schema = output.schema
    wanted = [*node.refresh.keys, *node.refresh.measures]
    if sorted(schema.names) != sorted(wanted):
        gone = [f"{name} is missing" for name in wanted if name not in schema.names]
        more = [f"{name} is neither key nor measure" for name in schema.names if name not in wanted]
        raise PromiseBroken(
            f"{node.name} accumulates, but its function gives other columns than its keys and measures:"
            f" {'; '.join([*gone, *more])}",
            where=str(node.location),
            remedy="name each measure and how it merges; columns made from measures belong into finish=",
        )
    for name, how in node.refresh.measures.items():
        if how == "sum" and isinstance(schema[name].dataType, DoubleType | FloatType):
            raise NotExact(
                f"{node.name} adds up {name}, which is {schema[name].dataType.simpleString().upper()}: the sum of such"
                " numbers depends on their order, so that merging it is not exact",
                where=str(node.location),
                remedy=f"sum it as DECIMAL, or declare the table by_key({', '.join(map(repr, node.keys))})",
            )
    return schema


def finished(
    spark: SparkSession, root: Path, node: Node, finish: Callable[..., Any], measures: StructType
) -> tuple[DataFrame, bool]:
    """What `finish` makes of the measures, and whether all of them are still there to be read from it."""
    rows = empty_frame(spark, measures)
    try:
        output = finish(rows)
        steps = steps_of(output)
    except Exception as error:
        raise BadFunction(
            f"finish of {node.name} does not fit the measures: {told(error)}",
            where=line_of(error, root) or str(node.location),
            remedy=f"it is handed a DataFrame of {', '.join(measures.names)} and returns the table's columns",
        ) from error
    if other := [step for step in steps if step not in ("Project", "Filter", "SubqueryAlias")]:
        raise PromiseBroken(
            f"finish of {node.name} does more than work on each row for itself: {other[0]}",
            where=str(node.location),
            remedy="let it only compute, rename and drop columns, or leave out rows; the rest belongs to the function",
        )
    handed = all(hands_through(rows, output, name) for name in measures.names)
    return output, handed and "Filter" not in steps
