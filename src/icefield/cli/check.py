"""`icefield check`: do the checks hold over what is published?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from icefield.cli import output
from icefield.cli.guard import FAILED, guarded
from icefield.cli.options import HERE, Exclude, Json, ProfileName, ProjectDir, Select, words
from icefield.cli.output import Column, Count
from icefield.project import open_project
from icefield.run.background import work
from icefield.run.planning import selected
from icefield.words import plural

if TYPE_CHECKING:
    import typer

    from icefield.engine.checks.results import CheckResult

_COLUMNS = (
    "table",
    Column(name="check", wraps=True),
    "outcome",
    Column(name="rows", right=True),
    Column(name="seen", wraps=True),
)


def register(app: typer.Typer) -> None:
    app.command("check")(guarded(check))


def check(
    *,
    select: Select = None,
    exclude: Exclude = None,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Evaluate the checks on the published lake. Starts Spark; changes nothing."""
    opened = open_project(project, profile)
    selection = selected(opened, words(select), words(exclude))
    results = work.check(opened, selection, lambda table: output.note(f"checking {table}"))
    if as_json:
        output.json([asdict(result) for result in results])
    else:
        _show(results)
    return FAILED if any(result.stops for result in results) else 0


def _show(results: list[CheckResult]) -> None:
    bad = [result for result in results if result.status != "passed"]
    if bad:
        output.table(_COLUMNS, [(r.table, r.check, r.status, Count(r.failed_rows), r.detail) for r in bad])
    passed = len(results) - len(bad)
    output.line(
        f"{plural(len(results), 'check')}: {passed} passed, {len(bad)} did not pass" if bad else _all_passed(results)
    )


def _all_passed(results: list[CheckResult]) -> str:
    return f"{plural(len(results), 'check')}, all passed" if results else "There are no checks to evaluate"
