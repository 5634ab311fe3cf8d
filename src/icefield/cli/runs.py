"""`icefield runs`: what runs have recorded about themselves, in a list or one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from icefield.cli import output
from icefield.cli.guard import guarded
from icefield.cli.opening import lake_at
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.cli.output import Column, Count
from icefield.errors import UnknownRun
from icefield.query.runs import recorded_runs
from icefield.words import moment, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.query.runs import Row

#: Runs that are listed where nothing else is said.
LISTED = 20
_COUNTS = ("tables_changed", "rows_added", "rows_quarantined")
_COLUMNS = (
    "run",
    "status",
    Column(name="started (UTC)", optional=True),
    Column(name="time", right=True),
    Column(name="tables", right=True),
    Column(name="added", right=True),
    Column(name="rejected", right=True),
)


def register(app: typer.Typer) -> None:
    app.command("runs")(guarded(runs))


def runs(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="One run: its id, or a unique beginning of it.")] = "",
    *,
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help="Only runs with this label: icefield run --label.")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, help=f"So many of the newest; {LISTED} unless a label is given."),
    ] = None,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """List the recorded runs, or show the tables and checks of one."""
    lake = lake_at(project, profile)
    if lake.exists:
        lake.require_in_place()
    found = recorded_runs(lake, run=run, label=label, last=last or (LISTED if label is None and not run else None))
    if run and len(found) != 1:
        raise UnknownRun(
            f"{'several recorded runs start' if found else 'no recorded run starts'} with `{run}`",
            where=str(lake.root),
            remedy=f"write one of {', '.join(one['run'] for one in found[-6:])}" if found else "see icefield runs",
        )
    if as_json:
        output.json(found)
    elif run:
        _show(found[0])
    elif found:
        _list(found)
    else:
        output.note("No run is recorded" + (f" with the label {label}" if label is not None else ""))


def _list(found: Sequence[Row]) -> None:
    """All runs; what few of them have is a column only where one has it."""
    more = [name for name in ("batch", "label") if any(one[name] for one in found)]
    columns: list[Column | str] = [*_COLUMNS, *(Column(name=name, optional=True) for name in more)]
    output.table(columns, [[*_cells(one), *(one[name] or "" for name in more)] for one in found])


def _cells(one: Row) -> list[Any]:
    known = one["started_at"] is not None and one["finished_at"] is not None and one["status"] != "died"
    lasted = seconds((one["finished_at"] - one["started_at"]).total_seconds()) if known else ""
    started = "" if one["started_at"] is None else moment(one["started_at"])
    return [one["run"], one["status"], started, lasted, *(Count(one[name] or 0) for name in _COUNTS)]


def _show(one: Row) -> None:
    facts = {name: one[name] for name in ("run", "status", "selection", "batch", "label", "version")}
    facts["started"] = "" if one["started_at"] is None else f"{moment(one['started_at'])} UTC"
    for name, value in facts.items():
        if value:
            output.line(f"{name:10} {value}")
    if one["tables"]:
        output.heading("Tables")
        output.table(_OF_TABLE, [_table_cells(row) for row in one["tables"]])
    if one["checks"]:
        output.heading("Checks")
        rows = [(r["table"], r["check"], r["status"], Count(r["failed_rows"] or 0), r["detail"]) for r in one["checks"]]
        output.table(_OF_CHECK, rows)
    if one["error"]:
        output.failure(one["error"])


_OF_TABLE = (
    "table",
    "action",
    "status",
    Column(name="added", right=True),
    Column(name="removed", right=True),
    Column(name="total", right=True),
    Column(name="rejected", right=True, optional=True),
    Column(name="seconds", right=True),
)
_OF_CHECK = (
    "table",
    Column(name="check", wraps=True),
    "outcome",
    Column(name="rows", right=True),
    Column(name="seen", wraps=True),
)


def _table_cells(row: Row) -> list[Any]:
    rejected = Count((row["rows_quarantined"] or 0) + (row["rows_dropped"] or 0))
    counts = [Count(row[name] or 0) for name in ("rows_added", "rows_removed", "rows_total")]
    return [row["table"], row["action"], row["status"], *counts, rejected, f"{row['seconds'] or 0:.1f}"]
