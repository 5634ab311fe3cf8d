"""What runs recorded is found again: the newest, one by its id, all of a label; in lakes of earlier versions, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icefield.lake import ops
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.ops import Journal, at
from icefield.query.runs import recorded_runs
from lakes import new_lake, open_branch

FIRST, SECOND, THIRD = (f"2026010{day}T000000-{name * 6}" for day, name in ((1, "a"), (2, "b"), (3, "c")))


def record(lake: EmbeddedLake, run: str, tables: dict[str, str], **more: Any) -> None:
    started = at(1000 * int(run[:8]))
    branch = open_branch(lake, run)
    branch.publish(
        {},
        Journal(
            runs=[{"run": run, "status": "published", "started_at": started, "finished_at": started, **more}],
            table_runs=[{"run": run, "table": table, "status": status} for table, status in tables.items()],
            checks=[{"run": run, "table": table, "check": "it is there", "status": "passed"} for table in tables],
        ),
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedLake:
    found = new_lake(tmp_path_factory.mktemp("runs") / "lake")
    record(found, SECOND, {"gold.b": "failed", "gold.a": "abandoned"}, label="x'y", status="failed")
    record(found, FIRST, {"gold.a": "published"}, batch="2026-01")
    record(found, THIRD, {"gold.a": "published"}, label="x'y")
    return found


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [one["run"] for one in found]


def test_runs_come_oldest_first_with_their_tables_and_checks(lake: EmbeddedLake) -> None:
    found = recorded_runs(lake)
    assert ids(found) == [FIRST, SECOND, THIRD]
    assert [(row["table"], row["status"]) for row in found[1]["tables"]] == [
        ("gold.a", "abandoned"),
        ("gold.b", "failed"),
    ]
    assert [(row["table"], row["check"], row["status"]) for row in found[0]["checks"]] == [
        ("gold.a", "it is there", "passed")
    ]
    assert found[0]["batch"] == "2026-01"


def test_runs_are_chosen_by_label_id_and_number(lake: EmbeddedLake) -> None:
    assert ids(recorded_runs(lake, label="x'y")) == [SECOND, THIRD]
    assert ids(recorded_runs(lake, label="x'y", last=1)) == [THIRD]
    assert recorded_runs(lake, label="x") == []
    assert ids(recorded_runs(lake, run="20260102")) == [SECOND]
    assert ids(recorded_runs(lake, last=2)) == [SECOND, THIRD]


def test_a_lake_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert recorded_runs(EmbeddedLake(tmp_path / "lake")) == []


def test_a_lake_of_an_earlier_version_has_runs_without_a_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = new_lake(tmp_path / "lake")
    with monkeypatch.context() as earlier:
        missing = {"ops.runs": "label", "ops.table_runs": "error"}
        tables = {
            name: {column: told for column, told in columns.items() if column != missing.get(name)}
            for name, columns in ops.TABLES.items()
        }
        earlier.setattr(ops, "TABLES", tables)
        record(lake, FIRST, {"gold.a": "published"})
    assert [(one["run"], one["label"], one["tables"][0]["error"]) for one in recorded_runs(lake)] == [(FIRST, "", "")]
    assert recorded_runs(lake, label="x") == []
    record(lake, SECOND, {"gold.a": "published"}, label="x")
    assert ids(recorded_runs(lake, label="x")) == [SECOND]
