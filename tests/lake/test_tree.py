"""The tree of a table has what its files say, from the catalog down to the bounds of columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import batched
from icefield.errors import LakeDamaged, NoSuchTable
from icefield.lake import metadata as meta
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.tree import Bound, FileCounts, PartitionRange, TableTree, table_tree
from lakes import change, finish, new_lake, open_branch

DAYS = [dt.date(2026, 1, day) for day in (15, 16, 17)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedLake:
    return batched.taxi(tmp_path_factory.mktemp("tree") / "taxi").lake


@pytest.fixture(scope="module")
def tree(lake: EmbeddedLake) -> TableTree:
    return table_tree(lake, "raw.trips")


@pytest.fixture
def parts(tmp_path: Path) -> EmbeddedLake:
    """A table in partitions of days, three days in one run."""
    lake = new_lake(tmp_path / "lake")
    branch = open_branch(lake, "r1")
    rows = pa.table({"day": pa.array(DAYS, pa.date32()), "name": ["a", None, None]})
    change(branch, "silver.days", rows, partitioned_by="identity(day)")
    finish(branch, ["silver.days"])
    return lake


def test_the_catalog_entry_points_at_the_metadata_file(tree: TableTree, lake: EmbeddedLake) -> None:
    entry = tree.entry
    assert (entry.catalog, entry.database, entry.name) == ("catalog.db", "raw", "trips")
    assert (lake.warehouse / entry.metadata) == Path(lake.pointers()["raw.trips"])
    assert entry.previous == f"raw/trips/metadata/00001-{batched.SECOND}.metadata.json"
    assert tree.metadata.path == entry.metadata


def test_the_metadata_file_has_columns_properties_and_snapshots(tree: TableTree, lake: EmbeddedLake) -> None:
    found = tree.metadata
    assert (found.format_version, found.schema, found.schemas, found.partitioned_by) == (2, 0, 1, ())
    assert [(one.id, one.name, one.type) for one in found.columns] == [
        (1, "id", "long"),
        (2, "fare", "decimal(10, 2)"),
        (3, "tip", "double"),
        (4, "month", "string"),
    ]
    stored = meta.load(lake.pointers()["raw.trips"])
    assert (found.properties, found.snapshots) == (len(stored["properties"]), 3)
    assert found.current_snapshot == stored["current-snapshot-id"]
    assert found.bytes == Path(lake.pointers()["raw.trips"]).stat().st_size


def test_snapshots_are_newest_first_and_tell_their_run(tree: TableTree) -> None:
    assert [(one.run, one.batch, one.operation, one.rows, one.current) for one in tree.snapshots] == [
        (batched.THIRD, "2026-02", "overwrite", 4, True),
        (batched.SECOND, "2026-02", "append", 3, False),
        (batched.FIRST, "2026-01", "append", 2, False),
    ]
    newest, second, first = tree.snapshots
    assert (newest.parent, second.parent, first.parent) == (second.id, first.id, None)


def test_a_snapshot_takes_over_manifests_of_earlier_ones(tree: TableTree) -> None:
    newest, second, first = (one.manifest_list.manifests for one in tree.snapshots)
    assert (len(newest), len(second), len(first)) == (2, 2, 1)
    assert first[0] in second
    assert first[0] in newest
    assert first[0].added_by == tree.snapshots[2].id


def test_a_manifest_counts_its_files_and_names_them(tree: TableTree, lake: EmbeddedLake) -> None:
    manifest = tree.snapshots[0].manifest_list.manifests[0]
    assert (manifest.added, manifest.existing) == (FileCounts(files=1, rows=2), FileCounts(files=0, rows=0))
    assert (manifest.content, manifest.partitions, manifest.more) == ("data", (), 0)
    assert manifest.bytes == (lake.warehouse / manifest.path).stat().st_size
    [file] = manifest.files
    assert (file.status, file.content, file.format, file.rows, file.partition) == ("added", "data", "parquet", 2, {})
    assert file.bytes == (lake.warehouse / file.path).stat().st_size
    assert file.bounds == (
        Bound(column="id", lower=3, upper=4, nulls=0),
        Bound(column="fare", lower=Decimal("6.00"), upper=Decimal("7.25"), nulls=0),
        Bound(column="tip", lower=0.0, upper=2.5, nulls=0),
        Bound(column="month", lower="2026-02", upper="2026-02", nulls=0),
    )


def test_fewer_snapshots_and_files_are_read_on_request(parts: EmbeddedLake, lake: EmbeddedLake) -> None:
    few = table_tree(lake, "raw.trips", snapshots=1)
    assert ([one.batch for one in few.snapshots], few.older) == (["2026-02"], 2)
    [manifest] = table_tree(parts, "silver.days", files=2).snapshots[0].manifest_list.manifests
    assert (len(manifest.files), manifest.more) == (2, 1)
    [manifest] = table_tree(parts, "silver.days", files=0).snapshots[0].manifest_list.manifests
    assert (manifest.files, manifest.more) == ((), 3)


def test_partitions_are_named_with_readable_values(parts: EmbeddedLake) -> None:
    found = table_tree(parts, "silver.days")
    assert found.metadata.partitioned_by == ("day",)
    [manifest] = found.snapshots[0].manifest_list.manifests
    assert manifest.partitions == (PartitionRange(field="day_identity", lower=DAYS[0], upper=DAYS[2], nulls=False),)
    assert sorted(file.partition["day_identity"] for file in manifest.files) == DAYS
    [first] = [file for file in manifest.files if file.partition["day_identity"] == DAYS[0]]
    assert first.bounds == (
        Bound(column="day", lower=DAYS[0], upper=DAYS[0], nulls=0),
        Bound(column="name", lower="a", upper="a", nulls=0),
    )


def _rewrite(path: Path, edit: Any) -> None:
    """Writes an Avro file anew with its records changed."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, records = reader.writer_schema, list(reader)
    for record in records:
        edit(record)
    with path.open("wb") as file:
        fastavro.writer(file, schema, records)


