"""`icefield run`: take in what has arrived, refresh, check, publish."""

from __future__ import annotations

from typing import Annotated

import typer

from icefield.cli import output, report
from icefield.cli.guard import FAILED, guarded
from icefield.cli.opening import accepted, same_project
from icefield.cli.options import HERE, Accept, Exclude, FullRefresh, Json, ProfileName, ProjectDir, Select, words
from icefield.cli.progress import showing
from icefield.project import open_project
from icefield.run.batches import run_due
from icefield.run.order import Order


def register(app: typer.Typer) -> None:
    app.command("run")(guarded(run))


def run(
    *,
    select: Select = None,
    exclude: Exclude = None,
    full_refresh: FullRefresh = False,
    accept: Accept = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Publish the tables that are not downstream of a failure.")
    ] = False,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="B", help="Take in one batch only, a month for instance.")
    ] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="B", help="Take in batches from this one on.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="B", help="Take in batches up to this one.")] = None,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Ingest new files, refresh the affected tables, check them, and publish everything atomically, or nothing."""
    opened = open_project(project, profile)
    order = Order(
        select=words(select),
        exclude=words(exclude),
        full_refresh=full_refresh,
        keep_going=keep_going,
        accept=accepted(opened, accept),
        batches=(batch or first or "", batch or last or ""),
        once=True,
    )
    with showing() as listener:
        result = run_due(opened, order, listener)
    if as_json:
        output.json(report.as_data(result, opened))
    else:
        report.show(result, opened, same_project(project))
    return 0 if result.ok else FAILED
