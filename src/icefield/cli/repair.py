"""`icefield quarantine replay` and `discard`: what a person decides about rows that wait."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icefield.cli import output, report
from icefield.cli.guard import FAILED
from icefield.cli.opening import same_project
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.cli.progress import showing
from icefield.errors import NoSuchTable, WrongUsage
from icefield.graph import select
from icefield.graph.state import Repair
from icefield.project import Project, open_project
from icefield.run.request import RunRequest
from icefield.run.runner import run_project

Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table whose quarantined rows to process.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen to the rows, without publishing.")]
WHERE = "Which quarantined rows: Spark SQL over the table's columns, `reasons` and `line`"


def replay(
    table: Table,
    *,
    where: Annotated[str, typer.Option("--where", metavar="SQL", help=f"{WHERE}; only with --set.")] = "true",
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help='A repair, such as "amount = abs(amount)"; can be repeated.'),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Apply the current checks to quarantined rows, repaired by --set; rows that pass move into the table."""
    opened = open_project(project, profile)
    name = _table(opened, table)
    repairs: tuple[Repair, ...] = ()
    if not assign and where != "true":
        raise WrongUsage(
            "--where selects the rows to repair, but --set is missing",
            remedy="add --set, or omit --where: without a repair, all quarantined rows are checked again",
        )
    if assign:
        pairs = tuple(_assignment(text) for text in assign)
        repairs = (Repair(table=name, kind="replay", where=where, assign=pairs),)
    return _run(opened, name, repairs, project, as_json=as_json, dry_run=dry_run)


def discard(
    table: Table,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why they are discarded; stored with the decision.")],
    where: Annotated[str, typer.Option("--where", metavar="SQL", help=f"{WHERE}.")] = "true",
    dry_run: DryRun = False,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Discard quarantined rows permanently; the decision is recorded and applied again by rebuilds."""
    if not reason.strip():
        raise WrongUsage(
            "--reason is empty, but rows cannot be discarded without a reason",
            remedy='explain why, for anyone who looks for the rows later: --reason "test data from the till"',
        )
    opened = open_project(project, profile)
    name = _table(opened, table)
    repair = Repair(table=name, kind="discard", where=where, reason=reason)
    return _run(opened, name, (repair,), project, as_json=as_json, dry_run=dry_run)


def _run(
    opened: Project, name: str, repairs: tuple[Repair, ...], project: Path, *, as_json: bool, dry_run: bool
) -> int:
    with showing() as listener:
        selection = name if dry_run else f"{name}+"
        order = RunRequest(select=selection, replay=(name,), repairs=repairs, dry_run=dry_run, once=True)
        result = run_project(opened, order, listener)
    if as_json:
        output.json(report.as_data(result, opened))
    else:
        report.show(result, opened, same_project(project))
    return 0 if result.ok else FAILED


def _table(project: Project, name: str) -> str:
    found = select(project.graph, name.removesuffix("__quarantine"))
    if len(found) != 1:
        raise NoSuchTable(
            f"`{name}` matches {len(found)} tables", remedy="name one table; icefield quarantine ls lists them"
        )
    return found[0]


def _assignment(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals or not column.strip() or not value.strip():
        raise WrongUsage(
            f"`--set {text}` is not an assignment", remedy='write COLUMN = SQL: --set "amount = abs(amount)"'
        )
    return column.strip(), value.strip()
