"""The newest value of a column, without Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icefield.lake import metadata as meta
from icefield.lake.newest import can_be_read, newest_ms
from lakes import change, finish, new_lake, open_branch

NOON = dt.datetime(2026, 8, 1, 12)


def published(root: Path, *parts: pa.Table) -> str:
    """A table of some appends; gives its metadata file."""
    lake = new_lake(root / "lake")
    for rows in parts:
        branch = open_branch(lake)
        change(branch, "a.one", rows)
        finish(branch, ["a.one"])
    return lake.pointers()["a.one"]


def rows(kind: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "at": pa.array(values, kind)})


def ms(time: dt.datetime) -> int:
    return int(time.replace(tzinfo=time.tzinfo or dt.UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("kind", "values", "zone", "newest"),
    [
        (pa.timestamp("us", "UTC"), [NOON, NOON - dt.timedelta(days=3)], "Europe/Berlin", NOON),
        (pa.timestamp("us"), [NOON], "UTC", NOON),
        (pa.timestamp("us"), [NOON], "Europe/Berlin", NOON - dt.timedelta(hours=2)),
        (pa.date32(), [NOON.date()], "UTC", NOON - dt.timedelta(hours=12)),
        (pa.timestamp("us", "UTC"), [dt.datetime(1960, 1, 1)], "UTC", dt.datetime(1960, 1, 1)),
    ],
    ids=["with a zone", "without one", "in the zone of the session", "a date", "before 1970"],
)
def test_the_newest_is_known_from_bounds(
    tmp_path: Path, kind: pa.DataType, values: list[Any], zone: str, newest: dt.datetime
) -> None:
    location = published(tmp_path, rows(kind, *values))
    assert can_be_read(meta.load(location), "at", zone)
    assert newest_ms(location, "at", zone) == ms(newest)


def test_the_newest_is_that_of_all_files_and_null_is_no_value(tmp_path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    parts = (rows(kind, NOON), rows(kind, None), rows(kind, NOON + dt.timedelta(days=1), None), rows(kind, NOON))
    assert newest_ms(published(tmp_path, *parts), "at", "UTC") == ms(NOON + dt.timedelta(days=1))


def test_a_column_without_values_has_no_newest(tmp_path: Path) -> None:
    assert newest_ms(published(tmp_path, rows(pa.timestamp("us", "UTC"), None, None)), "at", "UTC") is None


def test_other_types_and_zones_that_python_does_not_know_are_left_to_spark(tmp_path: Path) -> None:
    found = meta.load(published(tmp_path, rows(pa.timestamp("us"), NOON)))
    assert not can_be_read(found, "id", "UTC")
    assert not can_be_read(found, "at", "GMT+02:00")
