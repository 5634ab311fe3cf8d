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
from icefield.run.order import Order
from icefield.run.runner import run_project

Table = Annotated[str, typer.Argument(metavar="TABLE", help="The table whose quarantine it is about.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would become of the rows.")]
WHERE = "Which waiting rows: Spark SQL over the table's columns, `reasons` and `line`"


def replay(
    table: Table,
    *,
    where: Annotated[str, typer.Option("--where", metavar="SQL", help=f"{WHERE}; only with --set.")] = "true",
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help='A repair, such as "amount = abs(amount)"; may be repeated.'),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Apply today's checks to rows that wait now, repaired if you say how; those that pass move into the table."""
    opened = open_project(project, profile)
    name = _table(opened, table)
    repairs: tuple[Repair, ...] = ()
    if not assign and where != "true":
        raise WrongUsage(
            "--where chooses the rows that --set repairs, and there is no --set",
            remedy="say what to set, or leave --where out: without a repair all waiting rows are checked again",
        )
    if assign:
        pairs = tuple(_assignment(text) for text in assign)
        repairs = (Repair(table=name, kind="replay", where=where, assign=pairs),)
    return _run(opened, name, repairs, project, as_json=as_json, dry_run=dry_run)


def discard(
    table: Table,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why they may be let go; it is kept with the decision.")],
    where: Annotated[str, typer.Option("--where", metavar="SQL", help=f"{WHERE}.")] = "true",
    dry_run: DryRun = False,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Let rows that wait now go for good; the decision is remembered, and rebuilds decide the same about them."""
    if not reason.strip():
        raise WrongUsage(
            "--reason is empty, and rows are not let go without a reason",
            remedy='say why in a few words, for whoever looks for the rows later: --reason "test data of the till"',
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
        order = Order(select=selection, replay=(name,), repairs=repairs, dry_run=dry_run, once=True)
        result = run_project(opened, order, listener)
    if as_json:
        output.json(report.as_data(result, opened))
    else:
        report.show(result, opened, same_project(project))
    return 0 if result.ok else FAILED


def _table(project: Project, name: str) -> str:
    found = select(project.graph, name.removesuffix("__quarantine"))
    if len(found) != 1:
        raise NoSuchTable(f"`{name}` means {len(found)} tables", remedy="name one table: icefield quarantine ls")
    return found[0]


def _assignment(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals or not column.strip() or not value.strip():
        raise WrongUsage(
            f"`--set {text}` is no assignment", remedy='write a column, = and Spark SQL: --set "amount = abs(amount)"'
        )
    return column.strip(), value.strip()
