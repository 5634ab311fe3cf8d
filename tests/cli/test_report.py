"""What the report of a run says, from its result alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import lines

from icefield.cli import report
from icefield.engine.checks.results import CheckResult
from icefield.plan import Plan
from icefield.project import open_project
from icefield.run.events import RunResult, TableOutcome
from projects import tiny


def outcome(table: str, dropped: int) -> TableOutcome:
    return TableOutcome(
        table=table, action="append", reason="", status="published", rows_added=3, rows_total=9, rows_dropped=dropped
    )


def shown(root: Path, capsys: pytest.CaptureFixture[str], *outcomes: TableOutcome) -> list[str]:
    result = RunResult(run="r", status="published", plan=Plan(steps=()), tables=outcomes)
    report.show(result, open_project(tiny(root).root), "")
    return lines(capsys.readouterr().out)


def test_rows_that_were_dropped_or_discarded_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(tmp_path, capsys, outcome("bronze.orders", 1234), outcome("silver.sales", 0))
    assert told[:3] == [
        "table action added total rejected seconds",
        "bronze.orders append 3 9 1,234 0.0",
        "silver.sales append 3 9 0.0",
    ]


def test_a_run_that_rejected_nothing_has_no_column_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(tmp_path, capsys, outcome("bronze.orders", 0))[0] == "table action added total seconds"


def test_a_table_that_is_not_fresh_is_shown_where_nothing_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = CheckResult(
        table="gold.latest",
        check="at is fresh",
        kind="fresh",
        otherwise="warn",
        status="warned",
        failed_rows=1,
        detail="the newest is 3 days old",
    )
    result = RunResult(run="", status="nothing new", plan=Plan(steps=()), checks=(old,))
    report.show(result, open_project(tiny(tmp_path).root), "")
    assert lines(capsys.readouterr().out)[1:] == [
        "Checks that did not pass",
        "table check outcome rows seen",
        "gold.latest at is fresh warned 1 the newest is 3 days old",
    ]
