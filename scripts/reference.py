"""Writes the pages of docs/reference that the code itself tells: the command line and the `ops.*` tables.

`python scripts/reference.py` writes them, `--check` only says which ones are stale and exits with 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from icefield.cli.app import COMMANDS, build_app
from icefield.lake.ops import TABLES

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
GENERATED = "<!-- Written by scripts/reference.py; edit the code it reads, then run it again. -->"

#: Every table that runs keep about themselves, and what one of its rows is.
ONE_ROW = {
    "ops.runs": "One row a run that had something to do: published, failed or found dead.",
    "ops.table_runs": "One row a table that a run worked on.",
    "ops.checks": "One row a check that a run evaluated.",
    "ops.files": "One row a file that a table took in, and another whenever it had a new time or content, or was gone.",
    "ops.offsets": "One row a range of offsets that a table took in, and one for each loss that was accepted.",
    "ops.reads": "One row a read of a table or view of a database.",
    "ops.repairs": "One row a decision about quarantined rows; rebuilds apply them again, where they still fit.",
    "ops.repaired": "One row a waiting row that a decision was about: rebuilds apply it to no other.",
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check compare them."""
    stale = [name for name, text in pages().items() if _written(name) != text]
    if arguments == ["--check"]:
        for name in stale:
            print(f"docs/reference/{name} is stale: run python scripts/reference.py", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        (PAGES / name).write_text(pages()[name], encoding="utf-8")
        print(f"docs/reference/{name}: written")
    return 0


def pages() -> Mapping[str, str]:
    """Every generated page: its file name and the text it should have."""
    return {"cli.md": "\n".join(command_line()) + "\n", "ops-tables.md": "\n".join(ops_tables()) + "\n"}


def ops_tables() -> Iterator[str]:
    """The page on `ops.*`."""
    yield from (
        "# The `ops` tables",
        "",
        GENERATED,
        "",
        "What runs did is kept in the lake, in Iceberg tables that any engine can read. They are published by the same",
        'commit as the data they describe. `table` and `check` are words of SQL: write `"table"` and `"check"`. Times',
        "are in UTC.",
        "",
        "`icefield sql` shows `ops.tables` beside them: one row a table of the lake as it is now, with its run, rows,",
        "bytes, files, columns and the place of its metadata. It is worked out for each query and not stored.",
    )
    for name, columns in TABLES.items():
        yield from ("", f"## `{name}`", "", ONE_ROW[name], "", "| column | type | meaning |", "|---|---|---|")
        yield from (f"| `{column}` | {kind} | {_cell(doc)} |" for column, (kind, doc) in columns.items())


def command_line() -> Iterator[str]:
    """The page on the commands, in the order of `icefield --help`."""
    app: Any = typer.main.get_command(build_app())
    yield from ("# The command line", "", GENERATED, "", str(app.help), "", str(app.epilog), "")
    yield from (
        "Results go to stdout, everything else to stderr. Every command has `-h` and `--help`; `icefield --version`",
        "shows the version.",
        "",
        "| command | what it does |",
        "|---|---|",
    )
    yield from (f"| [`{name}`](#icefield-{name}) | {_cell(purpose)} |" for name, purpose in COMMANDS.items())
    for name in COMMANDS:
        yield from _command(f"icefield {name}", app.commands[name], "##")


def _command(path: str, command: Any, heading: str) -> Iterator[str]:
    yield from ("", f"{heading} `{path}`", "", str(command.help))
    inner: Mapping[str, Any] = getattr(command, "commands", {})
    for name, one in inner.items():
        yield from _command(f"{path} {name}", one, f"{heading}#")
    if inner:
        return
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    yield from ("", "```", " ".join([path, *(one.metavar for one in arguments), "[OPTIONS]"]), "```", "")
    yield from ("| argument or option | meaning |", "|---|---|")
    yield from (f"| `{_cell(one.metavar)}` | {_cell(one.help)} |" for one in arguments)
    yield from (f"| `{_cell(_spelled(one))}` | {_cell(one.help)}{_remarks(one)} |" for one in options)


def _spelled(option: Any) -> str:
    if option.is_flag:
        return ", ".join(option.opts)
    # Typer's own words for a type differ between its versions.
    return ", ".join(option.opts) + f" {option.metavar or ('N' if isinstance(option.default, int) else 'TEXT')}"


def _remarks(option: Any) -> str:
    """What the help text leaves to the command line to say."""
    told = [] if option.help.endswith(".") else ["."]
    if option.required:
        told.append("Required.")
    if option.multiple and "may be repeated" not in option.help:
        told.append("May be repeated.")
    if isinstance(option.default, int | str) and not isinstance(option.default, bool) and str(option.default):
        told.append(f"Default: `{option.default}`.")
    return "".join(remark if remark == "." else f" {remark}" for remark in told)


def _cell(text: str) -> str:
    """Text inside of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())


def _written(name: str) -> str:
    file = PAGES / name
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
