"""Finds the line of a landed file that holds a key: the one that a rejected duplicate repeats."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, TextIO, cast

from icefield.engine.intake.files.splits import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from icefield.declare import Files


def find_line(file: Path, source: Files, key: Mapping[str, str]) -> int | None:
    """The first line whose columns have these texts; None where the file is gone, or does not spell them so."""
    names = {name: {name.lower(), *(former.lower() for former in source.aliases.get(name, ()))} for name in key}
    try:
        with (
            open_file(file, source.encoding) as raw,
            io.TextIOWrapper(cast("Any", raw), encoding="utf-8-sig", errors="replace", newline="") as text,
        ):
            rows = _json_rows(text) if ".json" in file.name else _csv_rows(text, source)
            for line, row in rows:
                if all(_text(row, names[name]) == value for name, value in key.items()):
                    return line
    except (OSError, EOFError, ValueError, csv.Error):
        return None
    return None


def _csv_rows(text: TextIO, source: Files) -> Iterator[tuple[int, Mapping[str, str]]]:
    options = {"delimiter": source.sep, "quotechar": source.quote}
    reader = csv.reader(text, **options)  # type: ignore[arg-type]  # one sign each, as declarations require
    header = [name.strip().lower() for name in next(reader, [])]
    begun = reader.line_num
    for cells in reader:
        yield begun + 1, dict(zip(header, cells, strict=False))
        begun = reader.line_num


def _json_rows(text: TextIO) -> Iterator[tuple[int, Mapping[str, str]]]:
    for number, line in enumerate(text, 1):
        if line.strip().startswith("{"):
            yield number, {name.lower(): str(value) for name, value in json.loads(line).items()}


def _text(row: Mapping[str, str], names: set[str]) -> str | None:
    return next((row[name].strip() for name in names if name in row), None)
