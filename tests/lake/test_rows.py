"""Rows that PyIceberg reads for a run."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyiceberg.io.pyarrow import PyArrowFileIO

from icefield.lake import arrow_scan as rows
from icefield.lake import metadata as meta
from icefield.lake.branch import Branch
from icefield.lake.int_sets import Arrived
from lakes import new_lake, open_branch, publish


def among(branch: Branch, snapshot: int, wanted: NDArray[np.int64]) -> pa.Table:
    spans = Arrived.of([wanted]).spans
    return rows.values_among(branch, "a.one", snapshot, "value", spans, lambda: wanted)


@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_found_wherever_they_are(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    lake, known = new_lake(tmp_path / "lake"), []
    for start in (0, 1_000, 900, -(2**62)):
        part = [start + draw.randrange(500) for _ in range(60)]
        publish(lake, {"a.one": part})
        known += part
    branch = open_branch(lake)
    snapshot = meta.current_snapshot(branch.base_metadata("a.one") or {})
    assert snapshot is not None
    wanted = sorted({draw.choice(known) + draw.choice([0, 0, 1]) for _ in range(40)} | {2**62})
    found = among(branch, snapshot["snapshot-id"], np.array(wanted, np.int64))
    assert sorted(found["value"].to_pylist()) == sorted(value for value in known if value in wanted)
    nothing = among(branch, snapshot["snapshot-id"], np.array([], np.int64))
    assert nothing.num_rows == 0
    branch.abandon()


def test_files_that_can_have_none_of_the_numbers_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_lake(tmp_path / "lake")
    for start in range(0, 5_000, 1_000):
        publish(lake, {"a.one": list(range(start, start + 100))})
    branch = open_branch(lake)
    snapshot = meta.current_snapshot(branch.base_metadata("a.one") or {})
    assert snapshot is not None
    opened: list[str] = []
    real = PyArrowFileIO.new_input

    def new_input(self: PyArrowFileIO, location: str) -> object:
        if location.endswith(".parquet"):
            opened.append(location)
        return real(self, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", new_input)
    # An old number among new ones does not mean that all is read.
    wanted = np.array([3, 7, 500, 4_050, 4_999], np.int64)
    found = among(branch, snapshot["snapshot-id"], wanted)
    assert sorted(found["value"].to_pylist()) == [3, 7, 4_050]
    assert len(set(opened)) == 2
    opened.clear()
    spans = [(600, 800), (5_500, 9_000)]
    nothing = rows.values_among(branch, "a.one", snapshot["snapshot-id"], "value", spans, lambda: pytest.fail("asked"))
    assert (nothing.num_rows, opened) == (0, [])
    branch.abandon()


def test_lists_of_structs_are_nothing_for_pyiceberg_which_makes_empty_lists_of_nulls() -> None:
    import pyarrow as pa

    from icefield.lake.arrow_scan import can_be_written, keeps_nulls

    one = pa.struct([("a", pa.int32())])
    for kind in (pa.list_(one), pa.map_(pa.string(), one), pa.struct([("x", pa.list_(one))]), pa.list_(pa.list_(one))):
        assert not keeps_nulls(pa.schema([("x", kind)]))
        assert not can_be_written(pa.table({"x": pa.array([None], kind)}))
    for kind in (one, pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32()), pa.string()):
        assert keeps_nulls(pa.schema([("x", kind)]))
