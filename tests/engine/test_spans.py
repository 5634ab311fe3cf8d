"""Between which values a column lies, as the footers of files tell."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefield.engine.folders import Folder

DAY = dt.date(2026, 8, 1)
FAR = 4_000_000  # days: after the year 9999


def folder(place: Path, *files: pa.Table) -> Folder:
    for number, rows in enumerate(files):
        (place / f"part={number}").mkdir(parents=True)
        pq.write_table(rows, place / f"part={number}" / "rows.parquet", row_group_size=2)
    return Folder(place)


@pytest.mark.parametrize(
    ("values", "span"),
    [
        ([[3, 1, 2], [7], []], (1, 7)),
        ([["s10", "s9"], ["é", "z"]], ("s10", "é")),
        ([[DAY], [DAY + dt.timedelta(1)]], (DAY, DAY + dt.timedelta(1))),
        ([[1, None], [2]], None),
        ([[], []], None),
    ],
)
def test_all_files_and_groups_of_rows_are_asked(
    tmp_path: Path, values: list[list[Any]], span: tuple[Any, Any] | None
) -> None:
    kind = pa.array([v for part in values for v in part if v is not None]).type
    files = [pa.table({"key": pa.array(part, kind)}) for part in values]
    assert folder(tmp_path, *files).span("key") == span


def test_days_that_python_does_not_know_tell_nothing(tmp_path: Path) -> None:
    days = pa.array([0, FAR], pa.int32()).cast(pa.date32())
    assert folder(tmp_path, pa.table({"key": days})).span("key") is None


def test_a_value_inside_another_one_is_not_taken_for_a_column(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([{"b": 1}]), "key": pa.array([{"a": 5}])})
    found = folder(tmp_path, rows)
    assert [found.span(name) for name in ("a.b", "b", "a", "key", "other")] == [None] * 5


def test_a_column_whose_footer_tells_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": [1]}), tmp_path / "rows.parquet", write_statistics=False)
    assert Folder(tmp_path).span("key") is None
