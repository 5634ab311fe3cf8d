"""`icefield lake`: the lake's folder itself."""

from __future__ import annotations

import typer

from icefield.cli import output
from icefield.cli.guard import guarded
from icefield.cli.opening import lake_at
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.errors import NoLake
from icefield.lake.relocate import relocate
from icefield.words import plural


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Maintain the lake's folder: fix the paths after it was moved.", no_args_is_help=True)
    group.command("relocate")(guarded(relocate_lake))
    app.add_typer(group, name="lake")


def relocate_lake(*, as_json: Json = False, project: ProjectDir = HERE, profile: ProfileName = None) -> None:
    """Fix a lake whose folder was moved or copied: its tables refer to files by absolute path."""
    lake = lake_at(project, profile)
    if not lake.exists:
        raise NoLake(lake.root)
    tables = relocate(lake)
    if as_json:
        output.json({"tables": tables, "lake": str(lake.root)})
    elif tables:
        output.line(f"Updated the paths of {plural(tables, 'table')} to {lake.root}")
    else:
        output.line("The lake was not moved: nothing to do")
