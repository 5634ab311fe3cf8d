"""All commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import icefield
from icefield.cli import check, doctor, init, ls, output, plan, quarantine, run, sql, table

#: Each module registers its own commands: a new group is a new module and one more name here.
GROUPS = (init, ls, plan, run, check, sql, table, quarantine, doctor)

app = typer.Typer(
    name="icefield",
    help="A lakehouse in one Python package: declared tables over Spark and Iceberg, where every run is a transaction.",
    epilog="Exit codes: 0 fine, 1 something failed, 2 could not run. ICEFIELD_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:  # noqa: FBT001 - the shape Typer calls
    if value:
        output.line(f"icefield {icefield.__version__}")
        raise typer.Exit


@app.callback()
def _icefield(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


for group in GROUPS:
    group.register(app)
