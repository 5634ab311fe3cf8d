"""Options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from icefield.words import parse_duration

SELECTORS = "Only these tables: name, +name, name+, tag:x, gold.*"
ProjectDir = Annotated[
    Path, typer.Option("-p", "--project", metavar="DIR", help="The project's folder, or a folder inside it.")
]
ProfileName = Annotated[str | None, typer.Option("--profile", metavar="NAME", help="The profile in icefield.toml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Select = Annotated[
    list[str] | None,
    typer.Option("-s", "--select", metavar="SELECTOR", help=SELECTORS),
]
Exclude = Annotated[list[str] | None, typer.Option("--exclude", metavar="SELECTOR", help="Exclude these tables.")]
FullRefresh = Annotated[bool, typer.Option("--full-refresh", help="Recompute the tables from all of their inputs.")]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="TABLE",
        help="Accept new code, new checks or rows changed outside icefield without a rebuild.",
    ),
]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="RUN|TIME", help="The lake as of a run or a time.")]

HERE = Path()


def words(values: list[str] | None) -> str:
    """Repeated options are one selector: their union."""
    return " ".join(values or ())


def duration(text: str) -> float:
    """The seconds of a duration such as 10s or 5m."""
    try:
        return parse_duration(text)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
