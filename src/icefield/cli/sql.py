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
        str | None, typer.Option("--run", metavar="RUN", help="Query what a failed run staged, while it is kept.")
    ] = None,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Query one consistent version of the lake in DuckDB's SQL dialect. Does not start a JVM.

    The view ops.tables has the run, rows, bytes, files and columns of every published table. SHOW TABLES lists all
    tables. Rows that are too long for the terminal are shown one field per line.
    """
    if out is not None and as_json:
        raise WrongUsage(
            "--json and --out cannot be combined",
            remedy="use --json to print the rows, or --out to write them to a file",
        )
    if run is not None and as_of is not None:
        raise WrongUsage(
            "--run and --as-of cannot be combined: each selects a version of the lake", remedy="use only one of them"
        )
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
        cut = f", first {len(rows):,} shown; use --json or --out FILE for all" if len(rows) < len(result) else ""
        output.note(plural(len(result), "row") + cut)
