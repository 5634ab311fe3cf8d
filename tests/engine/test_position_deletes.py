"""Rows of some keys of a large table, replaced without a query: what every reader finds is what a MERGE leaves."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from icefield.engine import limits
from icefield.engine.batch import InMemory
from icefield.engine.refresh.keys import KeySet
from icefield.engine.refresh.replace import Given, replace_keys
from icefield.engine.session.spark import add_catalog
from icefield.engine.tables import Tables
from icefield.lake import metadata as meta
from icefield.lake.branch import Branch
from icefield.lake.catalog import LAKE
from icefield.lake.compaction import compact, due, files_of
from icefield.lake.duckdb_scan import connect, scan
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.manifests import live_files, records
from icefield.lake.table_state import as_ours
from icefield.plan import upkeep as rules
from icefield.plan.upkeep import Compaction
from lakes import finish, new_lake, open_branch

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]
Draw = random.Random
DAY = dt.date(2026, 1, 1)
MOMENT = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
NAME = "customers have long names, which bounds in manifests cut: "


@dataclass
class Pair:
    """The same rows in two tables, one that is changed by position deletes and one by MERGE, and in memory."""

    spark: Any
    lake: EmbeddedLake
    schema: StructType
    keys: tuple[str, ...]
    merged: list[str]
    rows: list[Row] = field(default_factory=list)

    tables = ("a.ours", "a.merged")

    def work(self, *steps: Callable[[Tables], None]) -> None:
        """Publishes what some steps do to the tables."""
        branch = open_branch(self.lake)
        add_catalog(self.spark, branch.name, uri=str(self.lake.catalog.path), warehouse=str(self.lake.warehouse))
        staged = Tables(self.spark, branch)
        for table in self.tables:
            branch.prepare(table)
        for step in steps:
            step(staged)
        finish(branch, self.tables)

    def create(self, first: list[Row], partitioned_by: tuple[str, ...] = (), files: int = 3) -> None:
        node: Any = SimpleNamespace(partitioned_by=partitioned_by, source=None, columns=None, comments={})

        def step(staged: Tables) -> None:
            for table in self.tables:
                staged.definitions.create(table, self.schema, node)
                staged.append(table, self.batch(first).frame.repartition(files))

        self.work(step)
        self.rows = list(first)

    def replace(self, keys: list[Row], fresh: list[Row]) -> None:
        """All rows of these keys go, others come."""
        schema = StructType([self.schema[name] for name in self.keys])
        wanted = KeySet(self.keys, InMemory(self.spark, schema, arrow(keys, schema)), len(keys))
        node: Any = SimpleNamespace(name="a.other", keys=self.keys)

        def step(staged: Tables) -> None:
            usual = limits.LIMITS
            for table, most in zip(self.tables, (usual.key_bytes, -1), strict=True):
                limits.LIMITS = replace(usual, key_bytes=most)
                try:
                    place = self.lake.warehouse / f"scratch-{uuid4()}"
                    replace_keys(staged, node, table, 10**9, wanted, Given(self.batch(fresh)), place)
                finally:
                    limits.LIMITS = usual

        self.work(step)
        gone = set(keys)
        self.rows = [row for row in self.rows if self.key(row) not in gone] + fresh

    def key(self, row: Row) -> Row:
        return tuple(row[self.schema.names.index(name)] for name in self.keys)

    def batch(self, rows: list[Row]) -> InMemory:
        return InMemory(self.spark, self.schema, arrow(rows, self.schema))

    def add_column(self, ddl: str) -> None:
        self.schema = StructType([*self.schema, *StructType.fromDDL(ddl)])
        self.rows = [(*row, None) for row in self.rows]
        self.work(
            lambda staged: [staged.definitions.evolve(table, self.schema, None) for table in self.tables] and None
        )

    def compact(self, *, whole: bool) -> None:
        """Writes all files together, or what upkeep would."""
        for table in self.tables:
            branch = open_branch(self.lake)
            found = files_of(branch.pyiceberg().load_table(table))
            wanted = Compaction(files=tuple(file for file, _ in found), applies_deletes=True) if whole else None
            wanted = wanted or due(branch, table)
            done = None if wanted is None else compact(branch, table, wanted)
            if done is None:
                branch.abandon()
            else:
                branch.publish_upkeep({table: as_ours}, {table: done.summary})

    def require_same(self, *, by_spark: bool = False) -> None:
        """Every reader finds the same rows in both tables, and the counts are right."""
        expected = multiset(arrow(self.rows, self.schema), self.schema)
        for table in self.tables:
            location = self.lake.pointers()[table]
            with connect() as db:
                assert multiset(db.sql(f"FROM {scan(location)}").to_arrow_table(), self.schema) == expected, table
            assert multiset(StaticTable.from_metadata(location).scan().to_arrow(), self.schema) == expected, table
            if by_spark:
                read = self.spark.read.format("iceberg").load(location)
                assert multiset(read.toArrow(), self.schema) == expected, table
                assert read.count() == len(self.rows), "by the metadata alone"
            self.require_counts(meta.load(location))

    def require_counts(self, metadata: meta.Metadata) -> None:
        assert meta.total_records(metadata) == len(self.rows)
        snapshot = meta.current_snapshot(metadata)
        assert snapshot is not None
        files = live_files(snapshot)
        assert int(snapshot["summary"]["total-data-files"]) == len(files.data)
        assert int(snapshot["summary"]["total-delete-files"]) == len(files.deletes)
        places = [pq.read_table(meta.local_path(path), partitioning=None) for path, _ in files.deletes]
        every = [(row["file_path"], row["pos"]) for part in places for row in part.to_pylist()]
        assert len(every) == len(set(every)) == int(snapshot["summary"]["total-position-deletes"])


def arrow(rows: list[Row], schema: StructType) -> pa.Table:
    kinds = to_arrow_schema(schema)
    return pa.table([pa.array([row[n] for row in rows], kind.type) for n, kind in enumerate(kinds)], schema=kinds)


def multiset(found: pa.Table, schema: StructType) -> Counter[str]:
    return Counter(map(repr, found.select(schema.names).cast(to_arrow_schema(schema)).to_pylist()))


@pytest.fixture
def pair(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pair]:
    merged: list[str] = []
    real = Tables.remove_keys

    def remove_keys(self: Tables, table: str, keys: KeySet, near: str = "") -> None:
        merged.append(table)
        real(self, table, keys, near)

    monkeypatch.setattr(Tables, "remove_keys", remove_keys)

    def make(ddl: str, *keys: str) -> Pair:
        return Pair(spark, new_lake(tmp_path / "lake"), StructType.fromDDL(ddl), keys or ("k",), merged)

    return make


KINDS: dict[str, Callable[[Draw], Any]] = {
    "BIGINT": lambda draw: draw.randrange(25),
    "INT": lambda draw: draw.choice([-(2**31), *range(5), 2**31 - 1]),
    "STRING": lambda draw: NAME + draw.choice(["", "é", "z"]) * draw.randrange(8),
    "DATE": lambda draw: DAY + dt.timedelta(days=draw.randrange(25)),
    "TIMESTAMP": lambda draw: MOMENT + dt.timedelta(microseconds=draw.randrange(25)),
    "TIMESTAMP_NTZ": lambda draw: MOMENT.replace(tzinfo=None) + dt.timedelta(hours=draw.randrange(25)),
    "DECIMAL(20,4)": lambda draw: Decimal(draw.randrange(-10, 15)) / 4,
    "BOOLEAN": lambda draw: draw.random() < 0.5,
}


def drawn(draw: Draw, kinds: tuple[str, ...]) -> Row:
    """A key; NULL is one like any other."""
    return tuple(None if draw.random() < 0.1 else KINDS[kind](draw) for kind in kinds)


@pytest.mark.parametrize(
    ("kinds", "partitioned_by"),
    [
        (("BIGINT",), ()),
        (("STRING",), ()),
        (("DATE",), ("months(k0)",)),
        (("TIMESTAMP",), ()),
        (("TIMESTAMP_NTZ",), ()),
        (("DECIMAL(20,4)",), ()),
        (("INT", "STRING"), ("bucket(3, k0)",)),
        (("BOOLEAN", "DATE", "DECIMAL(20,4)"), ("k0",)),
    ],
    ids=lambda told: " ".join(told),
)
def test_after_any_history_all_readers_find_what_a_merge_leaves(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], partitioned_by: tuple[str, ...]
) -> None:
    monkeypatch.setattr(rules, "FEW", 3)
    draw = random.Random(repr(kinds))
    names = [f"k{n}" for n in range(len(kinds))]
    both = pair(", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True)) + ", v INT", *names)
    both.create([(*drawn(draw, kinds), n) for n in range(60)], partitioned_by)
    for step in range(8):
        if step == 3:
            both.add_column("extra STRING")
        if step in (4, 6):
            both.compact(whole=step == 6)
            both.require_same()
        keys = list({drawn(draw, kinds) for _ in range(draw.randrange(1, 6))})
        more = (None if draw.random() < 0.5 else "more",) if step >= 3 else ()
        fresh = [(*key, 1000 * step + n, *more) for key in keys for n in range(draw.choice([0, 1, 1, 3]))]
        both.replace(keys, fresh)
        both.require_same(by_spark=step in (2, 7))
    assert set(both.merged) == {"a.merged"}, "rows were deleted by their places throughout"


def test_one_snapshot_takes_rows_out_and_adds_others(pair: Callable[..., Pair]) -> None:
    both = pair("k BIGINT, v INT")
    both.create([(n, n) for n in range(90)])
    before = meta.load(both.lake.pointers()["a.ours"])
    both.replace([(3,), (50,), (500,)], [(3, -3), (500, -500)])
    metadata = meta.load(both.lake.pointers()["a.ours"])
    assert len(metadata["snapshots"]) == len(before["snapshots"]) + 1
    now = meta.current_snapshot(metadata)
    assert now is not None
    assert now["summary"]["operation"] == "overwrite"
    assert (now["summary"]["added-records"], now["summary"]["added-position-deletes"]) == ("2", "2")
    both.replace([(7,)], [])
    now = meta.current_snapshot(meta.load(both.lake.pointers()["a.ours"]))
    assert now is not None
    assert now["summary"]["operation"] == "delete"
    both.replace([(600,)], [(600, 1)])
    now = meta.current_snapshot(meta.load(both.lake.pointers()["a.ours"]))
    assert now is not None
    assert now["summary"]["operation"] == "append", "there was nothing to take out"
    both.require_same(by_spark=True)


def test_each_data_file_has_one_delete_file_however_often_rows_go(pair: Callable[..., Pair]) -> None:
    both = pair("k BIGINT, v INT")
    both.create([(n, n) for n in range(90)], files=2)
    for n in range(6):
        both.replace([(n,), (n + 20,), (n + 40,)], [])
    both.require_same(by_spark=True)
    now = meta.current_snapshot(meta.load(both.lake.pointers()["a.ours"]))
    assert now is not None
    assert now["summary"]["total-delete-files"] == "2"
    assert now["summary"]["total-position-deletes"] == "18"


def test_manifests_of_deletes_are_merged(pair: Callable[..., Pair]) -> None:
    both = pair("k BIGINT, v INT")
    both.create([(n, n) for n in range(10)], files=1)
    told = "ALTER TABLE {} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '3')"
    both.work(lambda staged: staged.sql("a.ours", told.format(staged.qualified("a.ours"))))
    for n in range(100, 109):
        both.replace([(n - 1,), (n,)], [(n, n)])  # the row of the step before goes, which has a file of its own
    now = meta.current_snapshot(meta.load(both.lake.pointers()["a.ours"]))
    assert now is not None
    manifests = Counter(one["content"] for one in records(now["manifest-list"]))
    assert manifests[0] <= 3
    assert manifests[1] <= 3
    both.require_same(by_spark=True)


def test_keys_are_found_in_files_with_other_columns(pair: Callable[..., Pair]) -> None:
    """A key that was widened and renamed, and one that older rows do not have."""
    both = pair("old INT, v INT", "old")
    both.create([(n, n) for n in range(30)])
    both.replace([(4,)], [(4, -4)])
    wide = StructType.fromDDL("k BIGINT, v INT")

    def change(staged: Tables) -> None:
        for table in both.tables:
            staged.definitions.rename(table, wide, {"k": "old"})
            staged.definitions.evolve(table, wide, None)

    both.work(change)
    both.schema, both.keys = wide, ("k",)
    both.replace([(4,), (5,), (2**40,)], [(5, -5), (2**40, 0)])
    both.require_same(by_spark=True)
    both.add_column("side STRING")
    both.keys = ("k", "side")
    both.replace([(6, None), (7, "left"), (2**40, None)], [(6, -6, None), (7, 70, "left")])
    both.replace([(7, "left"), (8, None)], [(7, 71, "left")])
    both.require_same(by_spark=True)
    assert set(both.merged) == {"a.merged"}


def test_files_of_another_layout_keep_their_own(pair: Callable[..., Pair]) -> None:
    both = pair("k BIGINT, v INT")
    both.create([(n, n % 4) for n in range(40)], ("bucket(2, k)",))
    told = "ALTER TABLE {} ADD PARTITION FIELD v"
    both.work(lambda staged: [staged.sql(t, told.format(staged.qualified(t))) for t in both.tables] and None)
    both.replace([(1,), (2,)], [(1, 1), (1, 2), (2, None)])
    both.replace([(1,), (2,), (3,), (30,)], [(3, 9)])
    both.require_same(by_spark=True)
    assert set(both.merged) == {"a.merged"}


def test_only_key_columns_of_files_that_can_have_the_keys_are_read(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.io.pyarrow import ArrowScan

    both = pair("k BIGINT, v INT")
    both.create([(n, n) for n in range(10)], files=1)
    for first in (100, 200, 300):
        both.replace([(first,)], [(first + n, n) for n in range(10)])
    read: list[tuple[str, list[str]]] = []
    real = ArrowScan.to_record_batches

    def to_record_batches(self: ArrowScan, tasks: Any) -> Any:
        read.extend((task.file.file_path, self._projected_schema.column_names) for task in tasks)
        return real(self, tasks)

    monkeypatch.setattr(ArrowScan, "to_record_batches", to_record_batches)
    both.replace([(205,), (250,)], [])
    assert [columns for _, columns in read] == [["k"]], "of one file out of four"
    both.require_same()


@pytest.mark.parametrize("most", [{"key_bytes": 10}, {"deleted_rows": 1}], ids=lambda told: next(iter(told)))
def test_above_the_limits_spark_merges(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, most: dict[str, int]
) -> None:
    both = pair("k BIGINT, v INT")
    both.create([(n // 2, n) for n in range(60)])
    monkeypatch.setattr(limits, "LIMITS", replace(limits.LIMITS, **most))
    both.replace([(4,)], [(4, 40)])
    assert both.merged == ["a.ours", "a.merged"]
    both.require_same(by_spark=True)


def test_where_another_engine_deleted_by_value_spark_merges(pair: Callable[..., Pair]) -> None:
    both = pair("k BIGINT, v INT")
    both.create([(n, n) for n in range(20)])
    for table in both.tables:
        delete_by_value(both, table, 11)
    both.rows.remove((11, 11))
    both.replace([(11,), (12,)], [(12, -12)])
    assert both.merged == ["a.ours", "a.merged"]
    expected = multiset(arrow(both.rows, both.schema), both.schema)
    for table in both.tables:
        read = both.spark.read.format("iceberg").load(both.lake.pointers()[table])
        assert multiset(read.toArrow(), both.schema) == expected


def delete_by_value(both: Pair, table: str, value: int) -> None:
    """Writes a file that says: all rows of this key are gone."""
    lake, java = both.lake, both.spark._jvm
    iceberg = java.org.apache.iceberg
    where = {"uri": f"jdbc:sqlite:{lake.catalog.path}", "warehouse": str(lake.warehouse), "jdbc.schema-version": "V1"}
    hadoop = both.spark._jsparkSession.sessionState().newHadoopConf()
    catalog = iceberg.CatalogUtil.loadCatalog("org.apache.iceberg.jdbc.JdbcCatalog", LAKE, where, hadoop)
    found = catalog.loadTable(iceberg.catalog.TableIdentifier.parse(table))
    number = found.schema().findField("k").fieldId()
    path = lake.warehouse / f"gone-{uuid4()}.parquet"
    schema = pa.schema([pa.field("k", pa.int64(), metadata={"PARQUET:field_id": str(number)})])
    pq.write_table(pa.table({"k": [value]}, schema=schema), path)
    fields = both.spark.sparkContext._gateway.new_array(java.int, 1)
    fields[0] = number
    gone = iceberg.FileMetadata.deleteFileBuilder(found.spec()).ofEqualityDeletes(fields).withPath(str(path))
    gone = gone.withFormat("parquet").withFileSizeInBytes(path.stat().st_size).withRecordCount(1).build()
    found.newRowDelta().addDeletes(gone).commit()
    catalog.close()


def test_what_was_parsed_of_a_table_is_kept_until_it_changes(
    pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.table.metadata import TableMetadataUtil

    both = pair("k BIGINT, v INT")
    both.create([(n, n) for n in range(20)])
    parsed: list[Any] = []
    real = TableMetadataUtil.parse_obj
    monkeypatch.setattr(TableMetadataUtil, "parse_obj", lambda told: parsed.append(told) or real(told))
    branch: Branch = open_branch(both.lake)
    catalog = branch.pyiceberg()
    first = catalog.load_table("a.ours")
    assert catalog.load_table("a.ours").metadata is first.metadata
    before = first.metadata.current_snapshot_id
    first.append(arrow([(100, 1)], both.schema))
    assert catalog.load_table("a.ours").metadata.current_snapshot_id != before
    assert len(parsed) == 1
    branch.prepare("a.ours")
    assert catalog.load_table("a.ours").metadata.current_snapshot_id == before, "what was written is taken back"
    assert len(parsed) == 2
    branch.abandon()
