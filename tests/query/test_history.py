"""A table's history is its published versions, from metadata alone."""

from __future__ import annotations

from pathlib import Path

from icefield.lake import metadata as meta
from icefield.lake.history import history
from lakes import new_lake, open_branch, publish, told, write


def test_each_publish_is_one_version_however_many_steps_it_took(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"bronze.orders": [1, 2]}, "first")
    branch = open_branch(lake, "second")
    write(branch, "bronze.orders", 3)
    found = meta.load(lake.catalog.pointers(branch.name)["bronze.orders"])
    assert len(found["snapshots"]) == 2
    branch.publish({"bronze.orders": {}}, told("second"))
    versions = history(meta.load(lake.pointers()["bronze.orders"]))
    assert [(v.run, v.operation, v.rows_added, v.rows_total, v.growth) for v in versions] == [
        ("first", "append", 2, 2, 2),
        ("second", "append", 1, 3, 1),
    ]
    assert versions[0].published_at < versions[1].published_at


def test_a_table_without_rows_has_no_versions(tmp_path: Path) -> None:
    assert history({"snapshots": [], "snapshot-log": []}) == ()
