"""Relations of a real Postgres: what is read of them, by one connection and by several, and what problems say."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from databases import declared, tables
from icefield.declare import Jdbc, jdbc
from icefield.engine.intake.relations.clients import open_client
from icefield.engine.intake.relations.connection import Connection
from icefield.engine.intake.relations.news import Memory, relation_news
from icefield.errors import DatabaseRefused, NoDatabase, NoRelation, RowsChanged, WrongCursor
from projects import TinyProject
from servers import Postgres

pytestmark = pytest.mark.services

CANARY = "c4n4ry-p4ssw0rd"
SCHEMA = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"
BY_TIME = 'cursor="at", '


KINDS = """
CREATE TABLE kinds (
    id INT, price NUMERIC, day DATE, at TIMESTAMP, moment TIMESTAMPTZ, ratio FLOAT8, raw BYTEA, doc JSONB, parts TEXT[],
    code CHAR(4), flag BOOLEAN, "Odd name" UUID
);
INSERT INTO kinds VALUES
    (1, 12345678901234567890.123456789, '2026-08-01', '2026-08-01 10:00:00.123456', '2026-08-01 12:00:00.5+02',
     0.1::float8 + 0.2::float8, '\\x00ff', '{"a": [1, 2]}', '{x,"y z"}', 'ab', true,
     '00000000-0000-0000-0000-000000000001');
INSERT INTO kinds VALUES (2), (3);
UPDATE kinds SET price = 1, day = 'infinity', at = 'infinity', moment = '-infinity', ratio = 'NaN' WHERE id = 3
"""


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """A database of its own, with a table of orders that a user with a password of its own may read."""
    name = f"t{uuid.uuid4().hex[:12]}"
    postgres.execute(f"CREATE DATABASE {name}")
    postgres.execute(
        f"CREATE ROLE {name} LOGIN PASSWORD '{CANARY}';"
        "CREATE TABLE orders (id BIGINT, customer TEXT, amount NUMERIC, at TIMESTAMPTZ);"
        "CREATE INDEX ON orders (at);"
        f"GRANT SELECT ON orders TO {name}",
        name,
    )
    yield name
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")
    postgres.execute(f"DROP ROLE {name}")


def profile(postgres: Postgres, database: str) -> str:
    os.environ["ORDERS_PASSWORD"] = CANARY
    return (
        f'[profile.local.jdbc.default]\nurl = "{postgres.jdbc_url(database)}"\nuser = "{database}"\n'
        'password = "${env:ORDERS_PASSWORD}"\n'
    )


def insert(postgres: Postgres, database: str, *rows: tuple[int, int, Any]) -> None:
    """Orders by number, second and amount."""
    values = ", ".join(
        f"({n}, 'c{n % 5}', {a}, '2026-08-01 10:00Z'::timestamptz + {s} * interval '1s')" for n, s, a in rows
    )
    postgres.execute(f"INSERT INTO orders VALUES {values}", database)


def ids(project: TinyProject) -> list[int]:
    return sorted(number for (number,) in project.ask("SELECT id FROM raw.orders"))


def run(project: TinyProject, **order: Any) -> Any:
    result = project.run(**order)
    assert result.ok, result.error
    return result


def traces(project: TinyProject, secret: str) -> list[Path]:
    """Files of a project, its lake and its runs in which a secret is."""
    files = [path for path in project.root.rglob("*") if path.is_file()]
    return [path for path in files if secret.encode() in path.read_bytes()]


def test_a_whole_relation_of_any_types_is_read_exactly(postgres: Postgres, database: str, tmp_path: Path) -> None:
    insert(
        postgres,
        database,
        (1, 1, "1.5"),
        (2, 2, "'NaN'"),
        (3, 3, "-1"),
        (4, 4, "1.505"),
        *((n, n, 1) for n in range(9, 30)),
    )
    postgres.execute(KINDS, database)
    postgres.execute(f"GRANT SELECT ON kinds TO {database}", database)
    more = """

