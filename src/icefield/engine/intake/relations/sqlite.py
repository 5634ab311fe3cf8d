"""SQLite, asked by Python's own module."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.engine.intake.relations.clients import unordered
from icefield.engine.intake.relations.dialects import Sqlite
from icefield.engine.intake.relations.digests import Digest, digest_of_text
from icefield.errors import NoDatabase, NoRelation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from icefield.engine.intake.relations.connection import Connection
    from icefield.engine.intake.relations.dialects import Span

_BUSY_SECONDS = 30
_dialect = Sqlite()


@contextmanager
def connected(connection: Connection) -> Iterator[SqliteClient]:
    """The database of a file, to be read only."""
    if not connection.file.is_file():
        raise NoDatabase(
            "the file of the SQLite database does not exist",
            where=connection.where,
            remedy='check url = "jdbc:sqlite:path", which is relative to the project',
        )
    try:
        with closing(sqlite3.connect(f"{connection.file.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as db:
            db.text_factory = lambda text: text.decode("utf-8", "replace")
            yield SqliteClient(db, connection)
    except sqlite3.Error as problem:
        missing = isinstance(problem, sqlite3.OperationalError) and "no such" in str(problem)
        raise (NoRelation if missing else NoDatabase)(
            f"SQLite cannot answer: {problem}",
            where=connection.where,
            remedy="check the file and the names of the relation and its columns",
        ) from None


@dataclass(frozen=True, slots=True)
class SqliteClient:
    """One connection."""

    db: sqlite3.Connection
    connection: Connection

    def columns(self, relation: str) -> Sequence[str]:
        """The columns of a table or view."""
        schema, _, name = relation.rpartition(".")
        query = "SELECT name FROM pragma_table_xinfo(?" + (", ?)" if schema else ")")
        return tuple(found for (found,) in self._all(query, name, *([schema] if schema else [])))

    def relations(self) -> Iterable[str]:
        """Tables and views."""
        return [name for (name,) in self._all("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]

    def require_ordered(self, relation: str, column: str, kind: str) -> None:
        """All values are whole numbers, or all are texts: SQLite sorts by type first, so the outermost two tell."""
        name = _dialect.quoted(column)
        ends = self._all(
            f"SELECT typeof(min({name})), typeof(max({name})) FROM {_dialect.relation(relation)}"  # NULLs do not count
        )[0]
        allowed = "text" if kind == "DATE" or kind.startswith("TIMESTAMP") else "integer"
        for found in ends:
            if found not in (allowed, "null"):
                raise unordered(relation, column, found, kind, self.connection.where)

    def highest(self, relation: str, span: Span, lag: timedelta | None) -> tuple[str, int]:
        """The highest value of a cursor column, by this machine's clock if it has to stay behind; and NULLs."""
        column, name = _dialect.quoted(span.column), _dialect.relation(relation)
        behind = ""
        if lag is not None:
            now = f"strftime('%Y-%m-%d %H:%M:%f', 'now', '-{lag.total_seconds():.3f} seconds')"
            behind = f" WHERE {column} <= {now}"
        query = (
            f"SELECT (SELECT CAST(max({column}) AS TEXT) FROM {name}{behind}),"
            f" (SELECT count(*) FROM {name} WHERE {column} IS NULL)"
        )
        ((highest, nulls),) = self._all(query)
        return highest or "", int(nulls)

    def count(self, relation: str, span: Span) -> int:
        """How many rows there are in a span."""
        ((found,),) = self._all(f"SELECT count(*) FROM {_dialect.relation(relation)}{_dialect.where(span)}")
        return int(found)

    def digest(self, relation: str, columns: Sequence[str], span: Span) -> Digest:
        """Computed here, row by row."""
        return Digest.of(self._digests(relation, columns, span))

    def digests(self, relation: str, columns: Sequence[str], span: Span) -> list[int]:
        """The digests of the rows of a span, one by one."""
        return list(self._digests(relation, columns, span))

    def _digests(self, relation: str, columns: Sequence[str], span: Span) -> Iterator[int]:
        query = f"SELECT {_dialect.identity(columns)} FROM {_dialect.relation(relation)}{_dialect.where(span)}"
        for (text,) in self.db.execute(query):
            yield digest_of_text(text)

    @contextmanager
    def snapshot(self) -> Iterator[str]:
        """Connections of SQLite cannot share one."""
        yield ""

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.db.execute(query, values).fetchall()
