"""Where the row stands that a rejected duplicate repeats: told by the table itself, and by the landed file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.declare import Files, Unique
from icefield.engine.intake.files.first_lines import find_line
from icefield.errors import IcefieldError
from icefield.project import open_project
from icefield.query.overview import columns
from icefield.query.reader import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from icefield.query import Reader


def first_arrivals(
    reader: Reader, table: str, rows: Sequence[Mapping[str, Any]], project: Path, profile: str | None
) -> dict[int, str]:
    """File and line of the row that each of some rejected rows repeats, by its number, as far as that can be told.

    A project whose code is broken tells no keys, and a table that did not keep `source_file` no files.
    """
    try:
        opened = open_project(project, profile)
    except IcefieldError:
        return {}
    node = opened.graph.nodes.get(table)
    if node is None or table not in reader.pins:
        return {}
    kept = {column["name"] for column in columns(reader.pin(table))}
    found: dict[int, str] = {}
    for check in node.table_checks:
        if not isinstance(check, Unique) or not {*check.columns, "source_file"} <= kept:
            continue
        about = {
            n: row["values"] for n, row in enumerate(rows) if row["values"] and check.name in (row["reasons"] or ())
        }
        files = _files(reader, table, check.columns, about)
        for number, file in files.items():
            key = {name: str(about[number][name]) for name in check.columns}
            source = node.source
            line = find_line(opened.root / file, source, key) if isinstance(source, Files) else None
            found[number] = file if line is None else f"{file}:{line}"
    return found


def _files(reader: Reader, table: str, names: Sequence[str], about: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """The file that the row of each key came from."""
    if not about:
        return {}
    keys = [f"CAST({_name(name)} AS VARCHAR)" for name in names]
    wanted = [tuple(str(values[name]) for name in names) for values in about.values()]
    listed = ", ".join(f"({', '.join(map(_text, one))})" for one in dict.fromkeys(wanted))
    told = reader.query(
        f"SELECT {', '.join(keys)}, source_file FROM {quoted(table)} WHERE ({', '.join(keys)}) IN ({listed})"
    )
    known = {tuple(row[:-1]): row[-1] for row in told.rows()}
    return {number: known[one] for number, one in zip(about, wanted, strict=True) if one in known}


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
