"""Sets of keys: which ones a change touches, and the rows of an input that belong to them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DecimalType, IntegralType, StructField, StructType, TimestampType

from icefield.declare import Keyed
from icefield.engine import limits
from icefield.engine.arrow_rows import distinct_rows, key_codes
from icefield.engine.batch import Batch, InMemory, evaluate
from icefield.engine.checks.duplicates import SMALL, small
from icefield.engine.checks.view import are_plain
from icefield.engine.iceberg_types import spark_schema
from icefield.engine.refresh.pruning import LISTED, between, literal, near_values, spans, told_by, value_of, within
from icefield.engine.sql import quoted, text
from icefield.lake.arrow_scan import Near, rows_near

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from icefield.engine.tables import Tables
    from icefield.graph import Edge, Node

#: Of more keys than this not even the hashes are sent to everyone.
SIEVED = 4_000_000
_HASH = "_icefield_hash"


def key_of(node: Node, edge: Edge, columns: Sequence[str]) -> dict[str, str]:
    """Each key of a table as Spark SQL over the rows of one of its inputs.

    What `ref` says, else what `by_key(day="...")` says, else the column of that name.
    """
    assert isinstance(node.refresh, Keyed)
    found = {}
    for key in node.refresh.keys:
        own = quoted(key) if key in columns else ""
        found[key] = edge.key.get(key) or node.refresh.expressions.get(key) or own
    return found


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys of one table; one may be there twice."""

    names: tuple[str, ...]
    stored: Batch
    count: int

    def restrict(self, rows: DataFrame, expressions: Mapping[str, str] | None = None) -> DataFrame:
        """The rows whose key is one of these; NULL is a key like any other."""
        told = expressions or {name: quoted(name) for name in self.names}
        pruned, exact = self._pruned(rows, told)
        if exact:
            return pruned
        return self._sieved(pruned, told).join(self._side(), self._same(told), "left_semi")

    def likely(self, rows: DataFrame) -> DataFrame:
        """The rows whose key is one of these and, where there are many, hardly any others: those with such a hash."""
        own = {name: quoted(name) for name in self.names}
        sieved = self._sieved(rows, own)
        return self.restrict(rows) if sieved is rows else self._pruned(sieved, own)[0]

    def _sieved(self, rows: DataFrame, expressions: Mapping[str, str]) -> DataFrame:
        """Where there are many keys, and yet not all: only rows whose hash one of them has go through the shuffle."""
        if not SMALL < self.count <= SIEVED or expressions != {name: quoted(name) for name in self.names}:
            return rows
        kinds = [{name: frame.schema[name].dataType for name in self.names} for frame in (rows, self.stored.frame)]
        if kinds[0] != kinds[1] or not are_plain(rows.schema, self.names, times=True):
            return rows
        hashed = F.xxhash64(*(F.col(quoted(name)) for name in self.names))
        hashes = self.stored.frame.select(hashed.alias(_HASH))
        return rows.join(F.broadcast(hashes), hashed == F.col(_HASH), "left_semi")

    def without(self, rows: DataFrame) -> DataFrame:
        """The rows whose key is none of these."""
        told = {name: quoted(name) for name in self.names}
        return rows.join(self._side(), self._same(told), "left_anti")

    def distinct(self) -> int:
        """How many different keys these are."""
        return int(self._values().group_by(list(self.names)).aggregate([]).num_rows)

    @property
    def plain(self) -> bool:
        """Whether Arrow compares them as Spark does."""
        return are_plain(self.stored.schema, self.names, times=True)

    @property
    def exact(self) -> bool:
        """The same where decimals may be among them: those of a column all have one type."""
        kinds = self.stored.schema
        others = [name for name in self.names if not isinstance(kinds[name].dataType, DecimalType)]
        return are_plain(kinds, others, times=True)

    def among(self, rows: pa.Table) -> pa.Array:
        """Which rows have one of these keys; for plain or exact ones. NULL is a key like any other."""
        own = rows.select(list(self.names))
        keys = self._values().cast(own.schema)
        columns = zip(own.columns, keys.columns, strict=True)
        each = [pc.is_in(values, value_set=pc.unique(wanted)) for values, wanted in columns]
        some = np.asarray(reduce(pc.and_, each))
        if len(each) > 1:  # each value is one of a key; whether all are of the same
            places = np.flatnonzero(some)
            codes = key_codes(pa.concat_tables([keys, own.take(pa.array(places))]))
            some = np.zeros(len(some), bool)
            some[places] = np.isin(codes[len(keys) :], codes[: len(keys)])
        return pa.array(some)

    def near_columns(self, schema: StructType) -> list[Near]:
        """What holds for columns of all rows of a table that have one of these keys."""
        found = (near_values(quoted(name), self._values()[name], schema) for name in self.names)
        return [one for one in found if one is not None]

    def _values(self) -> pa.Table:
        return self.stored.arrow(list(self.names))

    @property
    def is_small(self) -> bool:
        """Whether it can be sent to everyone."""
        return self.count <= SMALL

    def condition(self) -> Column | None:
        """The same as a condition, for few of them; None where Python has no such values: years after 9999."""
        kinds = {name: self.stored.schema[name].dataType for name in self.names}
        try:
            rows = self._values().group_by(list(self.names)).aggregate([]).to_pylist()
        except OverflowError:
            return None
        each = [[F.col(quoted(n)).eqNullSafe(literal(row[n], kinds[n])) for n in self.names] for row in rows]
        return reduce(lambda a, b: a | b, [reduce(lambda a, b: a & b, pairs) for pairs in each])

    def near(self) -> str:
        """What holds for all rows of a table `t` that have one of these keys, as SQL; "" where there is nothing."""
        if self.count > _TELLING:
            return ""
        told = []
        for name in self.names:
            kind, values = self.stored.schema[name].dataType, self.stored.arrow([name])[name]
            if isinstance(kind, TimestampType) and not values.null_count:
                told.append(within(f"t.{quoted(name)}", spans(values, 0, 0)))
            elif isinstance(kind, IntegralType) and not values.null_count:
                span = pc.min_max(values)
                told.append(f"t.{quoted(name)} BETWEEN {span['min']} AND {span['max']}")
        return " AND ".join(told)

    def _side(self) -> DataFrame:
        renamed = [F.col(quoted(name)).alias(f"_icefield_key_{n}") for n, name in enumerate(self.names)]
        return small(self.stored.frame.select(*renamed), self.count)

    def _same(self, expressions: Mapping[str, str]) -> Column:
        pairs = [F.expr(expressions[name]).eqNullSafe(F.col(f"_icefield_key_{n}")) for n, name in enumerate(self.names)]
        return reduce(lambda a, b: a & b, pairs)

    def _pruned(self, rows: DataFrame, expressions: Mapping[str, str]) -> tuple[DataFrame, bool]:
        """The rows under conditions on plain columns that follow from the keys, and whether those say it all.

        Whole files and row groups are passed over by them.
        """
        if self.count > _TELLING:
            known = {quoted(name): name for name in rows.columns}
            return self._spanned(
                rows, {name: known[text] for name, text in expressions.items() if text in known}
            ), False
        values, kinds = self._values(), self.stored.schema
        exact = []
        for name, expression in expressions.items():
            if (told := told_by(expression, values[name], kinds[name].dataType, rows.schema)) is not None:
                rows = rows.where(told.condition)
                exact.append(told.exact)
        return rows, len(self.names) == 1 and exact == [True]

    def _spanned(self, rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
        """The rows between the least and the greatest of many keys."""
        for name, column in columns.items():
            same = rows.schema[column].dataType == self.stored.schema[name].dataType
            if same and are_plain(rows.schema, [column], times=True):
                span, kind = self.stored.span(name), rows.schema[column].dataType
                rows = rows if span is None else rows.where(between(F.col(quoted(column)), *span, kind))
        return rows


#: More keys than this are not looked at one by one: they are all over the place.
_TELLING = 1_000_000


def listed(rows: Batch, names: Sequence[str]) -> str:
    """What holds for some rows of a table `t`, as SQL over columns of plain types; for rows that are few."""
    found: list[str] = []
    for name in names:
        kind = rows.schema[name].dataType
        if len(found) == _CONDITIONS or rows.count() > LISTED or not are_plain(rows.schema, [name]):
            continue
        values = rows.arrow([name])[name]
        present = sorted(set(values.drop_null().to_pylist()))
        if not present:
            continue
        texts = ", ".join(_sql_literal(value, kind) for value in present)
        empty = f" OR t.{quoted(name)} IS NULL" if values.null_count else ""
        found.append(f"(t.{quoted(name)} IN ({texts}){empty})")
    return " AND ".join(found)


#: So many columns tell well enough where rows are.
_CONDITIONS = 3


def _sql_literal(value: Any, kind: DataType) -> str:
    told = text(str(value)) if isinstance(value, str | dt.date) else str(value)
    return f"CAST({told} AS {kind.simpleString()})"


def held_keys(parts: Sequence[pa.Table], names: Sequence[str], like: StructType, spark: SparkSession) -> KeySet | None:
    """The distinct keys of some rows in memory, each of the type it has in the table; None: only Spark can tell."""
    schema = StructType([StructField(name, like[name].dataType) for name in names])
    if not are_plain(schema, names, times=True):
        return None
    columns = to_arrow_schema(schema)
    if any(not _widens(part.schema.field(name).type, columns.field(name).type) for part in parts for name in names):
        return None
    found = distinct_rows(pa.concat_tables([columns.empty_table(), *(part.cast(columns) for part in parts)]))
    return KeySet(tuple(names), InMemory(spark, schema, found), found.num_rows)


def _widens(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a type is one of another, and the same."""
    both = (kind, wanted)
    return kind == wanted or (all(map(pa.types.is_signed_integer, both)) and kind.bit_width <= wanted.bit_width)


def keys_of_rows(rows: pa.Table, expressions: Mapping[str, str], schema: StructType, zone: str) -> pa.Table | None:
    """The keys of rows in memory; None where only Spark knows what an expression gives."""
    found = {}
    for name, expression in expressions.items():
        values = value_of(expression, rows, schema, zone)
        if values is None:
            return None
        found[name] = values
    return pa.table(found)


def rows_of_keys(
    tables: Tables, table: str, snapshot: int | None, keys: KeySet, expressions: Mapping[str, str] | None = None
) -> InMemory | None:
    """The rows that a version has of some keys, read without a query; None where Spark has to read them."""
    metadata = tables.branch.staged_metadata(table)
    schema = None if metadata is None else spark_schema(metadata)
    if schema is None or snapshot is None or not isinstance(keys.stored, InMemory) or not keys.plain:
        return None
    told = expressions or {name: quoted(name) for name in keys.names}
    zone = str(tables.spark.conf.get("spark.sql.session.timeZone"))
    empty = keys_of_rows(to_arrow_schema(schema).empty_table(), told, schema, zone)
    wanted = keys.stored.table
    if empty is None or empty.schema.types != wanted.schema.types or not tables.can_read(table, snapshot):
        return None
    near = [one for name, text in told.items() if (one := near_values(text, wanted[name], schema)) is not None]

    def has_key(rows: pa.Table) -> pa.Array:
        found = keys_of_rows(rows, told, schema, zone)
        assert found is not None
        return keys.among(found)

    found = rows_near(tables.branch, table, snapshot, near, has_key, limits.LIMITS.held_bytes)
    return None if found is None else InMemory(tables.spark, schema, found.cast(to_arrow_schema(schema)))


def key_set(frames: Sequence[DataFrame], names: Sequence[str], like: StructType, place: Path) -> KeySet:
    """The distinct keys of some frames, each of the type it has in the table."""
    typed = [
        frame.select(*(F.col(quoted(name)).cast(like[name].dataType).alias(name) for name in names)) for frame in frames
    ]
    stored = evaluate(reduce(lambda a, b: a.unionByName(b), typed).distinct(), place)
    return KeySet(tuple(names), stored, stored.count())


def keys_in(rows: DataFrame, expressions: Mapping[str, str]) -> DataFrame:
    """The keys of an input's rows."""
    return rows.select(*(F.expr(text).alias(name) for name, text in expressions.items()))
