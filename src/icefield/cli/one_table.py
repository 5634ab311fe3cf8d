"""What the commands about one table have in common: how it is named, found in the lake and known to the project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icefield.cli.opening import lake_at
from icefield.errors import IcefieldError
from icefield.graph import Graph
from icefield.project import open_project
from icefield.query import Pin
from icefield.query.pins import pin_now
from icefield.query.reader import find_pin

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table's full name, or a unique last part of it.")]


def pin_at(name: str, project: Path, profile: str | None) -> Pin:
    """A published table, as it is now."""
    return find_pin(pin_now(lake_at(project, profile)), name)


def graph_at(project: Path, profile: str | None) -> Graph | None:
    """What the project declares; None while its code is broken, when the lake can be looked at all the same."""
    try:
        return open_project(project, profile).graph
    except IcefieldError:
        return None
