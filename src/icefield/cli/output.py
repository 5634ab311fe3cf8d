"""The one module that prints: results to stdout, the rest to stderr; tables drawn on a terminal, plain in a pipe."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.errors import IcefieldError, NotWritten
from icefield.lake.values import json_rows, json_text, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.table import Table

#: Rows that a terminal is shown at most; files and JSON get all of them.
SHOWN = 1000
#: Signs of a cell that must stand side by side for it to be read.
LEGIBLE = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a printed table.

    Cells are never cut: those of a column that wraps go on in the next line, between words. Optional columns are left
    out, the last one first, where a terminal has no room for all.
    """

    name: str
    right: bool = False
    wraps: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A part of a printed tree: what it is and its name, what is known of it line by line, and the parts below."""

    title: str
    name: str = ""
    facts: Sequence[tuple[str, str]] = ()
    below: Sequence[TreeNode] = ()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What is inside makes a file or folder that the user has named."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise NotWritten(path, problem) from problem


def line(text: str = "") -> None:
    """One line of the result."""
    sys.stdout.write(text + "\n")


def sentence(text: str) -> None:
    """A line of words, which goes on below where a terminal has no room for it."""
    if not _is_terminal(sys.stdout):
        return line(text)
    return _lines(textwrap.wrap(text, _console().width, break_long_words=False, break_on_hyphens=False) or [""])


def heading(text: str) -> None:
    """What the lines below are about."""
    line(f"\n\033[1m{text}\033[0m" if _is_terminal(sys.stdout) else f"\n{text}")


def note(text: str) -> None:
    """Something said beside the result."""
    sys.stdout.flush()  # so that both read in the order they were said, where they go to one place
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def json(value: Any) -> None:
    """A value as JSON: an array has one element a line."""
    if isinstance(value, list):
        line("[" + ",".join("\n" + json_text(item) for item in value) + ("\n]" if value else "]"))
    else:
        line(json_text(value))


def rows_as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows as a JSON array of objects, one a line."""
    sys.stdout.writelines(json_rows(columns, rows))


def error(problem: BaseException) -> None:
    """What went wrong, in one paragraph; the traceback only where it was asked for."""
    if os.environ.get("ICEFIELD_DEBUG") == "1":
        sys.stderr.write("".join(traceback.format_exception(problem)))
    if isinstance(problem, IcefieldError):
        return failure(str(problem))
    told = f"{type(problem).__name__}: {problem}".strip()
    failure(f"unexpected: {told}\n  next:  set ICEFIELD_DEBUG=1 to see the traceback; the lake is unchanged")
    return None


def failure(text: str) -> None:
    """An error's text."""
    note(f"\033[1;31merror\033[0m {text}" if _is_terminal(sys.stderr) else f"error {text}")


def table(columns: Sequence[Column | str], rows: Sequence[Sequence[Any]], *, wide: bool = False) -> None:
    """Rows under their headings; where a terminal has no room for them, one below the other.

    `wide`: rows of a query, of which long cells may be folded.
    """
    heads = [column if isinstance(column, Column) else Column(name=column) for column in columns]
    shown = [[_cell(value) for value in row] for row in rows]
    if not _is_terminal(sys.stdout):
        for text in _aligned(heads, shown):
            line(text)
        return
    width = _console().width
    if wide:
        if _is_legible(heads, shown, width):
            _console().print(drawn(heads, shown))
        else:
            _lines(_records(heads, shown))
        return
    fitting = _fitting(heads, shown, width)
    _lines(_blocks(heads, shown, width) if fitting is None else _rendered(*fitting, width))


def tree(root: TreeNode) -> None:
    """A tree, drawn on a terminal, indented in a pipe; long lines go on below, between words and parts of paths."""
    if _is_terminal(sys.stdout):
        _lines(_drawn_tree(root, "", "", _console().width))
    else:
        _lines(_indented_tree(root, ""))


def _drawn_tree(node: TreeNode, first: str, lead: str, width: int) -> Iterator[str]:
    """The lines of a part; `first` stands before the first one, and `lead` before all others."""
    stem = lead + ("│ " if node.below else "  ")
    for place, text in enumerate(_folded(f"{node.title} {node.name}", width - len(stem) - 2)):
        yield f"{stem}  {text}" if place else f"{first}\033[1m{text[: len(node.title)]}\033[0m{text[len(node.title) :]}"
    room = max((len(name) for name, _ in node.facts), default=0)
    for name, value in node.facts:
        for place, text in enumerate(_folded(value, width - len(stem) - room - 2)):
            yield f"{stem}{('' if place else name).ljust(room)}  {text}"
    for one in node.below:
        corner, side = ("└ ", "  ") if one is node.below[-1] else ("├ ", "│ ")
        yield from _drawn_tree(one, lead + corner, lead + side, width)


def _indented_tree(node: TreeNode, lead: str) -> Iterator[str]:
    yield f"{lead}{node.title} {node.name}".rstrip()
    room = max((len(name) for name, _ in node.facts), default=0)
    yield from (f"{lead}  {name.ljust(room)}  {value}" for name, value in node.facts)
    for one in node.below:
        yield from _indented_tree(one, f"{lead}  ")


def _folded(text: str, room: int) -> Iterator[str]:
    """A text in lines that fit, broken behind spaces and slashes; a part that is longer stays whole."""
    found = ""
    for part in re.findall(r"[^ /]+[ /]?|[ /]", text):
        if found and len(found) + len(part.rstrip()) > room:
            yield found.strip()
            found = ""
        found += part
    yield found.strip()


