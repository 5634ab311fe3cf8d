"""`icefield doctor`: is everything there that a run needs?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from icefield.cli import output
from icefield.cli.diagnosis import Finding, examine_databases, examine_lake, examine_machine, examine_project
from icefield.cli.guard import FAILED, guarded
from icefield.cli.opening import lake_at
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.cli.output import Column
from icefield.errors import NoProject, ProjectError, UnknownRun

if TYPE_CHECKING:
    from pathlib import Path

    from icefield.lake.embedded import EmbeddedLake


def register(app: typer.Typer) -> None:
    app.command("doctor")(guarded(doctor))


def doctor(
    *,
    clear: Annotated[
        str | None, typer.Option("--clear", metavar="RUN", help="Clear this run by force; it can no longer publish.")
    ] = None,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Check Java, jars, disk, project, databases, lake files and open runs, and say how to fix problems."""
    if clear is not None:
        return _clear(lake_at(project, profile), clear)
    findings = [*examine_machine(), *_project_findings(project, profile)]
    if as_json:
        output.json([asdict(finding) for finding in findings])
    else:
        columns = ("what", "", Column(name="found", wraps=True))
        output.table(columns, [(finding.what, finding.status, _told(finding)) for finding in findings])
    return FAILED if any(finding.status == "failure" for finding in findings) else 0


def _project_findings(path: Path, profile: str | None) -> list[Finding]:
    try:
        lake = lake_at(path, profile)
    except NoProject:
        return [
            Finding(
                what="project",
                status="ok",
                told="none here; use -p DIR to point to one, or icefield init DIR to create one",
            )
        ]
    except ProjectError as error:
        return [Finding(what="project", status="failure", told=error.what, remedy=error.remedy)]
    return [examine_project(path, profile), *examine_databases(path, profile), *examine_lake(lake)]


def _told(finding: Finding) -> str:
    return finding.told + (f". {finding.remedy}" if finding.remedy else "")


def _clear(lake: EmbeddedLake, run: str) -> int:
    branches = {owner: branch for branch, owner in lake.catalog.branches().items()} if lake.exists else {}
    found = [owner for owner in branches if owner.startswith(run)]
    if len(found) != 1:
        raise UnknownRun(
            f"{'several open runs start' if found else 'no open run starts'} with `{run}`",
            where=str(lake.root),
            remedy=f"open runs: {', '.join(sorted(branches)) or 'none'}",
        )
    if lake.clear(branches[found[0]], found[0], died=True):
        output.line(f"Run {found[0]} was cleared: it can no longer publish, and its files were removed")
    else:
        output.line(f"Run {found[0]} has ended on its own in the meantime")
    return 0
