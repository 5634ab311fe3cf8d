"""Verbs on staged tables: read one at a version or between two, make it, let it grow, append, replace its rows."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from icefield.engine import limits
from icefield.engine.batch import InMemory
from icefield.engine.definitions import Definitions, stored_as
from icefield.engine.frames import empty_frame
from icefield.engine.iceberg_types import spark_schema
from icefield.engine.sql import quoted
from icefield.engine.versions import Appended
from icefield.graph import owner_of
from icefield.lake import metadata as meta
from icefield.lake.arrow_scan import (
    append_rows,
    can_be_written,
    columns_added,
    columns_of,
    distinct_values,
    keeps_nulls,
    overwrite_rows,
    rows_near,
    values_missing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from icefield.engine.batch import Batch
    from icefield.engine.refresh.keys import KeySet
    from icefield.graph import Graph, Node
    from icefield.lake.branch import Branch
    from icefield.lake.metadata import Metadata

#: Up to so many rows are appended by PyIceberg.
FEW_ROWS = 100_000


class Tables:
    """The tables of one run's branch, through Spark."""

    def __init__(self, spark: SparkSession, branch: Branch, graph: Graph | None = None) -> None:
        self.spark = spark
        self.branch = branch
        self._graph = graph
        #: The columns of quarantines that no row was ever sent to.
        self.empty: dict[str, StructType] = {}
        #: What tables that others follow removed and added in this run.
        self.told: dict[str, DataFrame] = {}
        #: The same in memory, where it is small.
        self.told_rows: dict[str, InMemory] = {}
        #: Rows in memory that this run has appended, with the versions before and after.
        self._appended: dict[str, tuple[int | None, int | None, InMemory]] = {}
        #: All rows of tables that this run has written anew, in memory.
        self._written: dict[str, InMemory] = {}
        #: Columns that this run has added to tables before it wrote rows to them.
        self.grown: dict[str, list[StructField]] = {}

    @property
    def definitions(self) -> Definitions:
        """Creates tables, and lets them follow their declarations."""
        return Definitions(self)

    def tell(self, table: str, change: Batch) -> None:
        """Keeps what a table removed and added, for whoever follows it."""
        self.told[table] = change.frame
        if isinstance(change, InMemory):
            self.told_rows[table] = change

    def rows_appended(self, table: str, start: int | None, end: int | None) -> InMemory | None:
        """The rows that were appended between two versions, where this run did it and they are in memory."""
        before, after, rows = self._appended.get(table, (None, None, None))
        return rows if rows is not None and (before, after) == (start, end) else None

    def rows_between(self, table: str, start: int, end: int) -> InMemory | None:
        """The rows that were appended between two versions, read without a query; None where Spark has to."""
        if (held := self.rows_appended(table, start, end)) is not None:
            return held
        metadata = self.branch.staged_metadata(table)
        schema = None if metadata is None else spark_schema(metadata)
        if metadata is None or schema is None or not (self.can_read(table, start) and self.can_read(table, end)):
            return None
        count = meta.records_at(metadata, end) - meta.records_at(metadata, start)
        at_most = limits.LIMITS.held_bytes
        found = columns_added(self.branch, table, start, end, schema.names, count, at_most)
        if found is None:
            return None
        held = InMemory(self.spark, schema, found.cast(to_arrow_schema(schema)))
        self._appended[table] = start, end, held
        return held

    def qualified(self, table: str) -> str:
        """The name by which Spark knows a table of the branch."""
        namespace, name = table.split(".")
        return f"{self.branch.name}.{quoted(namespace)}.{quoted(name)}"

    def read(self, table: str, snapshot: int | None) -> DataFrame:
        """All rows of a version; without one the table has no rows yet."""
        if snapshot is None and table in self.empty:
            return empty_frame(self.spark, self.empty[table])
        self.branch.flush(table)
        if snapshot is None:
            return self.spark.table(self.qualified(table)).limit(0)
        # Spark resolves a table again when a query runs, so every read names its version.
        rows = self.spark.read.option("versionAsOf", str(snapshot)).table(self.qualified(table))
        return self._with_new_columns(table, self._under_new_names(table, rows))

    def _with_new_columns(self, table: str, rows: DataFrame) -> DataFrame:
        """Rows of an older version with the columns that were added since, which they do not have."""
        missing = [field for field in self.grown.get(table, ()) if field.name not in rows.columns]
        return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in missing})

    def grow(self, table: str, schema: StructType, node: Node) -> None:
        """Adds the columns that rows have from now on."""
        known = {field.name for field in self.before(table).schema}
        added = [field for field in schema if field.name not in known]
        if added:
            self.branch.prepare(table)
            self.definitions.evolve(table, schema, node)
            self.grown[table] = added

    def _under_new_names(self, table: str, rows: DataFrame) -> DataFrame:
        """Rows of an older version with the names that their columns have by now."""
        node = self._graph.nodes.get(owner_of(table)) if self._graph is not None else None
        if node is None or not node.renamed:
            return rows
        former = {old: new for new, old in node.renamed.items() if old in rows.columns and new not in rows.columns}
        return rows.withColumnsRenamed(former)

    def seen(self, table: str) -> DataFrame:
        """All published rows as other readers see them, with the newest columns, whichever those were when written."""
        return self.spark.read.format("iceberg").load(self.branch.base[table])

    def snapshot_before(self, table: str) -> int | None:
        """The version that a table had when the branch was opened."""
        return _snapshot(self.branch.base_metadata(table))

    def schema(self, table: str) -> StructType | None:
        """The columns of a table, from its metadata; None where Spark alone knows them."""
        metadata = self.branch.staged_metadata(table)
        renamed = self._graph is not None and (node := self._graph.nodes.get(owner_of(table))) and node.renamed
        return None if metadata is None or renamed else spark_schema(metadata)

    def columns(self, table: str) -> list[str] | None:
        """The names of a table's columns, from its metadata; None where it is not there."""
        metadata = self.branch.staged_metadata(table)
        return None if metadata is None else [name for name, _ in meta.schema_columns(metadata)]

    def before(self, table: str) -> DataFrame:
        """All rows that a table had when the branch was opened."""
        return self.read(table, self.snapshot_before(table))

    def staged(self, table: str) -> DataFrame:
        """All rows that a table has on the branch now."""
        return self.read(table, self.snapshot(table))

    def snapshot(self, table: str) -> int | None:
        """The version that a table has on the branch now."""
        return _snapshot(self.branch.staged_metadata(table))

    def count(self, table: str) -> int:
        """How many rows a table has on the branch now."""
        metadata = self.branch.staged_metadata(table)
        return 0 if metadata is None else meta.total_records(metadata)

    def read_between(self, table: str, start: int, end: int) -> DataFrame:
        """The rows appended after one version, up to another; the plan made sure that only appends lie there."""
        if (held := self.rows_appended(table, start, end)) is not None:
            return held.frame
        self.branch.flush(table)
        reader = (
            self.spark.read.format("iceberg")
            .option("start-snapshot-id", str(start))
            .option("end-snapshot-id", str(end))
        )
        return reader.load(self.qualified(table))

    def appended(self, table: str, start: int) -> Appended:
        """The rows that this run has appended to a table since a version, when nothing else was written to it."""
        base, staged = self.branch.base_metadata(table), self.branch.staged_metadata(table)
        assert base is not None
        assert staged is not None
        count = meta.total_records(staged) - meta.total_records(base)
        place, end = meta.local_path(meta.data_path(staged)), staged["current-snapshot-id"]
        read = self.columns_between(table, start, end, count)
        return Appended(place, self.read_between(table, start, end), count, read)

    def last_appended(self, table: str) -> int:
        """How many rows the last update added to a table as it was, if it did nothing else; 0: it did."""
        metadata = self.branch.base_metadata(table)
        return 0 if metadata is None else meta.appended_last(metadata)

    def append(self, table: str, rows: DataFrame) -> None:
        """Adds rows."""
        with self.by_spark(table):
            self._writer(table, rows).append()

    def overwrite(self, table: str, rows: DataFrame) -> None:
        """Replaces all rows, in one snapshot; older snapshots stay readable."""
        with self.by_spark(table):
            self._writer(table, rows).overwrite(F.lit(True))  # noqa: FBT003 - Spark's literal

    def append_stored(self, table: str, rows: Batch, besides: Sequence[str] = ()) -> None:
        """Adds rows that are in scratch files; few of them by PyIceberg, which takes a tenth of the time of Spark."""
        if self.takes_few(table, rows):
            before = self.snapshot(table)
            self.append_few(table, rows.arrow().drop_columns(list(besides)))
            self._remember(table, rows, before)
        else:
            self.append(table, rows.frame.drop(*besides))

    def _remember(self, table: str, rows: Batch, before: int | None) -> None:
        """Keeps rows that were appended, for whoever follows them in this run; as the table gives them back."""
        metadata = self.branch.staged_metadata(table)
        if metadata is None or not isinstance(rows, InMemory):
            return
        names = [name for name, _ in meta.schema_columns(metadata)]
        schema = StructType([rows.schema[name] for name in names])
        if all(stored_as(field) == field.dataType.simpleString() for field in schema):
            held = InMemory(self.spark, schema, rows.table.select(names))
            self._appended[table] = before, _snapshot(metadata), held

    def overwrite_stored(self, table: str, rows: Batch) -> None:
        """Replaces all rows by some that were evaluated; a few of them without a query."""
        metadata = self.branch.staged_metadata(table)
        current = None if metadata is None else meta.current_snapshot(metadata)
        plain = current is None or not meta.has_deletes(current)  # deletes would go on counting rows that are gone
        if plain and rows.count() and self.takes_few(table, rows):
            self.overwrite_few(table, rows.arrow())
            self._keep_written(table, rows)
        else:
            self.overwrite(table, rows.frame)

    def _keep_written(self, table: str, rows: Batch) -> None:
        metadata = self.branch.staged_metadata(table)
        schema = None if metadata is None else spark_schema(metadata)
        if schema is not None and isinstance(rows, InMemory):
            kinds = to_arrow_schema(schema)
            self._written[table] = InMemory(self.spark, schema, rows.table.select(schema.names).cast(kinds))

    def rows_written(self, table: str) -> InMemory | None:
        """All rows of a table that this run has written anew, where they are in memory."""
        return self._written.get(table)

    def rows_at(self, table: str, snapshot: int | None) -> InMemory | None:
        """All rows of a version, read without a query; None where they are many, or only Spark can read them."""
        metadata = self.branch.staged_metadata(table)
        schema = None if metadata is None else spark_schema(metadata)
        if schema is None or snapshot is None or not self.can_read(table, snapshot):
            return None
        found = rows_near(self.branch, table, snapshot, (), None, limits.LIMITS.held_bytes)
        return None if found is None else InMemory(self.spark, schema, found.cast(to_arrow_schema(schema)))

    def takes_few(self, table: str, rows: Batch) -> bool:
        """Whether PyIceberg is to append the rows: few, to a table whose partitions it can tell apart."""
        metadata = self.branch.staged_metadata(table)
        if metadata is None or not meta.has_plain_partitions(metadata) or rows.count() > FEW_ROWS:
            return False
        if metadata["properties"].get("write.format.default", "parquet") != "parquet":
            return False
        return can_be_written(rows.arrow())

    def append_few(self, table: str, rows: pa.Table) -> None:
        """Adds a few rows, without a query."""
        if rows.num_rows:
            append_rows(self.branch, table, rows)

    def small_rows(self, table: str, columns: Sequence[str]) -> pa.Table | None:
        """All rows that a table had when the branch was opened, in memory; None where PyIceberg could not replace them.

        It would leave deletes behind that count rows which are gone.
        """
        metadata = self.branch.base_metadata(table)
        found = None if metadata is None else meta.current_snapshot(metadata)
        if metadata is None or found is None or not meta.has_plain_partitions(metadata) or meta.has_deletes(found):
            return None
        if not meta.has_current_columns(metadata, found):
            return None
        rows = columns_of(self.branch, table, found["snapshot-id"], columns)
        return rows if keeps_nulls(rows.schema) else None

    def overwrite_few(self, table: str, rows: pa.Table) -> None:
        """Replaces all rows by a few, without a query."""
        overwrite_rows(self.branch, table, rows)

    def distinct(self, table: str, snapshot: int | None, columns: Sequence[str]) -> int | None:
        """How many different values some columns have, in memory; None where only Spark can tell."""
        return distinct_values(self.branch, table, snapshot, tuple(columns)) if self.can_read(table, snapshot) else None

    def columns_at(self, table: str, snapshot: int | None) -> Callable[[list[str]], pa.Table | None]:
        """What reads columns of a version into memory, or gives None where PyIceberg cannot."""
        return partial(self._columns, table, snapshot)

    def columns_between(self, table: str, start: int, end: int, count: int) -> Callable[[list[str]], pa.Table | None]:
        """What reads columns of the rows that `read_between` gives, so many, into memory, or gives None."""
        return partial(self._added, table, start, end, count)

    def missing_at(self, table: str, snapshot: int | None) -> Callable[[str, pa.Array], pa.Array | None]:
        """What tells which of some different values a column of a version does not have, or gives None."""
        return partial(self._missing, table, snapshot)

    def _missing(self, table: str, snapshot: int | None, name: str, wanted: pa.Array) -> pa.Array | None:
        readable = self.can_read(table, snapshot)
        return values_missing(self.branch, table, snapshot, name, wanted) if readable else None

    def _columns(self, table: str, snapshot: int | None, names: list[str]) -> pa.Table | None:
        return columns_of(self.branch, table, snapshot, names) if self.can_read(table, snapshot) else None

    def _added(self, table: str, start: int, end: int, count: int, names: list[str]) -> pa.Table | None:
        if (held := self.rows_appended(table, start, end)) is not None:
            return held.arrow(names)
        readable = self.can_read(table, start) and self.can_read(table, end)
        return columns_added(self.branch, table, start, end, names, count) if readable else None

    def can_read(self, table: str, snapshot: int | None) -> bool:
        """Whether PyIceberg can read a version with today's columns: it knows no deletes by value, as Flink's."""
        metadata = self.branch.staged_metadata(table)
        found = None if metadata is None else meta.snapshot(metadata, snapshot)
        if metadata is None or found is None or not meta.has_current_columns(metadata, found):
            return False
        return not meta.has_deletes(found, "equality-deletes")

    def delete(self, table: str, condition: str) -> None:
        """Takes out the rows for which a condition holds, by delete files."""
        self.sql(table, f"DELETE FROM {self.qualified(table)} WHERE {condition}")

    def remove_keys(self, table: str, keys: KeySet, near: str = "") -> None:
        """Takes out all rows of the given keys, by delete files; NULL is a key like any other.

        `near`: what holds for all of these rows, so that files without any of them are passed over.
        """
        view = f"keys_{secrets.token_hex(4)}"
        keys.stored.frame.select(*(quoted(name) for name in keys.names)).createOrReplaceTempView(view)
        same = " AND ".join([*([near] if near else []), *(f"t.{quoted(n)} <=> k.{quoted(n)}" for n in keys.names)])
        broadcast = "/*+ BROADCAST(k) */ " if keys.is_small else ""
        try:
            self.sql(
                table,
                f"MERGE INTO {self.qualified(table)} t USING (SELECT {broadcast}* FROM {view} k) k ON {same}"
                " WHEN MATCHED THEN DELETE",
            )
        finally:
            self.spark.catalog.dropTempView(view)

    def replace_partitions(self, table: str, chosen: Column, rows: DataFrame) -> None:
        """Replaces whole partitions, also by nothing: the condition is about what the table is partitioned by."""
        with self.by_spark(table):
            self._writer(table, rows).overwrite(chosen)

    @contextmanager
    def by_spark(self, table: str) -> Iterator[None]:
        """Lets Spark write to a table: it has to see it as it stands, and what it made of it is taken over."""
        self.branch.flush(table)
        yield
        self.branch.reload(table)

    def sql(self, table: str, statement: str) -> None:
        with self.by_spark(table):
            self.spark.sql(statement)

    def spark_schema(self, table: str) -> StructType:
        """The columns that a table has on the branch now."""
        metadata = self.branch.staged_metadata(table)
        assert metadata is not None
        found = spark_schema(metadata)
        if found is None:
            self.branch.flush(table)
            return self.spark.table(self.qualified(table)).schema
        return found

    def cancel(self) -> None:
        """Stops whatever Spark is doing for this run, and nothing that it does for another lake."""
        self.spark.interruptAll()

    def _writer(self, table: str, rows: DataFrame):  # type: ignore[no-untyped-def]  # noqa: ANN202 - no public type
        # `select`: a writer analyses the text of a query again, when the views of its inputs are gone already.
        return rows.select("*").writeTo(self.qualified(table)).option("snapshot-property.icefield.run", self.branch.run)


def _snapshot(metadata: Metadata | None) -> int | None:
    found = None if metadata is None else meta.current_snapshot(metadata)
    return None if found is None else int(found["snapshot-id"])