def test_delete_files_say_what_they_are(parts: EmbeddedLake) -> None:
    before = table_tree(parts, "silver.days").snapshots[0].manifest_list

    def takes_rows_out(entry: Any) -> None:
        entry["data_file"]["content"] = 1 if entry["data_file"]["partition"]["day_identity"] == DAYS[0] else 2

    _rewrite(parts.warehouse / before.path, lambda manifest: manifest.update(content=1))
    _rewrite(parts.warehouse / before.manifests[0].path, takes_rows_out)
    [manifest] = table_tree(parts, "silver.days").snapshots[0].manifest_list.manifests
    assert manifest.content == "deletes"
    found = {file.partition["day_identity"]: file.content for file in manifest.files}
    assert [found[day] for day in DAYS] == ["position deletes", "equality deletes", "equality deletes"]


def test_columns_inside_of_structs_have_their_full_names(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    branch = open_branch(lake, "r1")
    place = pa.array([{"city": "Bern"}], pa.struct([("city", pa.string())]))
    change(branch, "silver.places", pa.table({"place": place, "tags": pa.array([["x"]], pa.list_(pa.string()))}))
    finish(branch, ["silver.places"])
    found = table_tree(lake, "silver.places")
    assert [column.type for column in found.metadata.columns] == ["struct<city: string>", "list<string>"]
    [manifest] = found.snapshots[0].manifest_list.manifests
    [city] = [
        field["id"]
        for field in meta.load(lake.pointers()["silver.places"])["schemas"][0]["fields"][0]["type"]["fields"]
    ]

    def as_spark_does(entry: Any) -> None:  # PyIceberg writes no bounds of columns inside of others
        for side in ("lower_bounds", "upper_bounds"):
            entry["data_file"][side] = [{"key": city, "value": b"Bern"}, {"key": 99, "value": b"of no column"}]

    _rewrite(lake.warehouse / manifest.path, as_spark_does)
    [file] = table_tree(lake, "silver.places").snapshots[0].manifest_list.manifests[0].files
    assert [(bound.column, bound.lower, bound.upper) for bound in file.bounds] == [("place.city", "Bern", "Bern")]


def test_a_manifest_that_is_gone_is_named(parts: EmbeddedLake) -> None:
    [manifest] = (parts.warehouse / "silver").rglob("*-m0.avro")
    manifest.unlink()
    with pytest.raises(LakeDamaged) as error:
        table_tree(parts, "silver.days")
    assert str(manifest) in str(error.value)


def test_an_unknown_table_is_refused(parts: EmbeddedLake) -> None:
    with pytest.raises(NoSuchTable):
        table_tree(parts, "silver.nights")