def fits(columns: Sequence[Column | str], rows: Sequence[Sequence[Any]]) -> bool:
    """Whether a table is printed with all of its columns."""
    heads = [column if isinstance(column, Column) else Column(name=column) for column in columns]
    shown = [[_cell(value) for value in row] for row in rows]
    return not _is_terminal(sys.stdout) or _least(heads, shown) <= _console().width


def _lines(texts: Iterable[str]) -> None:
    for text in texts:
        line(text)


def live(render: Callable[[], RenderableType]) -> Live:
    """A display on stderr that is drawn again while something goes on, and gone when it is done."""
    from rich.console import Console  # noqa: PLC0415 - 50 ms that only a terminal needs
    from rich.live import Live  # noqa: PLC0415

    return Live(
        get_renderable=render, console=Console(stderr=True), transient=True, refresh_per_second=5, redirect_stdout=False
    )


def drawn(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Table:
    """A table as Rich draws it."""
    from rich import box  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        found.add_column(column.name, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        found.add_row(*(Text(cell) for cell in row))
    return found


def progress_is_drawn() -> bool:
    """Whether stderr is a terminal that can be drawn on."""
    return _is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"


def _aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    flat = [[" ".join(cell.split()) if "\n" in cell else cell for cell in row] for row in rows]
    widths = [max(len(text) for text in (column.name, *cells)) for column, *cells in zip(columns, *flat, strict=True)]
    for row in ([column.name for column in columns], *flat):
        cells = zip(columns, row, widths, strict=True)
        yield "  ".join(text.rjust(w) if column.right else text.ljust(w) for column, text, w in cells).rstrip()


def _fitting(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> tuple[Sequence[Column], Sequence[Sequence[str]]] | None:
    """The table with as many of its columns as there is room for; None where there is too little for the rest."""
    while _least(columns, rows) > width:
        places = [place for place, column in enumerate(columns) if column.optional]
        if not places:
            return None
        gone = places[-1]
        columns = [column for place, column in enumerate(columns) if place != gone]
        rows = [[cell for place, cell in enumerate(row) if place != gone] for row in rows]
    return columns, rows


def _rendered(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Iterable[str]:
    """A table that fits, as lines: columns that wrap share the room that the others leave."""
    cells = [[row[place] for row in rows] for place in range(len(columns))]
    rooms = [_room(column, some) for column, some in zip(columns, cells, strict=True)]
    wanted = [max(len(text) for text in (column.name, *some)) for column, some in zip(columns, cells, strict=True)]
    left = width - sum(rooms) - 2 * (len(columns) - 1)
    for place in sorted(range(len(columns)), key=lambda place: wanted[place] - rooms[place]):
        if columns[place].wraps:  # those that need least of it first
            waiting = sum(wanted[other] > rooms[other] for other in range(len(columns)) if columns[other].wraps)
            more = min(wanted[place] - rooms[place], left // max(waiting, 1))
            rooms[place], left = rooms[place] + more, left - more
    head = _line([column.name for column in columns], columns, rooms)
    yield f"\033[1m{head}\033[0m"
    for row in rows:
        parts = [
            textwrap.wrap(text, room, break_long_words=False) or [""] for text, room in zip(row, rooms, strict=True)
        ]
        for number in range(max(map(len, parts))):
            yield _line([part[number] if number < len(part) else "" for part in parts], columns, rooms)


def _line(cells: Sequence[str], columns: Sequence[Column], rooms: Sequence[int]) -> str:
    placed = zip(cells, columns, rooms, strict=True)
    return "  ".join(text.rjust(room) if column.right else text.ljust(room) for text, column, room in placed).rstrip()


def _least(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """The room that a table needs at least."""
    cells = [[row[place] for row in rows] for place in range(len(columns))]
    return sum(_room(column, some) for column, some in zip(columns, cells, strict=True)) + 2 * (len(columns) - 1)


def _room(column: Column, cells: Sequence[str]) -> int:
    """The signs that a column needs at least: its longest cell, or word where it wraps."""
    texts = [part for text in (column.name, *cells) for part in text.split("\n")]
    return max((len(part) for text in texts for part in (text.split() if column.wraps else [text])), default=0)


def _is_legible(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether every column has room for its cells, or at least for a part of them that can be read."""
    wanted = (max(len(text) for text in (column.name, *cells)) for column, *cells in zip(columns, *rows, strict=True))
    return sum(min(room, LEGIBLE) + 2 for room in wanted) <= width + 2


def _records(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Each row as lines of name and value, as psql and DuckDB do where a row is too long."""
    room = max(len(column.name) for column in columns)
    for number, row in enumerate(rows, 1):
        yield f"-- row {number} ".ljust(room + 12, "-")
        for column, text in zip(columns, row, strict=True):
            indented = text.replace("\n", "\n" + " " * (room + 2))
            yield f"{column.name.ljust(room)}  {indented}".rstrip()


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Iterable[str]:
    """Each row under its first cell, as lines of name and value; long values go on below, between words."""
    room = max(len(column.name) for column in columns[1:]) if len(columns) > 1 else 0
    for row in rows:
        yield row[0]
        for column, text in zip(columns[1:], row[1:], strict=True):
            parts = textwrap.wrap(text, max(width - room - 4, 20), break_long_words=False, break_on_hyphens=False)
            for number, part in enumerate(parts):
                yield f"  {(column.name if number == 0 else '').ljust(room)}  {part}"


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, Count) else plain(value)


class Count(int):
    """A whole number that is shown with separators."""


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415 - as above

    return Console()


def _is_terminal(stream: Any) -> bool:
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ
