"""What became of one table in the runs of one transaction, from what `icefield runs` tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from icefield.words import plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_DONE = ("published", "unchanged")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """What a table's task shows. `published`: its rows changed; `not published`: they did not, or must not be seen."""

    status: Literal["published", "failed", "not published"]
    told: str
    lines: Sequence[str] = ()
    #: What others may want to know: counts, checks, the run.
    facts: Mapping[str, Any] = field(default_factory=dict)


def table_result(runs: Sequence[Mapping[str, Any]], table: str, *, succeeded: bool) -> TableResult | None:
    """What the runs tell of a table; None where none of them was about it.

    There are several runs where batches were taken in one by one, or where the transaction was tried again.
    `succeeded` is whether its last try did: what failed before is no longer of interest then.
    """
    found = [(run, row) for run in runs for row in run["tables"] if row["table"] == table]
    if succeeded:
        found = [(run, row) for run, row in found if row["status"] in _DONE]
    if not found:
        return None
    run, last = found[-1]
    lines = [line for run, row in found for line in _lines(run, row)]
    if last["status"] == "failed":
        return TableResult(status="failed", told=last.get("error") or run["error"] or last["reason"], lines=lines)
    changed = [(run, row) for run, row in found if row["status"] == "published" and _is_changed(row)]
    if not changed:
        return TableResult(status="not published", told=_why_not(run, last), lines=lines)
    facts = _facts(changed)
    return TableResult(status="published", told=_told(table, facts), lines=lines, facts=facts)


def _is_changed(row: Mapping[str, Any]) -> bool:
    return bool(row["rows_added"] or row["rows_removed"])


def _why_not(run: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    table = row["table"]
    match row["status"]:
        case "abandoned":
            return f"{table} was staged and is not published, because run {run['run']} failed: {_first_line(run)}"
        case "skipped":
            return f"{table} was skipped by run {run['run']}: {row['reason']}"
        case _:
            return f"{table} has the rows that it had before run {run['run']}"


def _first_line(run: Mapping[str, Any]) -> str:
    return (run["error"] or "see its task").splitlines()[0]


def _facts(changed: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    """Counts over all runs that changed the table, and the rest as the last of them left it."""
    run, last = changed[-1]
    counts = ("rows_added", "rows_removed", "rows_quarantined", "rows_dropped")
    return {
        "table": last["table"],
        "run": run["run"],
        "runs": [run["run"] for run, _ in changed],
        "action": last["action"],
        **{name: sum(row[name] or 0 for _, row in changed) for name in counts},
        "rows_total": last["rows_total"],
        "seconds": round(sum(row["seconds"] or 0.0 for _, row in changed), 3),
        "snapshot": str(last["snapshot"]),  # it has more digits than a browser keeps of a number
        "checks": [{name: check[name] for name in _CHECK} for check in _checks(run, last["table"])],
    }


_CHECK = ("check", "status", "failed_rows", "detail")


def _told(table: str, facts: Mapping[str, Any]) -> str:
    removed = f", {plural(facts['rows_removed'], 'row')} removed" if facts["rows_removed"] else ""
    aside = facts["rows_quarantined"] + facts["rows_dropped"]
    rejected = f", {plural(aside, 'row')} rejected" if aside else ""
    return (
        f"{table}: {plural(facts['rows_added'], 'row')} added{removed}{rejected}, {facts['rows_total']:,} in total,"
        f" {seconds(facts['seconds'])}"
    )


def _lines(run: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    """A line for what a run did to the table, and one for each of its checks."""
    counts = ", ".join(
        f"{name.removeprefix('rows_')} {row[name] or 0:,}"
        for name in ("rows_added", "rows_removed", "rows_total", "rows_quarantined", "rows_dropped")
    )
    batch = f", batch {run['batch']}" if run["batch"] else ""
    why = f" ({row['reason']})" if row["reason"] else ""
    yield f"run {run['run']}{batch}: {row['action']}{why}, {row['status']}; {counts}; {seconds(row['seconds'] or 0.0)}"
    for check in _checks(run, row["table"]):
        rows = [plural(check["failed_rows"], "row")] if check["failed_rows"] else []
        seen = [check["detail"]] if check["detail"] else []
        yield f"check `{check['check']}`: {', '.join([check['status'], *rows, *seen])}"


def _checks(run: Mapping[str, Any], table: str) -> list[Mapping[str, Any]]:
    return [check for check in run["checks"] if check["table"] == table]
