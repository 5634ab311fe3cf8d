"""All commands, put together; only the module of the one that was called is imported, so that each starts fast."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated

import typer

import icefield
from icefield.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Every command and what it is for. Each is a module of this package with a `register(app)`: a new one is a new module
#: and a line here.
COMMANDS: Mapping[str, str] = {
    "init": "Create a small commented project, or a copy of a reference project with its data generator.",
    "ls": "List the declared tables with their inputs and their state in the lake.",
    "plan": "Show what a run would do and why, and what it would refuse. Does not start Spark or change anything.",
    "run": "Ingest new files, refresh the affected tables, check them, and publish everything atomically, or nothing.",
    "runs": "List the recorded runs, or show the tables and checks of one.",
    "check": "Evaluate the checks on the published lake. Starts Spark; changes nothing.",
    "verify": "Recompute tables separately and compare them with the lake row by row. Starts Spark; changes nothing.",
    "sql": "Query one consistent version of the lake in DuckDB's SQL dialect. Does not start a JVM.",
    "table": "Show one table: its declaration, columns, versions and files.",
    "quarantine": "Show, replay or discard rejected rows.",
    "upkeep": "Compact small files, expire old versions and remove unused files. Does not start Spark.",
    "record": "Record the messages of a topic, from where the last recording ended, for a project to read offline.",
    "dbt": "Read the lake from a dbt project, or take over a dbt project as tables.",
    "notify": "Show who is notified of failures, checks that turned and quarantined rows; --test sends a message.",
    "lake": "Maintain the lake's folder: fix the paths after it was moved.",
    "engine": "Show or stop the engine that keep_warm keeps in the background between commands.",
    "doctor": "Check Java, jars, disk, project, databases, lake files and open runs, and say how to fix problems.",
}


def build_app(arguments: Sequence[str] | None = None) -> typer.Typer:
    """The app for these arguments: the called command alone, or, where none is called, the list of all; None: all."""
    app = typer.Typer(
        name="icefield",
        help="A lakehouse in one Python package: declarative tables on Spark and Iceberg; every run is a transaction.",
        epilog="Exit codes: 0 success, 1 something failed, 2 could not run. ICEFIELD_DEBUG=1 shows tracebacks.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_icefield)
    called = list(COMMANDS) if arguments is None else _called(arguments)
    for name in called:
        importlib.import_module(f"icefield.cli.{name}").register(app)
    if not called:
        for name, purpose in COMMANDS.items():
            app.command(name, help=purpose)(_listed)
    return app


#: Options that are the project's, and may stand before the command as well.
_BEFORE = ("-p", "--project", "--profile")


def reordered(arguments: Sequence[str]) -> list[str]:
    """The arguments with those of the project behind the command: `-p DIR ls` means `ls -p DIR`."""
    before: list[str] = []
    rest = list(arguments)
    while rest and rest[0].partition("=")[0] in _BEFORE:
        taken = 1 if "=" in rest[0] or len(rest) == 1 else 2
        before, rest = [*before, *rest[:taken]], rest[taken:]
    words = [place for place, word in enumerate(rest) if not word.startswith("-")]
    if not before or not words or rest[words[0]] not in COMMANDS:
        return list(arguments)
    # Behind the command, or the command of a group: `-p DIR table show x` means `table show -p DIR x`.
    end = words[1] + 1 if rest[words[0]] in _GROUPS and len(words) > 1 else words[0] + 1
    return [*rest[:end], *before, *rest[end:]]


_GROUPS = ("table", "quarantine", "lake", "dbt", "engine")


def _called(arguments: Sequence[str]) -> list[str]:
    """The command that is called, if it is one."""
    return [word for word in arguments[:1] if word in COMMANDS]


def _listed() -> None:
    """Stands in the list of commands; a command that is called is registered by its own module."""


def _icefield(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda value: _version() if value else None,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None: ...


def _version() -> None:
    output.line(f"icefield {icefield.__version__}")
    raise typer.Exit
