"""`files`: files under a path pattern, each taken once."""

from __future__ import annotations

import codecs
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icefield.declare.columns import Column, parse_columns
from icefield.declare.options import Changed, Deleted, Format, NewColumns, must_be_one_of, texts
from icefield.declare.registry import caller
from icefield.declare.sources import INGESTED_AT, Source, refuse_clashes
from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidOption, UnknownColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE_FILE, SOURCE_LINE = Column("source_file", "STRING"), Column("source_line", "BIGINT")
SUFFIXES: Mapping[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
PACKED = (".gz",)
#: What `format="binary"` gives of each file.
BINARY = "size BIGINT, modified_at TIMESTAMP, sha256 STRING, content BINARY"
#: Larger files are listed without their content.
CONTENT_LIMIT = 16 << 20
#: Characters that may be chosen for CSV files.
_SIGNS = ("sep", "quote")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(Source):
    """Files under a path pattern, each taken once; `format` is None where each file's own suffix decides."""

    path: str
    format: Format | None = None
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    new_columns: NewColumns = "fail"
    changed: Changed = "fail"
    deleted: Deleted = "ignore"
    #: The part of the path by whose values files are taken in, one run each.
    batch: str | None = None
    #: `sep` and `quote`, where they are not the usual ones.
    options: Mapping[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    header: bool = True
    #: Texts of CSV cells that mean NULL, besides the empty one.
    null_values: tuple[str, ...] = ()
    date_format: str = ""
    timestamp_format: str = ""

    @property
    def name(self) -> str:
        """How it is shown to people."""
        return self.path

    @property
    def parts(self) -> tuple[str, ...]:
        """The {names} of the path, which become columns."""
        return _parts(self.path)

    @property
    def glob(self) -> str:
        """The path with every {part} as a wildcard."""
        pieces = string.Formatter().parse(self.path)
        return "".join(text + ("*" if part is not None else "") for text, part, _, _ in pieces)

    @property
    def sep(self) -> str:
        return self.options.get("sep", ",")

    @property
    def quote(self) -> str:
        return self.options.get("quote", '"')

    @property
    def provenance(self) -> tuple[Column, ...]:
        """The parts of the path, then file, line and time of arrival."""
        return (*(Column(part, "STRING") for part in self.parts), SOURCE_FILE, SOURCE_LINE, INGESTED_AT)


def files(
    path: str,
    *,
    schema: str | None = None,
    format: Format | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    new_columns: NewColumns = "fail",
    changed: Changed | None = None,
    deleted: Deleted = "ignore",
    batch: str | None = None,
    encoding: str = "utf-8",
    header: bool = True,
    null_values: Sequence[str] = (),
    date_format: str = "",
    timestamp_format: str = "",
    **signs: str,
) -> Source:
    """Files under a pattern relative to the project, each taken once: `files("landing/*.csv", schema="id BIGINT")`."""
    if not isinstance(path, str) or not path:
        raise _wrong(f"files({path!r}) is not a path", 'write a pattern such as "landing/orders/*.csv"')
    must_be_one_of("new_columns", new_columns)
    if changed is not None:
        must_be_one_of("changed", changed)
    must_be_one_of("deleted", deleted)
    if format is not None:
        must_be_one_of("format", format)
    source = Files(
        path=path,
        schema=_schema(schema, format),
        format=format or _format_of(path),
        new_columns=new_columns,
        changed=changed or ("fail" if batch is None else "replace"),
        deleted=deleted,
        batch=batch,
        options=_chosen(signs),
        encoding=_encoding(encoding),
        header=header,
        null_values=texts("null_values", null_values),
        date_format=date_format,
        timestamp_format=timestamp_format,
        aliases=checked_aliases(aliases or {}, parse_columns(schema) if schema else ()),
    )
    refuse_clashes(source.schema, tuple(column.name for column in source.provenance))
    _refuse_wrong_batch(source)
    return source


def _schema(schema: str | None, format: Format | None) -> tuple[Column, ...]:
    if format == "binary":
        if schema is not None:
            raise _wrong('files(..., format="binary") takes no schema', f"remove it: the columns are {BINARY}")
        return parse_columns(BINARY)
    if not schema:
        raise _wrong("files() needs a schema", 'write schema="id BIGINT, name STRING, ..."')
    return parse_columns(schema)


def _chosen(signs: Mapping[str, str]) -> dict[str, str]:
    for name, value in signs.items():
        if name not in _SIGNS:
            raise _wrong(f"files() has no option {name}", did_you_mean(name, _OPTIONS, all_of_them="options"))
        if not isinstance(value, str) or len(value) != 1:
            raise _wrong(f"option {name}={value!r} is not a single character", f'write {name}=";"')
    return dict(signs)


_OPTIONS = (*_SIGNS, "encoding", "header", "null_values", "date_format", "timestamp_format")


def _encoding(encoding: str) -> str:
    """The name that Python has for an encoding."""
    try:
        return codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise _wrong(
            f"encoding={encoding!r} is not known", 'write a name such as "utf-8", "cp1252" or "utf-16"'
        ) from None


def _refuse_wrong_batch(source: Files) -> None:
    if source.batch is None:
        return
    if source.batch not in source.parts:
        raise _wrong(
            f"batch={source.batch!r} is not a part of the path {source.path!r}",
            did_you_mean(source.batch, source.parts, all_of_them="parts")
            if source.parts
            else f'name it in the path: files("landing/trips_{{{source.batch}}}.csv", batch="{source.batch}")',
        )
    if source.changed != "replace":
        raise _wrong(
            f"batch={source.batch!r} and changed={source.changed!r} contradict each other",
            "remove changed=: a changed batch is taken in again and replaces its rows",
        )


def _parts(path: str) -> tuple[str, ...]:
    try:
        pieces = list(string.Formatter().parse(path))
    except ValueError as problem:
        raise _wrong(f"the path {path!r} cannot be parsed: {problem}", "write {{ and }} for literal braces") from None
    parts = [part for _, part, _, _ in pieces if part is not None]
    for part in parts:
        if not part.isidentifier() or part != part.lower():
            raise _wrong(
                f"{{{part}}} in {path!r} is not a valid column name", "write a lower-case name such as {source_month}"
            )
    if len(parts) != len(set(parts)):
        raise _wrong(f"a {{part}} occurs twice in {path!r}", "give each part a different name")
    return tuple(parts)


def checked_aliases(aliases: Mapping[str, Sequence[str]], columns: tuple[Column, ...]) -> dict[str, tuple[str, ...]]:
    """Former names of columns, each of a column that is declared."""
    names = {column.name for column in columns}
    for name in aliases:
        if name not in names:
            raise UnknownColumn(
                f"aliases= refers to `{name}`, which is not in the schema",
                where=str(caller()),
                remedy=did_you_mean(name, names, all_of_them="columns"),
            )
    return {name: texts("aliases", former) for name, former in aliases.items()}


def _format_of(path: str) -> Format | None:
    """The format the pattern itself tells; None where it ends in a wildcard, so that each file tells its own."""
    suffixes = [f".{part}" for part in path.rpartition("/")[2].lower().split(".")[1:]]
    told = [suffix for suffix in suffixes if suffix not in PACKED]
    suffix = told[-1] if told else ""
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if not suffix or any(sign in suffix for sign in "*?[{"):
        return None
    raise _wrong(
        f"the format of {path!r} cannot be inferred from `{suffix}`", 'set format="csv", "json", "parquet" or "binary"'
    )


def _wrong(what: str, remedy: str) -> InvalidOption:
    return InvalidOption(what, where=str(caller()), remedy=remedy)
