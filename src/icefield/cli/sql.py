"""`icefield sql`: a query over the lake."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icefield.cli import output
from icefield.cli.guard import guarded
from icefield.cli.opening import lake_at
from icefield.cli.options import HERE, AsOf, Json, ProfileName, ProjectDir
from icefield.cli.output import Column
from icefield.errors import WrongUsage
from icefield.query import open_reader
from icefield.words import plural

if TYPE_CHECKING:
    from icefield.query import Result

_NUMBERS = ("int", "decimal", "float", "double")


def register(app: typer.Typer) -> None:
    app.command("sql")(guarded(sql))


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY|-", help="The query, or - to read it from stdin.")],
    *,
    as_json: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the rows to a .parquet, .csv or .json file.")
    ] = None,
    as_of: AsOf = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="The lake as a failed run staged it, while it is kept.")
    ] = None,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Query one consistent version of the lake, in DuckDB's SQL. No JVM is started.

    Beside the tables there is ops.tables: every table's run, rows, bytes, files and columns, as published.
    SHOW TABLES lists them. On a terminal, rows too long for it are shown one below the other.
    """
    if out is not None and as_json:
        raise WrongUsage("--json prints the rows and --out writes them to a file", remedy="leave one of them out")
    if run is not None and as_of is not None:
        raise WrongUsage("--run and --as-of each choose a version of the lake", remedy="leave one of them out")
    text = sys.stdin.read() if query == "-" else query
    with open_reader(lake_at(project, profile), as_of=as_of, run=run) as reader:
        _show(reader.query(text), out, as_json=as_json)


def _show(result: Result, out: Path | None, *, as_json: bool) -> None:
    if out is not None:
        with output.writing(out):
            result.save(out)
        output.note(f"{plural(len(result), 'row')} written to {out}")
    elif as_json:
        output.rows_as_json(result.columns, result.rows())
    else:
        kinds = [str(kind) for kind in result.to_arrow().schema.types]
        columns = [
            Column(name=name, right=kind.startswith(_NUMBERS)) for name, kind in zip(result.columns, kinds, strict=True)
        ]
        rows = result.rows() if len(result) <= output.SHOWN else result.first(output.SHOWN).rows()
        output.table(columns, rows, wide=True)
        cut = f", the first {len(rows):,} shown; --json or --out FILE gives all" if len(rows) < len(result) else ""
        output.note(plural(len(result), "row") + cut)
