"""Lakes that earlier versions made open, read and go on: their tables are neither rebuilt nor refused."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from icefield import Lake
from icefield.lake.relocate import Relocation
from projects import TinyProject

pytestmark = pytest.mark.spark

KEPT = sorted((Path(__file__).parents[1] / "kept").glob("*.tar.gz"))


@pytest.fixture(params=KEPT, ids=[file.name.partition(".")[0] for file in KEPT])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[TinyProject, dict[str, Any]]:
    """A project with its lake as that version left it, in a folder of this test."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    project = TinyProject(tmp_path / "project")
    lake = project.lake
    Relocation(lake, old="/kept/project/lake", new=str(lake.root)).carry_out()
    return project, json.loads((project.root / "expected.json").read_text())


def rows(lake: Lake, table: str) -> list[str]:
    left_out = " EXCLUDE (ingested_at)" if table == "bronze.orders" else ""
    return sorted(map(str, lake.sql(f"SELECT *{left_out} FROM {table}").rows()))


def test_an_older_lake_is_read_and_goes_on(kept: tuple[TinyProject, dict[str, Any]]) -> None:
    project, expected = kept
    lake = Lake(project.root)
    tables = [table for table in expected if "." in table]
    assert {table: rows(lake, table) for table in tables} == {table: expected[table] for table in tables}
    first = Lake(project.root, as_of=expected["runs"][0])
    assert first.table("silver.sales").count() == 2
    assert project.run().status == "nothing new", "its code means what it meant"

    project.land("4.csv", ["9,ann,20.00,2026-08-03 12:00:00", "10,fay,1.00,2026-08-04 10:00:00", "1,ann,1.00,"])
    result = project.run()
    assert result.status == "published", result.error
    actions = {outcome.table: outcome.action for outcome in result.tables}
    assert actions == {
        "bronze.orders": "append", "silver.sales": "append", "silver.largest": "update", "gold.named": "update",
        "gold.days": "update", "gold.totals": "refresh",
    }  # fmt: skip
    assert {name: project.lake.states()[name].promise for name in actions} == {
        **dict.fromkeys(actions, "proven"),
        "gold.totals": "full",
    }
    verdicts = {verdict.table: verdict.status for verdict in lake.verify(deep=True)}
    assert set(verdicts.values()) == {"exact"}
    assert lake.sql("SELECT count(*) FROM ops.runs").rows() == [(len(expected["runs"]) + 1,)]
    promises = "SELECT DISTINCT promise FROM ops.table_runs ORDER BY 1 NULLS FIRST"
    assert lake.sql(promises).rows() == [(None,), ("full",), ("proven",)]
