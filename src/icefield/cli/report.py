"""What a run was, told at its end."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from icefield.cli import output
from icefield.cli.output import Column, Count
from icefield.cli.plan import nothing_new
from icefield.graph import READABLE
from icefield.words import from_ms, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.engine.checks.results import CheckResult
    from icefield.project import Project
    from icefield.run.events import Replayed, RunResult, TableOutcome

_ROWS = Column(name="rows", right=True)


def show(result: RunResult, project: Project, same: str) -> None:
    """The report as text; `same` is the option that a next command needs to mean this project."""
    if result.status == "nothing new":
        told = [_nothing_replayed(one) for one in result.replayed] or [nothing_new(result.plan)]
        output.sentence(f"{'; '.join(told)} ({seconds(result.seconds)})")
        _show_warnings(result)
        return
    if result.status == "dry run":
        _show_replayed(result)
        output.line()
        output.sentence(_headline(result))
        return
    if result.tables:
        _show_tables(result)
    _show_reasons(result)
    _show_set_aside(result)
    _show_warnings(result)
    _show_replayed(result)
    output.line()
    output.line(f"time   {', '.join(f'{phase} {seconds(spent)}' for phase, spent in result.phases.items())}")
    output.line(f"lake   {project.profile.lake}")
    if result.log:
        output.line(f"log    {result.log}")
    if result.error:
        output.failure(result.error)
    elif failed := [outcome for outcome in result.tables if outcome.error]:
        output.failure("\n".join(outcome.error for outcome in failed))
    _show_next(result, project, same)
    output.line()
    output.sentence(_headline(result))
    output.line(_tally(result))


def _headline(result: RunResult) -> str:
    if result.status == "dry run":
        return f"Nothing was published: this was a dry run of {seconds(result.seconds)}."
    if result.status == "failed":
        return f"Run {result.run} failed after {seconds(result.seconds)}: nothing was published, the lake is unchanged."
    changed = plural(sum(outcome.status == "published" for outcome in result.tables), "table")
    return f"Run {result.run} published {changed} in {seconds(result.seconds)}."


def _tally(result: RunResult) -> str:
    """The line that scripts look for, in dbt's words; a table that rejected rows is one to look at."""
    warned = {check.table for check in result.checks if check.status in ("warned", "quarantined")}
    errors = sum(outcome.status == "failed" for outcome in result.tables)
    skipped = sum(outcome.status in ("skipped", "abandoned") for outcome in result.tables)
    fine = [outcome for outcome in result.tables if outcome.status in ("published", "unchanged")]
    warns = sum(outcome.table in warned for outcome in fine)
    total = len(result.tables)
    return f"Done. PASS={len(fine) - warns} WARN={warns} ERROR={errors} SKIP={skipped} TOTAL={total}"


_PARTS = ("read", "compute", "check", "write")
_NUMBER = {
    name: Column(name=name, right=True, optional=name in ("removed", "keys"))
    for name in ("added", "removed", "total", "rejected", "keys", "seconds", *_PARTS)
}


def _show_tables(result: RunResult) -> None:
    """What became of each table, and where its seconds went: beside it where there is room, else below."""
    counts = [name for name in ("added", "removed", "total", "rejected", "keys") if _is_told(result, name)]
    columns: list[Column | str] = ["table", "action", *(_NUMBER[name] for name in (*counts, "seconds"))]
    rows = [_built(one, counts) for one in result.tables]
    spent = [one for one in result.tables if one.spent]
    parts: list[Column | str] = [_NUMBER[part] for part in _PARTS if any(part in one.spent for one in spent)]
    whole = [[*row, *_spent(one, parts)] for row, one in zip(rows, result.tables, strict=True)]
    if output.fits([*columns, *parts], whole):
        output.table([*columns, *parts], whole)
        return
    output.table(columns, rows)
    if spent:
        output.heading("Time by table")
        output.table(["table", *parts], [[one.table, *_spent(one, parts)] for one in spent])


def _is_told(result: RunResult, name: str) -> bool:
    """Most runs remove and reject nothing: such columns are there only if there is something in them."""
    return name in ("added", "total") or any(_count(one, name) for one in result.tables)


def _count(outcome: TableOutcome, name: str) -> int | None:
    match name:
        case "added":
            return outcome.rows_added
        case "removed":
            return outcome.rows_removed or None
        case "total":
            return outcome.rows_total
        case "rejected":
            return outcome.rows_quarantined + outcome.rows_dropped or None
        case _:
            return outcome.keys_touched


def _built(outcome: TableOutcome, counts: list[str]) -> list[Any]:
    done = outcome.status in ("published", "unchanged")
    told = [_count(outcome, name) if done else None for name in counts]
    return [
        outcome.table,
        _ACTION.get(outcome.status, outcome.action),
        *("" if count is None else Count(count) for count in told),
        f"{outcome.seconds:.1f}" if done else "",
    ]


_ACTION = {"unchanged": "unchanged", "skipped": "skipped", "failed": "FAILED", "abandoned": "undone"}


