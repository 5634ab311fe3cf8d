"""Rows of small files that were read before come from memory, and never more of them than is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from icefield.lake import small_files
from icefield.lake.arrow_scan import Near, rows_near
from icefield.lake.embedded import EmbeddedLake
from lakes import new_lake, open_branch, publish


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    small_files._kept.clear()
    yield
    small_files._kept.clear()


@pytest.fixture
def lake(tmp_path: Path) -> EmbeddedLake:
    made = new_lake(tmp_path / "lake")
    for number in range(5):
        publish(made, {"a.one": [number, number + 100]})
    return made


def found(lake: EmbeddedLake, *numbers: int) -> list[int]:
    branch = open_branch(lake)
    metadata = branch.base_metadata("a.one")
    assert metadata is not None
    column = metadata["schemas"][-1]["fields"][0]["name"]
    wanted = pa.array(numbers, pa.int64())

    def has(rows: pa.Table) -> pa.Array:
        return pc.is_in(rows[column].cast(pa.int64()), value_set=wanted)

    near = [Near(column, values=numbers)]
    rows = rows_near(branch, "a.one", metadata["current-snapshot-id"], near, has, 1 << 30)
    branch.abandon()
    assert rows is not None
    return sorted(rows[column].to_pylist())


def test_files_are_read_once(lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(lake, 2, 103) == [2, 103]
    read = len(small_files._kept)
    assert read

    def refuse(*_: object) -> None:
        raise AssertionError("a file was read again")

    monkeypatch.setattr("pyiceberg.io.pyarrow.ArrowScan.to_table", refuse)
    assert found(lake, 2, 103) == [2, 103]
    assert found(lake, 2) == [2]
    assert len(small_files._kept) == read


def test_what_was_not_asked_for_lately_is_forgotten(lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "KEPT", 40)
    assert found(lake, *range(5)) == [0, 1, 2, 3, 4]
    assert sum(rows.nbytes for rows in small_files._kept.values()) <= 40
    assert found(lake, *range(5)) == [0, 1, 2, 3, 4]


def test_large_files_are_not_kept(lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "LARGEST", 10)
    assert found(lake, 4) == [4]
    assert not small_files._kept
