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
    group = typer.Typer(help="The lake's folder itself: mend one that was moved.", no_args_is_help=True)
    group.command("relocate")(guarded(relocate_lake))
    app.add_typer(group, name="lake")


def relocate_lake(*, as_json: Json = False, project: ProjectDir = HERE, profile: ProfileName = None) -> None:
    """Mend a lake whose folder was moved or copied: its tables name their files by full path."""
    lake = lake_at(project, profile)
    if not lake.exists:
        raise NoLake(lake.root)
    tables = relocate(lake)
    if as_json:
        output.json({"tables": tables, "lake": str(lake.root)})
    elif tables:
        output.line(f"{plural(tables, 'table')} now name their files under {lake.root}")
    else:
        output.line("The lake is where it was made: nothing to do")
