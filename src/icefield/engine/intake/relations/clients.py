"""The port of databases: what is asked of them without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from icefield.declare.suggest import did_you_mean
from icefield.errors import NoRelation, WrongCursor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from icefield.declare import Jdbc
    from icefield.engine.intake.relations.connection import Connection
    from icefield.engine.intake.relations.dialects import Span
    from icefield.engine.intake.relations.digests import Digest


class Client(Protocol):
    """A database that is asked for news."""

    def columns(self, relation: str) -> Sequence[str]:
        """The columns of a table or view; none where there is no such relation."""

    def relations(self) -> Iterable[str]:
        """Tables and views, as they may be named."""

    def require_ordered(self, relation: str, column: str, kind: str) -> None:
        """Refuses a cursor column whose values are not ordered as those of the declared type."""

    def highest(self, relation: str, span: Span, lag: timedelta | None) -> tuple[str, int]:
        """The highest value of a cursor column, "" if there is none, and how many rows have NULL there."""

    def count(self, relation: str, span: Span) -> int:
        """How many rows there are in a span."""

    def digest(self, relation: str, columns: Sequence[str], span: Span) -> Digest:
        """The digest of the rows of a span."""

    def digests(self, relation: str, columns: Sequence[str], span: Span) -> list[int]:
        """The digests of the rows of a span, one by one."""

    def snapshot(self) -> AbstractContextManager[str]:
        """SQL by which other connections see the very rows of one moment; "" where there is no such thing."""


def open_client(connection: Connection) -> AbstractContextManager[Client]:
    """A connection to a database that can be asked without Spark."""
    if connection.kind == "postgres":
        from icefield.engine.intake.relations import postgres  # noqa: PLC0415 - psycopg is optional

        return postgres.connected(connection)
    from icefield.engine.intake.relations import sqlite  # noqa: PLC0415

    return sqlite.connected(connection)


def require_relation(client: Client, source: Jdbc, where: str) -> frozenset[str]:
    """The columns of a source's relation; refused where the relation or a declared column is missing."""
    found = client.columns(source.relation)
    if not found:
        raise NoRelation(
            f"the database has no table or view {source.relation}",
            where=where,
            remedy=did_you_mean(source.relation, client.relations(), all_of_them="tables and views"),
        )
    for column in source.schema:
        if column.name not in found:
            raise NoRelation(
                f"{source.relation} has no column {column.name}",
                where=where,
                remedy=did_you_mean(column.name, found, all_of_them="columns"),
            )
    return frozenset(found)


def unordered(relation: str, column: str, found: str, kind: str, where: str) -> WrongCursor:
    """The refusal of a cursor column by the type that it has in the database."""
    return WrongCursor(
        f"the cursor column {column} of {relation} is {found} in the database, which is not ordered as {kind} is",
        where=where,
        remedy="name a column of numbers, dates or times, or read a view that casts it",
    )
