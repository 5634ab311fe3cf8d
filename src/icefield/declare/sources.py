"""Where rows come from."""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icefield.declare.columns import Column, parse_columns
from icefield.declare.options import Changed, Deleted, Format, NewColumns, must_be_one_of, texts
from icefield.declare.registry import caller
from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidName, InvalidOption, UnknownColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROVENANCE = (Column("source_file", "STRING"), Column("source_line", "BIGINT"), Column("ingested_at", "TIMESTAMP"))
SUFFIXES: Mapping[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
PACKED = (".gz",)
#: What a CSV file may do differently.
OPTIONS = ("sep", "quote")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from; each kind is a subclass."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """What the function is handed: the declared columns and where each row came from."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(Source):
    """Files under a path pattern, each taken once; `format` is None where each file's own suffix decides."""

    path: str
    schema: tuple[Column, ...]
    format: Format | None = None
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    new_columns: NewColumns = "fail"
    changed: Changed = "fail"
    deleted: Deleted = "ignore"
    options: Mapping[str, str] = field(default_factory=dict)

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
    def columns(self) -> tuple[Column, ...]:
        """The declared columns, the parts of the path, then file, line and time of arrival."""
        return (*self.schema, *(Column(part, "STRING") for part in self.parts), *PROVENANCE)


def files(
    path: str,
    *,
    schema: str,
    format: Format | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    new_columns: NewColumns = "fail",
    changed: Changed = "fail",
    deleted: Deleted = "ignore",
    **options: str,
) -> Source:
    """Files under a pattern relative to the project, each taken once: `files("landing/*.csv", schema="id BIGINT")`."""
    if not isinstance(path, str) or not path:
        raise _wrong(f"files({path!r}) is not a path", 'write a pattern such as "landing/orders/*.csv"')
    must_be_one_of("new_columns", new_columns)
    must_be_one_of("changed", changed)
    must_be_one_of("deleted", deleted)
    if format is not None:
        must_be_one_of("format", format)
    columns = parse_columns(schema)
    parts = _parts(path)
    _refuse_clashes(columns, parts)
    for name, value in options.items():
        if name not in OPTIONS:
            raise _wrong(f"files() has no option {name}", did_you_mean(name, OPTIONS, all_of_them="options"))
        if not isinstance(value, str) or len(value) != 1:
            raise _wrong(f"option {name}={value!r} is not a single character", f'write {name}=";"')
    return Files(
        path=path,
        schema=columns,
        format=format or _format_of(path),
        aliases=_aliases(aliases or {}, columns),
        new_columns=new_columns,
        changed=changed,
        deleted=deleted,
        options=dict(options),
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


def _refuse_clashes(columns: tuple[Column, ...], parts: tuple[str, ...]) -> None:
    added = {*parts, *(column.name for column in PROVENANCE)}
    for column in columns:
        if column.name.lower() in added:
            raise InvalidName(
                f"column `{column.name}` of the schema is already provided by the source "
                f"({', '.join((*parts, *(c.name for c in PROVENANCE)))})",
                where=str(caller()),
                remedy="remove it from the schema, or rename it there and list this name in aliases=",
            )


def _aliases(aliases: Mapping[str, Sequence[str]], columns: tuple[Column, ...]) -> dict[str, tuple[str, ...]]:
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
    raise _wrong(f"the format of {path!r} cannot be inferred from `{suffix}`", 'set format="csv", "json" or "parquet"')


def _wrong(what: str, remedy: str) -> InvalidOption:
    return InvalidOption(what, where=str(caller()), remedy=remedy)
