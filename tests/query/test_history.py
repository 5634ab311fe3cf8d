"""A table's history is its published versions, from metadata alone."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from icefield.errors import UnknownVersion
from icefield.lake import metadata as meta
from icefield.lake.history import TableVersion, find_version, history
from lakes import new_lake, open_branch, publish, told, write


def test_each_publish_is_one_version_however_many_steps_it_took(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"bronze.orders": [1, 2]}, "first")
    branch = open_branch(lake, "second")
    write(branch, "bronze.orders", 3)
    found = branch.staged_metadata("bronze.orders")
    assert found is not None
    assert len(found["snapshots"]) == 2
    branch.publish({"bronze.orders": {}}, told("second"))
    versions = history(meta.load(lake.pointers()["bronze.orders"]))
    assert [(v.run, v.operation, v.rows_added, v.rows_total, v.growth) for v in versions] == [
        ("first", "append", 2, 2, 2),
        ("second", "append", 1, 3, 1),
    ]
    assert versions[0].published_at < versions[1].published_at
    assert [version.batch for version in versions] == ["", ""]


def test_a_version_tells_the_batch_that_its_run_took_in(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"bronze.orders": [1, 2]}, "first", batch="2026-01")
    publish(lake, {"bronze.orders": [3]}, "second")
    assert [version.batch for version in history(meta.load(lake.pointers()["bronze.orders"]))] == ["2026-01", ""]


def test_a_table_without_rows_has_no_versions(tmp_path: Path) -> None:
    assert history({"snapshots": [], "snapshot-log": []}) == ()


def version(snapshot: int, run: str, batch: str = "") -> TableVersion:
    return TableVersion(
        snapshot=snapshot, published_at=dt.datetime(2026, 1, snapshot, tzinfo=dt.UTC), run=run, batch=batch,
        operation="append", rows_added=1, rows_removed=0, rows_total=snapshot, growth=1, bytes_total=1, files_total=1,
    )  # fmt: skip


VERSIONS = (
    version(11, "20260201T060000-aaaaaa", "2026-01"),
    version(12, "20260301T060000-bbbbbb", "2026-02"),
    version(13, "20260302T060000-cccccc", "2026-01"),
    version(14, ""),  # written by someone else
)


@pytest.mark.parametrize(
    ("wanted", "snapshot"),
    [
        ("latest", 14),
        ("20260301T060000-bbbbbb", 12),
        ("20260201", 11),
        ("2026-02", 12),
        ("2026-01", 13),  # January was taken in again: the last time counts
        ("11", 11),
        ("14", 14),
    ],
)
def test_a_version_is_named_by_run_batch_or_snapshot(wanted: str, snapshot: int) -> None:
    assert find_version("raw.trips", VERSIONS, wanted).snapshot == snapshot


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("202603", "several versions of raw.trips .* more characters of the id: 20260301T060000-bbbbbb"),
        ("2026-03", r"no version `2026-03`.*did you mean .*20260301T060000-bbbbbb \(batch 2026-02\)"),
        ("yesterday", "versions, newest first: 14, 20260302T060000-cccccc .batch 2026-01.*or write latest"),
        ("", "no version ``.*newest first"),
    ],
)
def test_an_unknown_version_is_told_with_the_nearest(wanted: str, told: str) -> None:
    with pytest.raises(UnknownVersion) as error:
        find_version("raw.trips", VERSIONS, wanted)
    assert re.search(told, str(error.value), re.DOTALL), str(error.value)


def test_a_table_without_versions_says_so() -> None:
    with pytest.raises(UnknownVersion, match="no versions yet"):
        find_version("raw.trips", (), "latest")
