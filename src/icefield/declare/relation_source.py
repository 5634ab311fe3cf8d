"""`jdbc`: a table or view of a database, read whole or by a column whose values grow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from icefield.declare.columns import Column, parse_columns
from icefield.declare.registry import caller
from icefield.declare.sources import INGESTED_AT, Source
from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidName, InvalidOption, UnknownColumn

DEFAULT_CONNECTION = "default"
#: Types of which a database and Spark agree what is greater. Text is not: it is ordered by the rules of a language.
_WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ")
_RELATION = re.compile(r"[^\s.\"'`;()\[\]]+(?:\.[^\s.\"'`;()\[\]]+){0,2}")
_CONNECTION = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jdbc(Source):
    """A relation of a database: whole or, where `cursor` names a column, the rows above the last value of it."""

    relation: str
    cursor: str | None = None
    connection: str = DEFAULT_CONNECTION
    #: How far to stay behind the database's clock, so that transactions in flight can end before their rows are read.
    lag: timedelta | None = None
    #: How many connections read side by side, and the column by which they share the rows.
    partitions: int = 1
    partition_by: str | None = None

    @property
    def name(self) -> str:
        """How it is shown to people."""
        return self.relation

    @property
    def grows(self) -> bool:
        """Read whole, it replaces what was there; read by its cursor, it only adds."""
        return self.cursor is not None

    @property
    def provenance(self) -> tuple[Column, ...]:
        """When a row was taken in; read whole, that would be another time for all rows whenever one changes."""
        return (INGESTED_AT,) if self.cursor is not None else ()

    @property
    def ordered_by(self) -> str | None:
        """The column by which rows are shared between connections, and ordered."""
        return self.partition_by or self.cursor

    def type_of(self, column: str) -> str:
        """The declared type of a column."""
        return next(one.type for one in self.schema if one.name == column)


def jdbc(
    relation: str,
    *,
    schema: str,
    cursor: str | None = None,
    connection: str = DEFAULT_CONNECTION,
    lag: timedelta | None = None,
    partitions: int = 1,
    partition_by: str | None = None,
) -> Source:
    """A table or view of a database: `jdbc("public.countries", schema="code STRING, name STRING")`.

    With `cursor="updated_at"` a run takes in the rows above the highest value so far; otherwise it reads the whole
    relation if anything in it has changed. `[profile.NAME.jdbc.CONNECTION]` says where the database is.
    """
    if not isinstance(relation, str) or not _RELATION.fullmatch(relation):
        raise _wrong(
            f"jdbc({relation!r}) is not the name of a table or view",
            'write jdbc("schema.table", ...); for a query, create a view in the database',
        )
    if not isinstance(connection, str) or not _CONNECTION.fullmatch(connection):
        raise _wrong(f"connection={connection!r} is not a name", 'write connection="shop" and [profile.NAME.jdbc.shop]')
    columns = parse_columns(schema)
    if cursor is not None:
        _require_ordered("cursor", cursor, columns)
        _refuse_own(columns)
    if partition_by is not None:
        _require_ordered("partition_by", partition_by, columns)
    source = Jdbc(
        relation=relation,
        schema=columns,
        cursor=cursor,
        connection=connection,
        lag=_lag(lag, cursor, columns),
        partitions=_partitions(partitions),
        partition_by=partition_by,
    )
    if source.partitions > 1 and source.ordered_by is None:
        raise _wrong(
            f"partitions={partitions} needs a column by which rows are divided",
            'add partition_by="id", the name of a column with numbers, dates or times',
        )
    return source


def _require_ordered(option: str, name: str, columns: tuple[Column, ...]) -> None:
    found = next((column for column in columns if column.name == name), None)
    if found is None:
        raise UnknownColumn(
            f"{option}={name!r} is not a column of the schema",
            where=str(caller()),
            remedy=did_you_mean(str(name), [column.name for column in columns], all_of_them="columns"),
        )
    if found.type not in (*_WHOLE_NUMBERS, *_TIMES, "DATE") and not found.type.startswith("DECIMAL"):
        raise _wrong(
            f"{option}={name!r} has the type {found.type}",
            "name a column of whole numbers, DECIMAL, DATE, TIMESTAMP or TIMESTAMP_NTZ",
        )


def _refuse_own(columns: tuple[Column, ...]) -> None:
    if any(column.name.lower() == INGESTED_AT.name for column in columns):
        raise InvalidName(
            f"column `{INGESTED_AT.name}` of the schema is already provided by the source",
            where=str(caller()),
            remedy="remove it from the schema, or read a view that gives it another name",
        )


def _lag(lag: timedelta | None, cursor: str | None, columns: tuple[Column, ...]) -> timedelta | None:
    if lag is None:
        return None
    if not isinstance(lag, timedelta) or lag <= timedelta(0):
        raise _wrong(f"lag={lag!r} is not a positive timedelta", "write lag=timedelta(minutes=5)")
    if next((column.type for column in columns if column.name == cursor), None) not in _TIMES:
        raise _wrong("lag= needs a cursor of type TIMESTAMP or TIMESTAMP_NTZ", "remove lag=, or name such a cursor")
    return lag


def _partitions(count: int) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise _wrong(f"partitions={count!r} is not a number of connections", "write partitions=4")
    return count


def _wrong(what: str, remedy: str) -> InvalidOption:
    return InvalidOption(what, where=str(caller()), remedy=remedy)
