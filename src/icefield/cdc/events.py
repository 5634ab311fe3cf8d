"""`parse`: Debezium's events of one table, typed, each once, in an order that does not depend on their arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from icefield.cdc.json_values import converted, placeholders
from icefield.declare import parse_columns
from icefield.declare.registry import caller
from icefield.errors import InvalidCapture

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from icefield.declare import Column as Declared

#: What Debezium sends in place of a large value that an update did not touch (`unavailable.value.placeholder`).
PLACEHOLDER = "__debezium_unavailable_value"
#: The columns that `parse` adds to those of the table.
ENVELOPE = (
    "op",
    "is_deleted",
    "is_snapshot",
    "partition",
    "position",
    "lsn",
    "tx_id",
    "source_ts",
    "event_time",
    "sequence",
    "unavailable",
    "misfit",
    "undeclared",
)
_FACTS = ("op", "is_snapshot", "partition", "position", "lsn", "tx_id", "source_ts")
_NAMES = "array<string>"


#: Column names mapped to those of the source: one name, or all that the column has had there.
Aliases = Mapping[str, str | Sequence[str]]


def key_of(schema: str, keys: Sequence[str], *, aliases: Aliases | None = None) -> dict[str, str]:
    """Each key column as Spark SQL over raw events: `by_key(**key_of(schema, keys))`.

    The message's key tells it, else the row; a TRUNCATE has neither, so its key is NULL.
    """
    found = {}
    for column in _declared(schema, keys, aliases or {}):
        if column.name in keys:
            paths = [f"\"$['{name}']\"" for name in _names(column, aliases or {})]
            parts = [(part, path) for part in ("`key`", "`after`", "`before`") for path in paths]
            texts = ", ".join(f"get_json_object({part}, {path})" for part, path in parts)
            found[column.name] = converted(f"coalesce({texts})", column.type)
    return {key: found[key] for key in keys}


def parse(
    events: DataFrame,
    schema: str,
    keys: Sequence[str],
    *,
    truncates: DataFrame | None = None,
    aliases: Aliases | None = None,
    milliseconds: Sequence[str] = (),
    placeholder: str = PLACEHOLDER,
) -> DataFrame:
    """One row an event of a table, with the columns of `schema` and those of `ENVELOPE`.

    `truncates` are the table's events with op `t`, which concern every key. `aliases` maps column names to those in the
    source, all of them where one was renamed; `milliseconds` are TIMESTAMP columns that come so, as TIMESTAMP(3) and
    less precise ones do.
    """
    aliases = aliases or {}
    columns = _declared(schema, keys, aliases)
    told = _Columns(columns, tuple(keys), aliases, tuple(milliseconds), placeholders(placeholder))
    rows = _once(told.read(events, key_of(schema, keys, aliases=aliases)), keys)
    if truncates is not None:
        rows = _with_truncates(rows, keys, truncates, told)
    return told.shown(told.carried(_in_order(rows, keys)))


class _Columns:
    """The declared columns of a table, and what is done with each."""

    def __init__(
        self,
        columns: Sequence[Declared],
        keys: tuple[str, ...],
        aliases: Aliases,
        milliseconds: tuple[str, ...],
        unavailable: tuple[str, ...],
    ) -> None:
        self.all = [column.name for column in columns]
        self.keys = keys
        self.values = [column for column in columns if column.name not in keys]
        self.names = {column.name: _names(column, aliases) for column in columns}
        self.milliseconds = milliseconds
        self.unavailable = unavailable

    def read(self, events: DataFrame, key: Mapping[str, str]) -> DataFrame:
        """The facts of each event, its key, and what it tells of every other column: a struct, or NULL for nothing."""
        facts = [F.col("offset" if name == "position" else name).alias(name) for name in _FACTS]
        named = [F.expr(text).alias(name) for name, text in key.items()]
        document = F.expr("from_json(`after`, 'MAP<STRING,STRING>')").alias("_after")
        rows = events.where("op <> 't'").select(*named, *facts, document)
        return rows.select(*self.keys, *_FACTS, *map(self._told, self.values), *self._problems())

    def _text(self, column: Declared) -> str:
        names = list(map(_quoted, self.names[column.name]))
        if len(names) == 1:
            return f"_after[{names[0]}]"
        each = " ".join(f"WHEN map_contains_key(_after, {name}) THEN _after[{name}]" for name in names)
        return f"(CASE {each} END)"

    def _is_told(self, column: Declared) -> str:
        told = (f"map_contains_key(_after, {_quoted(name)})" for name in self.names[column.name])
        return f"({' OR '.join(told)})"

    def _value(self, column: Declared) -> str:
        return converted(self._text(column), column.type, milliseconds=column.name in self.milliseconds)

    def _is_unavailable(self, column: Declared) -> str:
        return f"({self._text(column)} IN ({', '.join(map(_quoted, self.unavailable))}))"

    def _told(self, column: Declared) -> Column:
        known = f"{self._is_told(column)} AND NOT coalesce({self._is_unavailable(column)}, false)"
        return F.expr(f"CASE WHEN {known} THEN named_struct('value', {self._value(column)}) END").alias(
            _known(column.name)
        )

    def _problems(self) -> list[Column]:
        def listed(conditions: Mapping[str, str]) -> str:
            each = [f"CASE WHEN {condition} THEN {_quoted(name)} END" for name, condition in conditions.items()]
            return f"array_compact(CAST(array({', '.join(each)}) AS {_NAMES}))"

        wrong = {"after": "_after IS NULL AND op <> 'd'"}
        for column in self.values:
            fits = f"{self._text(column)} IS NULL OR {self._value(column)} IS NOT NULL"
            wrong[column.name] = f"NOT ({fits}) AND NOT {self._is_unavailable(column)}"
        names = ", ".join(_quoted(name) for names in self.names.values() for name in names)
        return [
            F.expr(listed({c.name: self._is_unavailable(c) for c in self.values})).alias("unavailable"),
            F.expr(listed(wrong)).alias("misfit"),
            F.expr(f"array_sort(array_except(map_keys(_after), array({names})))").alias("undeclared"),
        ]

    def carried(self, rows: DataFrame) -> DataFrame:
        """Each column's value: what its event tells, else the last that the row has had since it was inserted."""
        life = Window.partitionBy(*map(F.col, self.keys), "_life").orderBy("sequence")
        so_far = life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        known = [_known(column.name) for column in self.values]
        return rows.withColumns({name: F.last(name, ignorenulls=True).over(so_far) for name in known})

    def shown(self, rows: DataFrame) -> DataFrame:
        """The table's columns and the envelope."""
        unknown = [F.when(F.col(_known(c.name)).isNull(), F.lit(c.name)) for c in self.values]
        missing = F.array_compact(F.array(*unknown).cast(_NAMES))
        still = F.array_intersect("unavailable", missing)
        own = [
            F.col(name) if name in self.keys else F.col(_known(name)).getField("value").alias(name) for name in self.all
        ]
        problems = {"unavailable": still, "misfit": F.col("misfit"), "undeclared": F.col("undeclared")}
        return rows.select(
            *own,
            *(name for name in ENVELOPE if name not in problems),
            *(F.when(F.size(found) > 0, found).alias(name) for name, found in problems.items()),
        )


