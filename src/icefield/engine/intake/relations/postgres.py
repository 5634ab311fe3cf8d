"""Postgres, asked by psycopg."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.engine.intake.relations.clients import unordered
from icefield.engine.intake.relations.connection import postgres_address
from icefield.engine.intake.relations.dialects import SETTINGS, Postgres
from icefield.engine.intake.relations.digests import Digest
from icefield.errors import DatabaseRefused, MissingPackage, NoDatabase, NoRelation, SourceError

try:
    import psycopg
except ImportError:
    raise MissingPackage(
        "asking Postgres for new rows needs the package psycopg",
        remedy='install it: pip install "icefield[postgres]"',
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from icefield.engine.intake.relations.connection import Connection, PostgresAddress
    from icefield.engine.intake.relations.dialects import Span

#: So many seconds a server may take to accept a connection.
PATIENCE = 5
#: Options of the driver's url that libpq has as well.
_SHARED = ("sslmode", "sslcert", "sslrootcert", "sslkey", "target_session_attrs", "user", "password")
_NUMBERS = ("smallint", "integer", "bigint", "numeric", "oid")
_TIMES = ("timestamp with time zone", "timestamp without time zone")
_REFUSALS = ("authentication", "password", "role ", "pg_hba.conf", "permission denied")
_dialect = Postgres()
logging.getLogger("psycopg").addHandler(logging.NullHandler())


@contextmanager
def connected(connection: Connection) -> Iterator[PostgresClient]:
    """A connection for one look, all of it at the same moment."""
    address = postgres_address(connection.url)
    with _telling(connection), psycopg.connect(**_settings(connection, address)) as db:
        db.isolation_level, db.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
        path = address.options.get("currentSchema")
        for key, value in {**SETTINGS, **({"search_path": path} if path else {})}.items():
            db.execute("SELECT set_config(%s, %s, true)", (key, value))
        yield PostgresClient(db, connection)


def _settings(connection: Connection, address: PostgresAddress) -> dict[str, Any]:
    shared = {key: value for key, value in address.options.items() if key in _SHARED}
    told = {
        "host": address.hosts,
        "port": address.ports,
        "dbname": address.database,
        "user": connection.user,
        "password": connection.password,
        "connect_timeout": PATIENCE,
        "application_name": "icefield",
    }
    return {**shared, **{key: value for key, value in told.items() if value}}


@contextmanager
def _telling(connection: Connection) -> Iterator[None]:
    """Says in our words what went wrong; psycopg's own words may quote the address."""
    try:
        yield
    except psycopg.Error as problem:
        raise _error(problem, connection) from None


def _error(problem: psycopg.Error, connection: Connection) -> SourceError:
    lines = connection.without_secrets(str(problem)).strip().splitlines() or [type(problem).__name__]
    told = lines[-1] if isinstance(problem, psycopg.OperationalError) else lines[0]
    state = problem.sqlstate or ""
    if state[:2] == "28" or state == "42501" or (not state and any(word in told for word in _REFUSALS)):
        remedy = f"check user and password of {connection.section}, and what the user may read"
        return DatabaseRefused(f"Postgres refuses access: {told}", where=connection.where, remedy=remedy)
    if state[:2] == "42":
        remedy = "check the names of the relation and its columns"
        return NoRelation(f"Postgres cannot answer: {told}", where=connection.where, remedy=remedy)
    remedy = f"is Postgres running, and is this its address? It is set in {connection.section}"
    return NoDatabase(f"Postgres does not answer: {told}", where=connection.where, remedy=remedy)


@dataclass(frozen=True, slots=True)
class PostgresClient:
    """One connection."""

    db: psycopg.Connection[Any]
    connection: Connection

    def columns(self, relation: str) -> Sequence[str]:
        """The columns of a table or view."""
        return tuple(self._types(relation))

    def _types(self, relation: str) -> dict[str, str]:
        found = self._all(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            _dialect.relation(relation),
        )
        return dict(found)

    def relations(self) -> Iterable[str]:
        """Tables and views, as they may be named."""
        found = self._all(
            "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN relname ELSE nspname || '.' || relname END"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind IN ('r', 'p', 'v', 'm', 'f')"
            " AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1 LIMIT 1000"
        )
        return [name for (name,) in found]

    def require_ordered(self, relation: str, column: str, kind: str) -> None:
        """Numbers are numbers, days are days, and only times that have a zone tell a moment."""
        found = self._types(relation)[column]
        allowed = (*_TIMES, "date") if kind == "DATE" or kind.startswith("TIMESTAMP") else _NUMBERS
        if found not in allowed:
            raise unordered(relation, column, found, kind, self.connection.where)

    def highest(self, relation: str, span: Span, lag: timedelta | None) -> tuple[str, int]:
        """The highest value of a cursor column, by the server's clock if it has to stay behind; and NULLs."""
        column, name = _dialect.quoted(span.column), _dialect.relation(relation)
        behind = "" if lag is None else f" WHERE {column} <= now() - interval '{lag.total_seconds():.6f} seconds'"
        query = (
            f"SELECT (SELECT max({column})::text FROM {name}{behind}),"
            f" (SELECT count(*) FROM {name} WHERE {column} IS NULL)"
        )
        ((highest, nulls),) = self._all(query)
        return highest or "", int(nulls)

    def count(self, relation: str, span: Span) -> int:
        """How many rows there are in a span."""
        ((found,),) = self._all(f"SELECT count(*) FROM {_dialect.relation(relation)}{_dialect.where(span)}")
        return int(found)

    def digest(self, relation: str, columns: Sequence[str], span: Span) -> Digest:
        """Computed by the server."""
        ((count, total),) = self._all(_dialect.total(relation, columns, _dialect.where(span)))
        return Digest(int(count), int(total))

    def digests(self, relation: str, columns: Sequence[str], span: Span) -> list[int]:
        """The digests of the rows of a span, one by one."""
        query = f"SELECT {_dialect.digest(columns)} FROM {_dialect.relation(relation)}{_dialect.where(span)}"
        return [int(found) for (found,) in self._all(query)]

    @contextmanager
    def snapshot(self) -> Iterator[str]:
        """SQL by which other connections see the very rows that this one sees, as long as it is open."""
        ((found,),) = self._all("SELECT pg_export_snapshot()")
        yield f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{found}'; "

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.db.execute(query.encode(), values or None).fetchall()  # as bytes: it is no literal
