"""What a keyed table needs before its promise can be looked at: keys that are told, measures that can be added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import DatetimeType, DecimalType, DoubleType, FloatType, NumericType, VariantType

from icefield.declare import Accumulate, ByKey
from icefield.engine.checks.split import SPLITTING
from icefield.engine.frames import empty_frame
from icefield.engine.promises.anchors import MARK
from icefield.engine.promises.exactness import changing_in, may_change
from icefield.engine.promises.plan_tree import everything
from icefield.engine.promises.spark_plans import tree_of
from icefield.engine.refresh.difference import NESTED
from icefield.engine.refresh.keys import key_of
from icefield.errors import KeyUnknown, NotExact, PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from icefield.graph import Edge, Node


def require_keys(node: Node, inputs: Mapping[str, DataFrame], schemas: Mapping[str, StructType]) -> None:
    """Every input of a keyed table tells the key of its rows, or is a lookup; and so does the table itself."""
    for key in node.keys:
        if key not in schemas[node.name].names:
            raise KeyUnknown(
                f"{node.name} is refreshed by key {key}, which its function does not return",
                where=str(node.location),
                remedy=f"return a column {key}, or declare a different key",
            )
        kind = schemas[node.name][key].dataType
        if isinstance(kind, (*NESTED, VariantType)):  # no values to group by, for Arrow or for Spark
            raise KeyUnknown(
                f"{node.name} is refreshed by {key} of type {kind.simpleString().upper()}: keys must be plain values",
                where=str(node.location),
                remedy="use one key column for each of its fields, or convert it to a string: to_json(...)",
            )
    for edge in node.edges:
        if edge.lookup:
            _require_carried(node, edge, schemas)
        else:
            _require_key(node, edge, inputs[edge.parameter], schemas[node.name])


def _require_key(node: Node, edge: Edge, rows: DataFrame, own: StructType) -> None:
    told = key_of(node, edge, rows.columns)
    missing = [key for key, text in told.items() if not text]
    if not missing:
        try:
            kinds = dict(zip(told, [field.dataType for field in rows.selectExpr(*told.values()).schema], strict=True))
        except PySparkException as error:
            missing, told = list(told), {key: f"{text}: {str(error).splitlines()[0]}" for key, text in told.items()}
        else:
            _require_same_kind(node, edge, told, kinds, own)
            return
    key = missing[0]
    seen = f" ({told[key]})" if told[key] else ""
    raise KeyUnknown(
        f"{node.name} is refreshed by key {key}, which cannot be determined for rows of its input {edge.table}{seen}",
        where=str(node.location),
        remedy=f'map the key, inputs={{"{edge.parameter}": ref("{edge.table}", {key}="...")}}, or pass the whole table'
        f' to every key: lookup("{edge.table}")',
    )


def _require_same_kind(
    node: Node, edge: Edge, told: Mapping[str, str], kinds: Mapping[str, DataType], own: StructType
) -> None:
    """A day is no moment: of one and the other, none would be the same."""
    for key, kind in kinds.items():
        times = isinstance(kind, DatetimeType) or isinstance(own[key].dataType, DatetimeType)
        if times and kind != own[key].dataType:
            raise KeyUnknown(
                f"{node.name} is refreshed by key {key}, which is {told[key]} in {edge.table}, of type"
                f" {kind.simpleString().upper()}, but its function returns {own[key].dataType.simpleString().upper()}",
                where=str(node.location),
                remedy="compute the key the same way in the function and in the declaration, with the same type",
            )


def _require_carried(node: Node, edge: Edge, schemas: Mapping[str, StructType]) -> None:
    keyed = [other.table for other in node.edges if not other.lookup and other.table is not None]
    for column in edge.on:
        assert edge.table is not None
        if column not in schemas[edge.table].names or not any(column in schemas[t].names for t in keyed):
            raise KeyUnknown(
                f'lookup("{edge.table}", on="{column}") of {node.name}: both {edge.table} and a keyed input'
                f" must have the column {column}",
                where=str(node.location),
                remedy="name a column that both have, or omit `on`: then any change to the lookup rebuilds the table",
            )
    if not any(set(edge.on) <= set(schemas[table].names) for table in keyed):
        raise KeyUnknown(
            f'lookup("{edge.table}", on={list(edge.on)}) of {node.name}: one keyed input must have all these columns',
            where=str(node.location),
            remedy="join the inputs in a separate table first, or omit `on`: then any change to the lookup rebuilds the"
            " table",
        )


def require_unasked(node: Node, asked: Sequence[tuple[str, DataFrame]]) -> None:
    """No function of some rows knows what all rows would give; what is passed whole may be asked."""
    followed = isinstance(node.refresh, ByKey)
    some = {MARK - n for n, edge in enumerate(node.edges) if not edge.lookup or (followed and edge.on)}
    _require_unasked(node, "the function", asked, some)


def require_unasked_finish(node: Node, asked: Sequence[tuple[str, DataFrame]]) -> None:
    """The same for `finish`, which is handed the measures of some keys."""
    _require_unasked(node, "finish=", asked, {MARK})


def _require_unasked(node: Node, what: str, asked: Sequence[tuple[str, DataFrame]], some: set[int]) -> None:
    for method, frame in asked:
        if not some.isdisjoint(_ranges(frame)):
            raise PromiseBroken(
                f"{what} of {node.name} calls the Spark action {method}: with {node.refresh.kind}(), it receives only"
                " some of the rows, so the result would be incomplete",
                where=str(node.location),
                remedy="only return a DataFrame; compute the value in a separate table and pass it as lookup(...), or"
                " declare the table full()",
            )


def _ranges(frame: DataFrame) -> set[int]:
    """What tells the inputs that a frame is made from."""
    return {int(step.fields["start"]) for step in everything(tree_of(frame)) if step.name == "Range"}


def require_exact_checks(node: Node, rows: DataFrame) -> None:
    """What decides where a row goes decides the same in every run."""
    for check in node.row_checks:
        if check.otherwise not in SPLITTING or not may_change(check.predicate):
            continue
        alone = empty_frame(rows.sparkSession, rows.schema).where(check.predicate)
        if changing := changing_in(tree_of(alone)):
            raise NotExact(
                f"the check `{check.name}` of {node.name} calls {changing}, which returns a different value in each"
                " run, so a row that is rejected today could be accepted when the table is rebuilt",
                where=str(node.location),
                remedy="compare with the column ingested_at, which sources provide, or make the check a warning:"
                ' otherwise="warn"',
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
            f"the function of {node.name} must return exactly the keys and measures of accumulate():"
            f" {'; '.join([*gone, *more])}",
            where=str(node.location),
            remedy="declare how each measure merges; compute columns that are derived from measures in finish=",
        )
    for name, how in node.refresh.measures.items():
        if how == "sum":
            _require_sum(node, name, output)
    return schema.toNullable()  # as it is stored


def _require_sum(node: Node, name: str, output: DataFrame) -> None:
    kind = output.schema[name].dataType
    told = kind.simpleString().upper()
    if not isinstance(kind, NumericType):
        raise PromiseBroken(
            f"{node.name} sums {name}, which is {told}",
            where=str(node.location),
            remedy='only numbers can be summed: merge it with "min", "max", "first" or "last"',
        )
    if isinstance(kind, DoubleType | FloatType):
        raise NotExact(
            f"{node.name} sums {name}, which is {told}: a floating-point sum depends on the order of rows, so merging"
            " it is not exact",
            where=str(node.location),
            remedy=f"sum it as DECIMAL, or {_by_key(node)}",
        )
    if isinstance(kind, DecimalType) and output.sparkSession.conf.get("spark.sql.ansi.enabled") != "true":
        raise NotExact(
            f"{node.name} sums {name}, which is {told}: without spark.sql.ansi.enabled a sum that overflows becomes"
            " NULL and cannot be merged any more",
            where=str(node.location),
            remedy=f"keep spark.sql.ansi.enabled on, or {_by_key(node)}",
        )


def _by_key(node: Node) -> str:
    return f"declare the table by_key({', '.join(map(repr, node.keys))})"
