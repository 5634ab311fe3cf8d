"""Looks into the head of a file: its format, and its columns where it names them itself."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.declare import Column
from icefield.declare.file_source import PACKED, SUFFIXES
from icefield.engine.intake.files.landing import unreadable
from icefield.errors import FileUnreadable, WrongHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.declare import Files
    from icefield.graph.news import LandedFile

_HEADER_BYTES = 1 << 20
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHead:
    """A file to be read by a run: its place in the order of arrival, when it first arrived, and what its head tells.

    `header` has its columns in its own order, as declared names ("" for one to leave out). `names` are those that a
    Parquet file has for them.
    """

    file: LandedFile
    arrival: int
    taken_ms: int
    format: str
    header: tuple[str, ...] = ()
    header_line: str = ""
    names: tuple[str, ...] = ()
    rows: int = 0


def read_head(root: Path, file: LandedFile, source: Files, *, arrival: int = 0, taken_ms: int = 0) -> FileHead:
    """Looks into a file; one whose columns are not those that are declared is refused."""
    kind = source.format or _format(file, source)
    header: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    line, rows = "", 0
    if kind == "csv":
        header, line = _csv_header(root, file, source)
    elif kind == "parquet" and file.size:
        footer = _footer(root / file.path)
        names, rows = tuple(footer.schema_arrow.names), footer.metadata.num_rows
        header = _matched(file, names, source)
        _require_conversions(file, footer, header, source)
    return FileHead(
        file=file,
        arrival=arrival,
        taken_ms=taken_ms,
        format=kind,
        header=header,
        header_line=line,
        names=names,
        rows=rows,
    )


def undeclared_columns(root: Path, file: LandedFile, source: Files) -> list[Column]:
    """Columns that a file has and the source does not declare, with the type that they are added as."""
    kind = source.format or _format(file, source)
    known = _known_names(source)
    if kind == "parquet" and file.size:
        from icefield.engine.intake.files.typed import spark_type  # noqa: PLC0415 - pyarrow

        fields = _footer(root / file.path).schema_arrow
        return [Column(_column_name(f.name), spark_type(f.type)) for f in fields if f.name.lower() not in known]
    if kind == "csv" and source.header:
        text = _first_line(root, file, source)
        names = _split_header(file, text, source) if text else []
        return [Column(_column_name(name), "STRING") for name in names if name.lower() not in known]
    return []


def _column_name(name: str) -> str:
    """A file's name for a column as that of a column: lower case, without blanks."""
    return "_".join(name.lower().split()) or "unnamed"


def _format(file: LandedFile, source: Files) -> str:
    suffixes = [suffix.lower() for suffix in Path(file.path).suffixes if suffix.lower() not in PACKED]
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    raise FileUnreadable(
        f"the format of {file.path} cannot be determined from its name",
        where=f'{file.path}, files("{source.path}")',
        remedy='name files .csv, .json, .jsonl or .parquet, or declare files(..., format="csv")',
    )


# -- Parquet


def _footer(path: Path) -> Any:
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 - only where such files arrive

    try:
        return parquet.ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise FileUnreadable(
            f"{path.name} is not a Parquet file: {str(error).splitlines()[0]}",
            where=str(path),
            remedy="move the file out of the landing folder, or write it again",
        ) from error


def _require_conversions(file: LandedFile, footer: Any, header: Sequence[str], source: Files) -> None:
    from icefield.engine.intake.files.typed import NoConversion, require_conversion  # noqa: PLC0415 - pyarrow

    declared = {column.name: column.type for column in source.schema}
    for column, field in zip(header, footer.schema_arrow, strict=True):
        if not column:
            continue
        try:
            require_conversion(field.type, declared[column])
        except NoConversion as problem:
            raise WrongHeader(
                f"the column `{field.name}` of {file.path} cannot be read as {column} {declared[column]}: {problem}",
                where=file.path,
                remedy="declare a type that holds its values, STRING for instance, and convert it in the function; or"
                " write the file again",
            ) from None


# -- CSV


def _csv_header(root: Path, file: LandedFile, source: Files) -> tuple[tuple[str, ...], str]:
    """A CSV file's columns in its own order, and its first line."""
    if not source.header:
        return tuple(column.name for column in source.schema), ""
    text = _first_line(root, file, source)
    if not text:
        return (), ""
    return _matched(file, _split_header(file, text, source), source), text


def _first_line(root: Path, file: LandedFile, source: Files) -> str:
    from icefield.engine.intake.files.splits import open_file  # noqa: PLC0415 - numpy

    path = root / file.path
    try:
        with open_file(path, source.encoding) as handle:
            line = handle.readline(_HEADER_BYTES)
    except (OSError, EOFError, UnicodeError) as error:
        raise unreadable(path, error) from error
    if not line.strip():
        if file.size and line:
            raise wrong_header(file, "its first line is blank", source)
        return ""
    try:
        return line.decode().rstrip("\r\n").removeprefix(_BOM)  # Spark's lines come without it, too
    except UnicodeDecodeError:
        raise wrong_header(file, f"its first line is not {source.encoding.upper()}", source) from None


def _split_header(file: LandedFile, text: str, source: Files) -> list[str]:
    try:
        names = next(csv.reader([text], delimiter=source.sep, quotechar=source.quote))
    except csv.Error as error:
        raise wrong_header(file, f"its first line cannot be split into column names ({error})", source) from None
    return [name.strip() for name in names]


def _known_names(source: Files) -> dict[str, str]:
    known = {column.name.lower(): column.name for column in source.schema}
    for column, former in source.aliases.items():
        known.update({name.lower(): column for name in former})
    return known


def _matched(file: LandedFile, names: Sequence[str], source: Files) -> tuple[str, ...]:
    known = _known_names(source)
    if source.new_columns == "add":
        known = {_column_name(name): column for name, column in known.items()} | known
    matched = [known.get(name.lower(), known.get(_column_name(name), "")) for name in names]
    unknown = [name for name, column in zip(names, matched, strict=True) if not column]
    if unknown and source.new_columns == "fail":
        raise wrong_header(file, f"it has unknown columns: {', '.join(unknown)}", source)
    repeated = sorted({column for column in matched if column and matched.count(column) > 1})
    if repeated:
        raise wrong_header(file, f"it has duplicate columns: {', '.join(repeated)}", source)
    missing = [column.name for column in source.schema if column.name not in matched]
    if missing and source.new_columns == "fail":
        raise wrong_header(file, f"it has missing columns: {', '.join(missing)}", source)
    return tuple(matched)


def wrong_header(file: LandedFile, problem: str, source: Files) -> WrongHeader:
    """The error for a file whose columns are not those that are declared."""
    declared = ",".join(column.name for column in source.schema)
    return WrongHeader(
        f"the header of {file.path} does not match the declared columns: {problem}",
        where=f"{file.path}:1",
        remedy=f"the first line must list the columns {declared}; fix the file, or declare aliases= or new_columns=",
    )
