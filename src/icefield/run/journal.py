"""Turns what a run did into rows of `ops.*`."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from icefield.lake.embedded import now_ms
from icefield.lake.ops import Journal, at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from icefield.engine.checks.results import CheckResult
    from icefield.engine.refresh.staged import Staged
    from icefield.graph.state import Repair
    from icefield.run.events import TableOutcome


def of_run(
    *,
    run: str,
    project: str,
    selection: str,
    started_ms: int,
    staged: Mapping[str, Staged],
    outcomes: Mapping[str, TableOutcome],
    checks: Sequence[CheckResult],
    repairs: Sequence[tuple[int, Repair]],
    repaired: pa.Table | None,
    batch: str,
    label: str,
) -> Journal:
    """The rows of a run that is about to be published."""
    row = {**_run_row(run, project, selection, started_ms, "published"), "batch": batch, "label": label}
    row["tables_changed"] = sum(one.changed for one in staged.values())
    row["rows_added"] = sum(one.rows_added for one in staged.values())
    row["rows_quarantined"] = sum(one.quarantined for one in staged.values())
    taken = [record for one in staged.values() for record in one.records]
    return Journal(
        runs=[row],
        table_runs=[{**_table_row(run, outcome), **_version(staged.get(name))} for name, outcome in outcomes.items()],
        checks=[_check_row(run, result) for result in checks],
        files=[_taken_row(one) for one in taken if "path" in one],
        offsets=[_taken_row(one) for one in taken if not {"path", "relation"} & one.keys()],  # losses have no topic
        reads=[_taken_row(one) for one in taken if "relation" in one],
        repairs=[_repair_row(run, repair, number, started_ms) for number, repair in repairs],
        repaired=repaired,
    )


def of_failure(
    *,
    run: str,
    project: str,
    selection: str,
    started_ms: int,
    outcomes: Mapping[str, TableOutcome],
    checks: Sequence[CheckResult],
    error: str,
    batch: str,
    label: str,
) -> Journal:
    """The rows of a run that published nothing."""
    row = {**_run_row(run, project, selection, started_ms, "failed"), "error": error, "batch": batch, "label": label}
    tables = [_table_row(run, outcome) for outcome in outcomes.values()]
    return Journal(runs=[row], table_runs=tables, checks=[_check_row(run, result) for result in checks])


def of_deaths(project: str, deaths: Mapping[str, int]) -> Journal:
    """The rows of runs whose process was found gone, by their starts."""
    rows = [_run_row(run, project, "", started_ms, "died") for run, started_ms in deaths.items()]
    return Journal(runs=[{**row, "error": "its process ended without reporting an error"} for row in rows])


def _run_row(run: str, project: str, selection: str, started_ms: int, status: str) -> dict[str, Any]:
    return {
        "run": run,
        "project": project,
        "status": status,
        "started_at": at(started_ms),
        "finished_at": at(now_ms()),
        "selection": selection,
        "tables_changed": 0,
        "rows_added": 0,
        "rows_quarantined": 0,
        "error": "",
        "version": _version_of_icefield(),
    }


def _table_row(run: str, outcome: TableOutcome) -> dict[str, Any]:
    return {
        "run": run,
        "table": outcome.table,
        "action": outcome.action,
        "reason": outcome.reason or outcome.error,
        "status": outcome.status,
        "rows_added": outcome.rows_added,
        "rows_removed": outcome.rows_removed,
        "rows_quarantined": outcome.rows_quarantined,
        "rows_dropped": outcome.rows_dropped,
        "rows_total": outcome.rows_total,
        "seconds": outcome.seconds,
        "promise": outcome.promise,
        "error": outcome.error,
    }


def _version(staged: Staged | None) -> dict[str, Any]:
    if staged is None:
        return {}
    state = staged.state
    return {
        "epoch": state.version.epoch,
        "number": state.version.number,
        "snapshot": state.version.snapshot,
        "fingerprint": state.fingerprint,
    }


def _check_row(run: str, result: CheckResult) -> dict[str, Any]:
    return {
        "run": run,
        "table": result.table,
        "check": result.check,
        "kind": result.kind,
        "otherwise": result.otherwise,
        "status": result.status,
        "failed_rows": result.failed_rows,
        "detail": result.detail,
        "seconds": result.seconds,
    }


def _taken_row(taken: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in taken.items() if key != "taken_ms"}, "taken_at": at(taken["taken_ms"])}


def _repair_row(run: str, repair: Repair, number: int, started_ms: int) -> dict[str, Any]:
    return {
        "table": repair.table,
        "number": number,
        "run": run,
        "kind": repair.kind,
        "condition": repair.where,
        "assign": json.dumps(repair.assign),
        "reason": repair.reason,
        "decided_at": at(started_ms),
    }


def _version_of_icefield() -> str:
    try:
        return version("icefield")
    except PackageNotFoundError:
        return "source"