def _spent(outcome: TableOutcome, parts: Sequence[Column | str]) -> list[str]:
    names = [part.name for part in parts if isinstance(part, Column)]
    return [f"{outcome.spent[name]:.1f}" if name in outcome.spent else "" for name in names]


def _show_reasons(result: RunResult) -> None:
    """Why tables were computed anew from everything, or not at all."""
    told = [
        (outcome.table, outcome.reason)
        for outcome in result.tables
        if outcome.reason
        and (outcome.status == "skipped" or (outcome.action == "rebuild" and outcome.status != "failed"))
    ]
    if told:
        output.heading("Rebuilt or skipped tables")
        output.table(("table", Column(name="why", wraps=True)), told)


def _show_set_aside(result: RunResult) -> None:
    for status, title in (("quarantined", "Quarantined rows"), ("dropped", "Dropped rows")):
        found = [check for check in result.checks if check.status == status]
        if found:
            output.heading(title)
            rows = [(c.table, _reason(c), Count(c.failed_rows)) for c in _sorted(found)]
            output.table(("table", Column(name="reason", wraps=True), _ROWS), rows)


def _show_warnings(result: RunResult) -> None:
    found = [check for check in result.checks if check.status in ("warned", "deferred", "failed", "error")]
    if found:
        output.heading("Checks that did not pass")
        rows = [(c.table, c.check, c.status, Count(c.failed_rows), c.detail) for c in _sorted(found)]
        wrapping = (Column(name="check", wraps=True), "outcome", _ROWS, Column(name="seen", wraps=True))
        output.table(("table", *wrapping), rows)


_UNREADABLE = "malformed lines cannot be repaired with --set: correct the file, or discard them"


def _show_replayed(result: RunResult) -> None:
    if result.replayed:
        output.line()
    for one in result.replayed:
        output.sentence(_replayed(one))
        if one.unreadable:
            output.sentence(f"{plural(one.unreadable, 'line')}: {_UNREADABLE}")


def _replayed(one: Replayed) -> str:
    if one.kind == "discard":
        return f"Discarded {plural(one.moved, 'quarantined row')} of {one.table}"
    became = f"{one.moved:,} passed, {one.waiting:,} still quarantined"
    why = ", ".join(f"{reason} ({plural(count, 'row')})" for reason, count in one.reasons.items())
    return f"Replayed {plural(one.matched, 'quarantined row')} of {one.table}: {became}" + (
        f"; why: {why}" if why else ""
    )


def _nothing_replayed(one: Replayed) -> str:
    if not one.matched:
        return f"No quarantined row of {one.table} matches: nothing to do"
    return f"Nothing changed for {plural(one.matched, 'quarantined row')} of {one.table}: {_UNREADABLE}"


def _reason(check: CheckResult) -> str:
    return "malformed" if check.check == READABLE else check.check


def _sorted(checks: list[CheckResult]) -> list[CheckResult]:
    return sorted(checks, key=lambda check: (check.table, -check.failed_rows, check.check))


def _show_next(result: RunResult, project: Project, same: str) -> None:
    if result.status != "published":
        return
    published = [outcome.table for outcome in result.tables if outcome.status == "published"]
    readers = project.graph.readers()
    ends = [table for table in published if not readers[table]] or published
    aside = next((outcome.table for outcome in result.tables if outcome.rows_quarantined), None)
    output.heading("Next")
    if ends:
        output.line(f'  icefield sql{same} "SELECT * FROM {ends[0]} LIMIT 10"')
        output.line(f"  icefield table history{same} {ends[0]}")
    if aside:
        output.line(f"  icefield quarantine show{same} {aside}")
    output.line(f'  icefield sql{same} "SELECT * FROM ops.runs ORDER BY started_at"')


def as_data(result: RunResult, project: Project, earlier: Sequence[RunResult] = ()) -> dict[str, Any]:
    """The report as JSON has it; `earlier` are the runs of batches that the same command took in before."""
    return {
        "run": result.run or None,
        "runs": [one.run for one in (*earlier, result) if one.run],
        "status": result.status,
        "ok": result.ok,
        "seconds": round(result.seconds, 3),
        "phases": {phase: round(spent, 3) for phase, spent in result.phases.items()},
        "published_at": None if result.published_ms is None else from_ms(result.published_ms),
        "tables": [_outcome(outcome) for outcome in result.tables],
        "checks": [asdict(check) for check in result.checks],
        "replayed": [asdict(one) for one in result.replayed],
        "lake": {"path": str(project.profile.lake)},
        "log": result.log,
        "error": result.error,
        "warnings": list(result.warnings),
    }


def _outcome(outcome: TableOutcome) -> dict[str, Any]:
    """A table as JSON has it: of its state the Iceberg snapshot."""
    told = asdict(replace(outcome, state=None, lineage=None))
    snapshot = outcome.state.version.snapshot if outcome.state is not None else None
    return {**{key: value for key, value in told.items() if key not in ("state", "lineage")}, "snapshot": snapshot}
