"""`icefield verify`: is every table what its function gives?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from icefield.cli import output
from icefield.cli.guard import FAILED, guarded
from icefield.cli.options import HERE, Exclude, Json, ProfileName, ProjectDir, words
from icefield.cli.output import Column, Count
from icefield.project import open_project
from icefield.run.background import work
from icefield.run.planning import selected
from icefield.words import plural

if TYPE_CHECKING:
    from icefield.engine.verdict import Verdict

_COLUMNS = (
    "table",
    "verdict",
    Column(name="rows", right=True),
    Column(name="too many", right=True),
    Column(name="missing", right=True),
    Column(name="", wraps=True),
)
Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="Tables to verify, with the syntax of --select; default: all."),
]
Deep = Annotated[
    bool, typer.Option("--deep", help="Recompute from the source files instead of from the tables' inputs.")
]


def register(app: typer.Typer) -> None:
    app.command("verify")(guarded(verify))


def verify(
    tables: Tables = None,
    *,
    deep: Deep = False,
    exclude: Exclude = None,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Recompute tables separately and compare them with the lake row by row. Starts Spark; changes nothing."""
    opened = open_project(project, profile)
    selection = selected(opened, words(tables), words(exclude))
    verdicts = work.verify(opened, selection, lambda table: output.note(f"verifying {table}"), deep=deep)
    if as_json:
        output.json([asdict(verdict) for verdict in verdicts])
    else:
        _show(verdicts)
    return FAILED if any(verdict.status == "differs" for verdict in verdicts) else 0


def _show(verdicts: list[Verdict]) -> None:
    output.table(_COLUMNS, [_cells(verdict) for verdict in verdicts])
    for verdict in verdicts:
        if verdict.examples:
            output.heading(f"{verdict.table}: rows that differ")
            names = list(verdict.examples[0][1])
            output.table(("", *names), [(side, *(_text(row[n]) for n in names)) for side, row in verdict.examples])
    exact = sum(verdict.status == "exact" for verdict in verdicts)
    apart = sum(verdict.status == "differs" for verdict in verdicts)
    output.line(
        f"\n{plural(len(verdicts), 'table')}: {exact} exact, {apart} {'differs' if apart == 1 else 'differ'},"
        f" {len(verdicts) - exact - apart} not compared"
    )


def _cells(verdict: Verdict) -> list[object]:
    counted = verdict.status != "not compared"
    return [
        verdict.table,
        verdict.status,
        Count(verdict.rows) if counted else "",
        Count(verdict.too_many) if verdict.too_many else "",
        Count(verdict.missing) if verdict.missing else "",
        verdict.detail,
    ]


def _text(value: object) -> str:
    return "NULL" if value is None else str(value)
