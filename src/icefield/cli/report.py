"""What a run was, told at its end."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from icefield.cli import output
from icefield.cli.output import Column, Count
from icefield.cli.plan import nothing_new
from icefield.cli.wording import from_ms, plural, seconds, size

if TYPE_CHECKING:
    from pathlib import Path

    from icefield.engine.audit import CheckResult
    from icefield.project import Project
    from icefield.run.events import Replayed, RunResult, TableOutcome

_ROWS = Column(name="rows", right=True)


def show(result: RunResult, project: Project, same: str) -> None:
    """The report as text; `same` is the option that a next command needs to mean this project."""
    if result.status == "nothing new":
        told = [_nothing_replayed(one) for one in result.replayed] or [nothing_new(result.plan)]
        output.line(f"{'; '.join(told)} ({seconds(result.seconds)})")
        return
    if result.tables:
        _show_tables(result)
    _show_set_aside(result)
    _show_warnings(result)
    _show_replayed(result)
    output.line()
    output.line(f"time   {', '.join(f'{phase} {seconds(spent)}' for phase, spent in result.phases.items())}")
    if (moved := result.traffic) is not None:
        of_all = f" (all tables had {size(moved.stored)})" if moved.stored else ""
        output.line(f"data   queries opened files of {size(moved.read)}{of_all}, {size(moved.written)} were written")
    output.line(f"lake   {project.profile.lake}, {size(_size(project.profile.lake))}")
    output.line(f"log    {result.log}")
    if result.error:
        output.failure(result.error)
    elif failed := [outcome for outcome in result.tables if outcome.error]:
        output.failure("\n".join(outcome.error for outcome in failed))
    _show_next(result, project, same)
    output.line(_headline(result))
    output.line(_tally(result))


def _headline(result: RunResult) -> str:
    if result.status == "failed":
        return (
            f"\nRun {result.run} failed after {seconds(result.seconds)}: nothing was published, the lake is as it was."
        )
    changed = plural(sum(outcome.status == "published" for outcome in result.tables), "table")
    return f"\nRun {result.run} published {changed} in {seconds(result.seconds)}."


def _tally(result: RunResult) -> str:
    """The line that scripts look for, in dbt's words."""
    warned = {check.table for check in result.checks if check.status == "warned"}
    errors = sum(outcome.status == "failed" for outcome in result.tables)
    skipped = sum(outcome.status in ("skipped", "abandoned") for outcome in result.tables)
    fine = [outcome for outcome in result.tables if outcome.status in ("published", "unchanged")]
    warns = sum(outcome.table in warned for outcome in fine)
    total = len(result.tables)
    return f"Done. PASS={len(fine) - warns} WARN={warns} ERROR={errors} SKIP={skipped} TOTAL={total}"


def _show_tables(result: RunResult) -> None:
    """Rows that were let go have a column only where there are any: most runs have none."""
    dropped = ["dropped"] if any(outcome.rows_dropped for outcome in result.tables) else []
    counts = [Column(name=name, right=True) for name in ("added", "total", "quarantined", *dropped, "seconds")]
    output.table(("table", "action", *counts, ""), [_built(one, dropped=bool(dropped)) for one in result.tables])


def _built(outcome: TableOutcome, *, dropped: bool) -> list[Any]:
    told = {
        "published": _how(outcome),
        "unchanged": "unchanged",
        "skipped": f"skipped: {outcome.reason}",
        "failed": "FAILED",
        "abandoned": "not published",
    }
    counted = outcome.status in ("published", "unchanged")
    return [
        outcome.table,
        outcome.action,
        Count(outcome.rows_added) if counted else "",
        Count(outcome.rows_total) if counted else "",
        Count(outcome.rows_quarantined) if outcome.rows_quarantined else "",
        *([Count(outcome.rows_dropped) if outcome.rows_dropped else ""] if dropped else []),
        f"{outcome.seconds:.1f}" if counted else "",
        told[outcome.status],
    ]


def _how(outcome: TableOutcome) -> str:
    """Why everything was computed again, or how little was not left alone."""
    if outcome.action == "rebuild":
        return outcome.reason
    return "" if outcome.keys_touched is None else plural(outcome.keys_touched, "key")


def _show_set_aside(result: RunResult) -> None:
    for status, title in (("quarantined", "Quarantined, and why"), ("dropped", "Dropped, and why")):
        found = [check for check in result.checks if check.status == status]
        if found:
            output.heading(title)
            output.table(
                ("table", "reason", _ROWS), [(c.table, _reason(c), Count(c.failed_rows)) for c in _sorted(found)]
            )


def _show_warnings(result: RunResult) -> None:
    found = [check for check in result.checks if check.status in ("warned", "deferred", "failed", "error")]
    if found:
        output.heading("Checks that did not hold")
        rows = [(c.table, c.check, c.status, Count(c.failed_rows), c.detail) for c in _sorted(found)]
        output.table(("table", "check", "outcome", _ROWS, "seen"), rows)


_UNREADABLE = "lines that cannot be read have no values to set: correct the file, or discard them"


def _show_replayed(result: RunResult) -> None:
    if result.replayed:
        output.line()
    for one in result.replayed:
        output.line(_replayed(one) + (f"\n{plural(one.unreadable, 'line')}: {_UNREADABLE}" if one.unreadable else ""))


def _replayed(one: Replayed) -> str:
    if one.kind == "discard":
        return f"Discarded {plural(one.moved, 'waiting row')} of {one.table}"
    became = f"{one.moved:,} passed, {one.waiting:,} still waiting"
    return f"Replayed {plural(one.matched, 'waiting row')} of {one.table}: {became}"


def _nothing_replayed(one: Replayed) -> str:
    if not one.matched:
        return f"No waiting row of {one.table} matches: nothing was done"
    return f"Nothing was done to {plural(one.matched, 'waiting row')} of {one.table}: {_UNREADABLE}"


def _reason(check: CheckResult) -> str:
    return "malformed" if check.check == "every line can be read" else check.check


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


def as_data(result: RunResult, project: Project) -> dict[str, Any]:
    """The report as JSON has it."""
    return {
        "run": result.run or None,
        "status": result.status,
        "ok": result.ok,
        "seconds": round(result.seconds, 3),
        "phases": {phase: round(spent, 3) for phase, spent in result.phases.items()},
        "bytes": None if result.traffic is None else asdict(result.traffic),
        "published_at": None if result.published_ms is None else from_ms(result.published_ms),
        "tables": [asdict(outcome) for outcome in result.tables],
        "checks": [asdict(check) for check in result.checks],
        "replayed": [asdict(one) for one in result.replayed],
        "lake": {"path": str(project.profile.lake), "bytes": _size(project.profile.lake)},
        "log": result.log,
        "error": result.error,
    }


def _size(folder: Path) -> int:
    """Bytes on disk below a folder; what vanishes while it is counted does not count."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(path, name)).st_size  # noqa: PTH118 - a Path for each file is slow
            except OSError:
                continue
    return total
