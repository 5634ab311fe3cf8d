"""What is published is what Iceberg wrote, but for a short list of JSON paths; every reader goes by these files."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icefield.lake import metadata as meta
from icefield.lake.branch import Branch
from icefield.lake.embedded import EmbeddedLake
from lakes import new_lake, open_branch, told, write
from projects import rows_of

#: The whole list. `snapshots[current]` is the newest snapshot; `properties` lose the run's own folders and gain state.
ALLOWED = {
    "last-updated-ms",
    "snapshot-log",
    "metadata-log",
    "properties.write.data.path",
    "properties.write.metadata.path",
    "properties.icefield.run",
    "properties.icefield.columns",
    "snapshots[current].timestamp-ms",
}


@pytest.fixture
def lake(tmp_path: Path) -> EmbeddedLake:
    return new_lake(tmp_path / "lake")


def differences(one: Any, other: Any, path: str, current: int) -> Iterator[str]:
    """Paths at which two JSON values differ."""
    if path in ("snapshot-log", "metadata-log"):
        if one != other:
            yield path
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in {*one, *other}:
            below = f"{path}.{key}" if path else key
            if (key in one) != (key in other):
                yield below
            else:
                yield from differences(one.get(key), other.get(key), below, current)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            is_current = path == "snapshots" and left.get("snapshot-id") == current
            yield from differences(left, right, f"{path}[{'current' if is_current else index}]", current)
    elif one != other:
        yield path


def published_difference(lake: EmbeddedLake, branch: Branch, table: str) -> set[str]:
    staged = copy.deepcopy(branch.staged_metadata(table))
    assert staged is not None
    branch.publish({table: {"icefield.run": branch.run}}, told(branch.run))
    final = meta.load(lake.pointers()[table])
    return set(differences(staged, final, "", staged["current-snapshot-id"]))


def test_of_a_new_table_only_the_listed_paths_differ(lake: EmbeddedLake) -> None:
    branch = open_branch(lake)
    write(branch, "a.one", 1)
    assert published_difference(lake, branch, "a.one") <= ALLOWED


def test_of_a_table_with_a_past_and_several_inner_steps_only_the_listed_paths_differ(lake: EmbeddedLake) -> None:
    for values in ([1], [2]):
        branch = open_branch(lake)
        for value in values:
            write(branch, "a.one", value)
        branch.publish({"a.one": {"icefield.run": branch.run}}, told(branch.run))
    branch = open_branch(lake)
    write(branch, "a.one", 3)
    assert published_difference(lake, branch, "a.one") <= ALLOWED


def test_fields_that_nobody_here_knows_and_main_s_retention_come_through(lake: EmbeddedLake) -> None:
    branch = open_branch(lake)
    write(branch, "a.one", 1)
    staged = branch.staged_metadata("a.one")
    assert staged is not None
    staged["refs"]["main"]["max-ref-age-ms"] = 12345
    staged["refs"]["kept"] = {"snapshot-id": staged["current-snapshot-id"], "type": "tag"}
    staged["something-from-v4"] = {"deep": [1, {"er": None}]}
    branch.stage("a.one", staged)
    assert published_difference(lake, branch, "a.one") <= ALLOWED
    final = meta.load(lake.pointers()["a.one"])
    assert final["something-from-v4"] == {"deep": [1, {"er": None}]}
    assert final["refs"] == staged["refs"]


def test_the_logs_hold_one_entry_a_publish_and_every_file_they_name_is_there(lake: EmbeddedLake) -> None:
    times = []
    for value in range(4):
        branch = open_branch(lake)
        write(branch, "a.one", value)
        times.append(branch.publish({"a.one": {"icefield.run": branch.run}}, told(branch.run)))
    final = meta.load(lake.pointers()["a.one"])
    assert [entry["timestamp-ms"] for entry in final["snapshot-log"]] == times
    assert final["last-updated-ms"] == times[-1]
    assert [entry["timestamp-ms"] for entry in final["metadata-log"]] == times[:-1]
    for entry in final["metadata-log"]:
        assert meta.local_path(entry["metadata-file"]).is_file()
        rows_of(entry["metadata-file"])
    assert {ref["snapshot-id"] for ref in final["refs"].values()} == {final["current-snapshot-id"]}
    inner = [path for path in lake.warehouse.rglob("*.metadata.json") if path.parent.name != "metadata"]
    assert inner == []


def test_pyiceberg_reads_what_was_published(lake: EmbeddedLake) -> None:
    from pyiceberg.table import StaticTable

    for value in range(3):
        branch = open_branch(lake)
        write(branch, "a.one", value)
        branch.publish({"a.one": {"icefield.run": branch.run}}, told(branch.run))
    table = StaticTable.from_metadata(lake.pointers()["a.one"])
    assert sorted(table.scan().to_arrow()["value"].to_pylist()) == [0, 1, 2]
    assert [entry.snapshot_id for entry in table.metadata.snapshot_log] == [
        snapshot.snapshot_id for snapshot in table.metadata.snapshots
    ]


@pytest.mark.spark
def test_of_what_spark_wrote_only_the_listed_paths_differ(lake: EmbeddedLake, tmp_path: Path) -> None:
    """Created, grown by a column, appended to, replaced: each as a run of its own."""
    from icefield.engine.session.spark import add_catalog, start_session
    from icefield.engine.tables import Tables

    spark = start_session(app="contract", conf={}, log=tmp_path / "spark.log")

    def publish(work: Any) -> set[str]:
        branch = open_branch(lake)
        add_catalog(spark, branch.name, uri=str(lake.catalog.path), warehouse=str(lake.warehouse))
        work(Tables(spark, branch))
        return published_difference(lake, branch, "a.one")

    def make(tables: Tables) -> None:
        rows = spark.sql("SELECT 1L AS id, 'x' AS name")
        tables.definitions.create("a.one", rows.schema, None, "what it is")
        tables.append("a.one", rows)

    def grow(tables: Tables) -> None:
        rows = spark.sql("SELECT 2L AS id, 'y' AS name, 0.5D AS share")
        tables.branch.prepare("a.one")
        tables.definitions.evolve("a.one", rows.schema, None)
        tables.append("a.one", rows)

    def replace(tables: Tables) -> None:
        tables.branch.prepare("a.one")
        tables.overwrite("a.one", spark.sql("SELECT 3L AS id, 'z' AS name, 0.5D AS share"))
        tables.append("a.one", spark.sql("SELECT 4L AS id, 'z' AS name, 0.5D AS share"))

    for work in (make, grow):
        assert publish(work) <= ALLOWED
    before = meta.load(lake.pointers()["a.one"])
    assert publish(replace) - ALLOWED == {"snapshots"}, "of its two commits one snapshot is left"
    final = meta.load(lake.pointers()["a.one"])
    assert len(final["snapshot-log"]) == len(final["snapshots"]) == 3
    last = final["snapshots"][-1]
    assert last["parent-snapshot-id"] == before["current-snapshot-id"]
    counts = {"operation": "overwrite", "added-records": "2", "deleted-records": "2", "total-records": "2"}
    assert {key: last["summary"][key] for key in counts} == counts
    lists = {snapshot["manifest-list"] for snapshot in final["snapshots"]}
    there = {str(file) for file in lake.warehouse.rglob("a/one/metadata/**/snap-*.avro")}
    assert there == {str(meta.local_path(one)) for one in lists}, "nothing is left of the first"
    assert sorted(row[0] for row in rows_of(lake.pointers()["a.one"])) == [3, 4]