def _once(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Events that were sent again count once, as they were seen first.

    Without its key or its LSN an event cannot be told from others, so that it counts wherever it stands.
    """
    told = reduce(lambda a, b: a & b, [F.col(name).isNotNull() for name in (*keys, "lsn")])
    own = F.when(~told, F.struct("partition", "position"))
    same = Window.partitionBy(*map(F.col, keys), "lsn", "op", own).orderBy("position", "partition")
    # All that follows goes by the key: rows move between tasks once.
    moved = rows.repartition(*map(F.col, keys))
    return moved.withColumn("_nth", F.row_number().over(same)).where("_nth = 1").drop("_nth")


def _with_truncates(rows: DataFrame, keys: Sequence[str], truncates: DataFrame, told: _Columns) -> DataFrame:
    """Every key's events and, for each, all truncates of the table, which `_in_order` keeps where there was a row."""
    fact = F.struct(F.lit("t").alias("op"), F.lit(False).alias("is_snapshot"), *_FACTS[2:])  # noqa: FBT003
    seen = truncates.where("op = 't'").withColumnRenamed("offset", "position")
    first = seen.groupBy("lsn").agg(F.min(F.struct("position", "partition", "tx_id", "source_ts")).alias("_first"))
    facts = first.select("lsn", "_first.*").agg(F.sort_array(F.collect_list(fact)).alias("_truncates"))
    by_key = Window.partitionBy(*map(F.col, keys)).orderBy("lsn", "op", "position", "partition")
    numbered = rows.crossJoin(F.broadcast(facts)).withColumn("_nth", F.row_number().over(by_key))
    own = F.array(F.struct(*_FACTS))
    all_of_key = F.when(F.col("_nth") == 1, F.concat(own, "_truncates")).otherwise(own)
    known = [_known(column.name) for column in told.values]
    problems = ("unavailable", "misfit", "undeclared")
    listed = numbered.select(*map(F.col, keys), *known, *problems, F.explode(all_of_key).alias("_event"))
    is_truncate = F.col("_event.op") == "t"
    nothing = {name: F.when(~is_truncate, F.col(name)) for name in (*known, *problems)}
    return listed.withColumns(nothing).select(*map(F.col, keys), "_event.*", *known, *problems)


def _in_order(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Numbers the events of each key, and the lives of its row: a new one begins with an insert or after a delete.

    In a partition, events are in the order of their positions. Between partitions, the LSN decides: of an event, the
    smallest from there on, since a snapshot's may be larger than that of a change which came after it.
    """
    by_key = [F.col(key) for key in keys]
    from_here = Window.partitionBy(*by_key, "partition").orderBy("position")
    from_here = from_here.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    order = Window.partitionBy(*by_key).orderBy(F.col("_bound").asc_nulls_last(), "partition", "position")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ended = F.col("_before").isin("d", "t")
    ordered = rows.withColumn("_bound", F.min("lsn").over(from_here)).withColumn("_before", F.lag("op").over(order))
    # A TRUNCATE concerns a key only if it had a row.
    concerned = ordered.where((F.col("op") != "t") | (F.col("_before").isNotNull() & ~ended))
    begins = F.when((F.col("op") == "c") | F.coalesce(ended, F.lit(False)), 1).otherwise(0)  # noqa: FBT003
    return concerned.withColumns(
        {
            "is_deleted": F.col("op").isin("d", "t"),
            "sequence": F.row_number().over(order).cast("BIGINT"),
            "event_time": F.max("source_ts").over(so_far),
            "_life": F.sum(begins).over(so_far),
        }
    )


def _known(name: str) -> str:
    return f"_known_{name}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _names(column: Declared, aliases: Aliases) -> tuple[str, ...]:
    """The names that a column has, or has had, in the source."""
    names = aliases.get(column.name, column.name)
    return (names,) if isinstance(names, str) else tuple(names)


def _declared(schema: str, keys: Sequence[str], aliases: Aliases) -> tuple[Declared, ...]:
    """The columns of a schema text; what `parse` could not give is refused."""
    columns = parse_columns(schema)
    names = [column.name for column in columns]
    lower = {name.lower(): name for name in names}
    if taken := [lower[name] for name in ENVELOPE if name in lower]:
        raise InvalidCapture(
            f"the column {taken[0]} of the schema has the name of one that parse() adds: {', '.join(ENVELOPE)}",
            where=str(caller()),
            remedy=f'give it another name, source_{taken[0]} say, with aliases={{"source_{taken[0]}": "{taken[0]}"}}',
        )
    if unknown := [name for name in (*keys, *aliases) if name not in names] or ([""] if not keys else []):
        raise InvalidCapture(
            f"{unknown[0]!r} is no column of the schema" if unknown[0] else "no key is given",
            where=str(caller()),
            remedy=f"name columns among {', '.join(names)}",
        )
    for column in columns:
        if column.type.startswith("MAP<") or (column.name in keys and column.type.startswith(("ARRAY<", "STRUCT<"))):
            raise InvalidCapture(
                f"the column {column.name} is {column.type}, which cannot be compared",
                where=str(caller()),
                remedy="declare it STRING: the value is kept as JSON text",
            )
    return columns
