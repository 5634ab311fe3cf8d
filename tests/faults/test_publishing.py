"""A process that is killed while it opens a branch, writes history or publishes: all of its tables are there, or none.

Without Spark: PyIceberg writes the rows, and everything after that is what a run does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from icefield.failpoint import POINTS
from icefield.lake import metadata as meta
from icefield.lake.embedded import EmbeddedLake
from lakes import new_lake, publish
from projects import Process, rows_of

pytestmark = pytest.mark.faults

PLACES = [point for point in POINTS if point.startswith(("run.", "ops.", "publish."))]
COMMITTED = ("publish.before-answer", "publish.committed", "publish.cleaned")


def values(lake: EmbeddedLake) -> dict[str, list[int]]:
    return {
        table: sorted(row[0] for row in rows_of(at).elements())
        for table, at in lake.pointers().items()
        if not table.startswith("ops.")
    }


@pytest.mark.parametrize("point", PLACES)
def test_killed_at_any_place_of_publishing_all_tables_are_there_or_none(tmp_path: Path, point: str) -> None:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"a.one": [1], "a.two": [1]}, "first")
    script = str(Path(__file__).parents[1] / "lakes.py")
    command = [script, "publish", str(lake.root), "second", "a.one=2", "a.two=2", "a.new=2"]
    assert Process.start_script(command, {"ICEFIELD_FAILPOINTS": f"{point}=kill"}).end().killed

    done = point in COMMITTED
    before = {"a.one": [1], "a.two": [1]}
    after = {"a.one": [1, 2], "a.two": [1, 2], "a.new": [2]}
    assert values(lake) == (after if done else before)
    assert lake.published("second") is done
    assert lake.clear_dead() == ([] if done else ["second"])
    assert (lake.catalog.branches(), list(lake.runs.glob("*.lock"))) == ({}, [])
    assert [path for path in lake.warehouse.rglob("*.metadata.json") if path.parent.name != "metadata"] == []
    if not done:
        assert [path for path in lake.warehouse.rglob("*") if path.is_file() and "second" in str(path)] == []

    publish(lake, {"a.one": [3], "a.two": [3]}, "third")
    wanted = after if done else before
    assert values(lake) == {t: [*found, 3] if t != "a.new" else found for t, found in wanted.items()}
    times = {
        meta.load(at)["last-updated-ms"] for t, at in lake.pointers().items() if t in ("a.one", "a.two", "ops.runs")
    }
    assert len(times) == 1, "tables of one run have one time"