@table("raw.kinds", source=jdbc("public.kinds", schema="id INT, price DECIMAL(38,9), day DATE, at TIMESTAMP_NTZ,"
       " moment TIMESTAMP, ratio DOUBLE, raw BINARY, doc STRUCT<a: ARRAY<INT>>, parts STRING, code STRING,"
       " flag BOOLEAN, `Odd name` STRING"))
def kinds(rows):
    return rows
"""
    project = declared(tmp_path, profile(postgres, database))
    project.declare(tables() + more, more=profile(postgres, database))
    run(project)
    assert ids(project) == [1, *range(9, 30)]
    waiting = project.ask("SELECT raw, reasons[1] FROM raw.orders__quarantine")
    assert Counter((json.loads(raw)["amount"], why) for raw, why in waiting) == Counter(
        [("NaN", "malformed: amount is not a valid DECIMAL(10,2)"), ("-1", "amount is positive"),
         ("1.505", "malformed: amount is not a valid DECIMAL(10,2)")]
    )  # fmt: skip
    (row, empty) = project.ask(
        'SELECT id, price::VARCHAR, day::VARCHAR, "at"::VARCHAR, moment::VARCHAR, ratio, raw, doc.a, parts, code, flag,'
        ' "Odd name" FROM raw.kinds ORDER BY id'
    )
    assert row == (
        1, "12345678901234567890.123456789", "2026-08-01", "2026-08-01 10:00:00.123456", "2026-08-01 10:00:00.5+00",
        0.1 + 0.2, b"\x00\xff", [1, 2], '{x,"y z"}', "ab", True, "00000000-0000-0000-0000-000000000001",
    )  # fmt: skip
    assert empty == (2, *[None] * 11)
    assert project.ask("SELECT reasons FROM raw.kinds__quarantine") == [(["malformed: day is not a valid DATE"],)]
    assert project.run().status == "nothing new"
    postgres.execute("UPDATE orders SET amount = 2 WHERE id = 9; DELETE FROM orders WHERE id = 1", database)
    result = run(project)
    assert {one.table: one.action for one in result.tables}["raw.orders"] == "refresh"
    assert ids(project) == list(range(9, 30))
    assert project.run().status == "nothing new"
    assert traces(project, CANARY) == []


def test_rows_above_the_cursor_are_taken_in_once_over_ties_crashes_and_rebuilds(
    postgres: Postgres, database: str, tmp_path: Path
) -> None:
    insert(postgres, database, (1, 1, 1), (2, 5, 1), (2, 5, 1))
    project = declared(tmp_path, profile(postgres, database), options=BY_TIME + "partitions=3, ")
    run(project)
    insert(postgres, database, (3, 5, 1), (2, 5, 1), (4, 9, -1), (5, 12, 1))
    for point in ("stage.landed", "ops.appended", "publish.before-commit"):
        assert project.spawn(f"{point}=kill").end().killed
    run(project)
    assert ids(project) == [1, 2, 2, 2, 3, 5]
    insert(postgres, database, *((n, n, 1) for n in range(20, 60)))
    run(project)
    before = project.everything()
    assert project.run().status == "nothing new"
    run(project, full_refresh=True)
    assert project.everything() == before
    postgres.execute("UPDATE orders SET amount = 3, at = '2026-08-01 12:00Z' WHERE id = 20", database)
    run(project)
    assert ids(project).count(20) == 2
    with pytest.raises(RowsChanged, match="were taken in, and the database has 47 now"):
        project.run(full_refresh=True)
    assert traces(project, CANARY) == []


def test_several_connections_read_the_rows_of_one_moment(postgres: Postgres, database: str, tmp_path: Path) -> None:
    for first in (0, 1000):  # psql takes so many rows at once
        insert(postgres, database, *((n, n, 1) for n in range(first, first + 1000)))
    project = declared(tmp_path, profile(postgres, database), options='partitions=4, partition_by="id", ')
    run(project)
    assert ids(project) == list(range(2000))
    # While the rows are read, a transfer moves a unit from the last order to the first again and again.
    transfer = "UPDATE orders SET amount = amount + CASE id WHEN 0 THEN 1 ELSE -1 END WHERE id IN (0, 1999)"
    postgres.execute("UPDATE orders SET amount = 100000 WHERE id IN (0, 1999)", database)
    moving = _Moving(postgres, database, f"DO $$ BEGIN LOOP {transfer}; COMMIT; END LOOP; END $$")
    try:
        for _ in range(2):
            run(project)
            assert project.ask("SELECT sum(amount) FROM raw.orders") == [(200_000 + 1998,)]
    finally:
        moving.end()


class _Moving:
    """A statement that does not end by itself, on a connection of its own."""

    def __init__(self, postgres: Postgres, database: str, statement: str) -> None:
        import threading

        import psycopg

        self._postgres, self._database = postgres, database
        connection = psycopg.connect(postgres.url(database), autocommit=True)
        self._pid = connection.info.backend_pid

        def work() -> None:
            with connection:
                try:
                    connection.execute(statement.encode())
                except psycopg.OperationalError:
                    return

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def end(self) -> None:
        self._postgres.execute(f"SELECT pg_cancel_backend({self._pid})", self._database)
        self._thread.join(30)


# --- what goes wrong ---------------------------------------------------------------------------------------------


def source(**options: Any) -> Jdbc:
    found = jdbc(options.pop("relation", "orders"), schema=options.pop("schema", SCHEMA), **options)
    assert isinstance(found, Jdbc)
    return found


def look(postgres: Postgres, database: str, url: str = "", password: str = CANARY, **options: Any) -> Any:
    connection = Connection(
        name="default", profile="local", root=Path(), url=url or postgres.jdbc_url(database), user=database,
        password=password,
    )  # fmt: skip
    with open_client(connection) as client:
        return relation_news(source(**options), client, None, Memory(), "here")


def test_problems_are_named_within_seconds_and_without_the_password(postgres: Postgres, database: str) -> None:
    begun = time.monotonic()
    postgres.execute("CREATE TABLE secrets (id BIGINT); CREATE TABLE texts (id TEXT, at TIMESTAMPTZ)", database)
    postgres.execute(f"INSERT INTO texts VALUES ('1', 'infinity'); GRANT SELECT ON texts TO {database}", database)
    silent = "jdbc:postgresql://127.0.0.1:9/shop"
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (NoDatabase, "Postgres does not answer", {"url": silent}),
        (NoDatabase, "nowhere", {"url": postgres.jdbc_url("nowhere")}),
        (DatabaseRefused, "password authentication failed", {"password": f"wrong-{CANARY}"}),
        (DatabaseRefused, "permission denied", {"relation": "secrets", "schema": "id BIGINT"}),
        (NoRelation, "no table or view order", {"relation": "order"}),
        (NoRelation, "orders has no column price", {"schema": "id BIGINT, price STRING"}),
        (WrongCursor, "id of texts is text in the database", {"relation": "texts", "schema": "id INT", "cursor": "id"}),
        (WrongCursor, "'infinity', which is not a valid", {"relation": "texts", "schema": "at DATE", "cursor": "at"}),
    ]
    for kind, told, options in cases:
        with pytest.raises(kind, match=told) as problem:
            look(postgres, database, **options)
        assert CANARY not in f"{problem.value} {problem.value.__cause__!r} {problem.value.__context__!r}", told
    assert time.monotonic() - begun < 20
    assert look(postgres, database, url=f"{postgres.jdbc_url(database)}?currentSchema=public&sslmode=prefer").rows == 0


def test_a_server_that_goes_stops_the_run_and_the_next_one_just_works(
    postgres: Postgres, database: str, tmp_path: Path
) -> None:
    insert(postgres, database, (1, 1, 1))
    project = declared(tmp_path, profile(postgres, database), options=BY_TIME)
    run(project)
    insert(postgres, database, (2, 2, 1))
    postgres.kill()
    try:
        with pytest.raises(NoDatabase, match="Postgres does not answer"):
            project.run()
    finally:
        postgres.start()
    run(project)
    assert ids(project) == [1, 2]
