"""`icefield run`: take in what has arrived, refresh, check, publish."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from icefield.cli import output, report, watching
from icefield.cli.guard import FAILED, guarded
from icefield.cli.opening import accepted, same_project
from icefield.cli.options import (
    HERE,
    Accept,
    Exclude,
    FullRefresh,
    Json,
    ProfileName,
    ProjectDir,
    Select,
    duration,
    words,
)
from icefield.cli.progress import showing
from icefield.project import open_project
from icefield.run.background import work
from icefield.run.planning import selected
from icefield.run.request import RunRequest
from icefield.run.watch import Watch
from icefield.words import plural

if TYPE_CHECKING:
    from icefield.project import Project
    from icefield.run.events import RunResult


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
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running: run again whenever a source has news, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(
            "--every",
            metavar="DURATION",
            parser=duration,
            help="With --watch: at least so long between the starts of two runs (500ms, 10s, 5m).",
        ),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            "--max-rows", metavar="N", min=1, help="At most so many rows of each source per run (Kafka topics only)."
        ),
    ] = None,
    label: Annotated[
        str, typer.Option("--label", metavar="TEXT", help="Record a text with the run: icefield runs --label finds it.")
    ] = "",
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Ingest new files, refresh the affected tables, check them, and publish everything atomically, or nothing."""
    opened = open_project(project, profile)
    order = RunRequest(
        select=words(select),
        exclude=words(exclude),
        full_refresh=full_refresh,
        keep_going=keep_going,
        accept=accepted(opened, accept),
        batches=(batch or first or "", batch or last or ""),
        max_rows=max_rows,
        label=label,
        once=not watch,
    )
    if watch:
        return _watch(order, partial(open_project, project, profile), every or 0.0, as_json=as_json)
    if every is not None:
        raise typer.BadParameter("only together with --watch", param_hint="--every")
    with showing() as listener:
        earlier: list[RunResult] = []  # runs of batches before the last one
        result = work.run(opened, order, listener, earlier.append)
    if as_json:
        output.json(report.as_data(result, opened, earlier))
    else:
        report.show(result, opened, same_project(project))
    return 0 if result.ok else FAILED


def _watch(order: RunRequest, open_again: Callable[[], Project], every: float, *, as_json: bool) -> int:
    selected(open_again(), order.select, order.exclude)  # a mistake here is no failure that is tried again
    with watching.showing(as_json=as_json) as (tell, listener):
        loop = Watch(open_again=open_again, order=order, tell=tell, listener=listener, every=every)
        loop.carry_out()
    output.note(f"Stopped after {plural(loop.done, 'run')}.")
    return 0
