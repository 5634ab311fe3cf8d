"""What has come to relations of a real SQLite database, compared with a cursor, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from databases import SCHEMA, SqliteFile, order, orders_in
from icefield.declare import Jdbc, jdbc
from icefield.engine.intake.relations import news as rules
from icefield.engine.intake.relations.clients import open_client
from icefield.engine.intake.relations.connection import Connection, named, postgres_address
from icefield.engine.intake.relations.dialects import Postgres, Span
from icefield.engine.intake.relations.digests import Digest
from icefield.engine.intake.relations.news import Memory, compared, fresh, relation_news, unsure_news
from icefield.engine.intake.relations.reading import driver_problem
from icefield.errors import DatabaseRefused, NoDatabase, NoDriver, NoRelation, WrongCursor
from icefield.graph.news import RelationCursor, RelationNews, cursor_json, packed, parse_cursor, unpacked


def source(cursor: str | None = "at", **options: Any) -> Jdbc:
    found = jdbc(options.pop("relation", "orders"), schema=options.pop("schema", SCHEMA), cursor=cursor, **options)
    assert isinstance(found, Jdbc)
    return found


def connection(database: SqliteFile, **other: Any) -> Connection:
    told = {"name": "default", "profile": "local", "root": database.path.parent, "url": "jdbc:sqlite:shop.db", **other}
    return Connection(**told)


def look(
    database: SqliteFile, known: RelationCursor | None = None, ties: Sequence[int] = (), **options: Any
) -> RelationNews:
    memory = Memory(next_arrival=lambda: 7, ties=lambda _: ties)
    with open_client(connection(database)) as client:
        return relation_news(source(**options), client, known, memory, "here")


def taken(database: SqliteFile, news: RelationNews) -> tuple[RelationCursor, list[int]]:
    """The cursor once everything that the news tell of was read, and the rows at its value."""
    columns, kind = news.cursor.columns, "TIMESTAMP"
    with open_client(connection(database)) as client:
        rows = client.digest("orders", columns, Span("at", kind, upto=news.upto))
        ties = client.digests("orders", columns, Span.at("at", kind, news.upto))
    tied = Digest.of(ties)
    return replace(
        news.cursor, count=rows.count, digest=rows.text, value=news.upto, arrivals=news.cursor.arrivals + 1,
        tied=tied.count, tied_digest=tied.text,
    ), ties  # fmt: skip


def test_a_whole_relation_is_new_when_any_row_of_it_is_another_one(tmp_path: Path) -> None:
    database = orders_in(tmp_path, [order(1), order(2)])
    first = look(database, cursor=None)
    assert (first.rows, first.replaced, first.is_whole) == (2, False, True)
    assert not look(database, first.cursor, cursor=None).replaced
    database.execute("DELETE FROM orders WHERE id = 1")
    database.insert([order(1)])
    assert not look(database, first.cursor, cursor=None).replaced, "the order of rows means nothing"
    for change in ("UPDATE orders SET customer = NULL WHERE id = 1", "UPDATE orders SET customer = '' WHERE id = 1",
                   "INSERT INTO orders SELECT * FROM orders", "DELETE FROM orders"):  # fmt: skip
        before = look(database, cursor=None).cursor
        database.execute(change)
        assert look(database, before, cursor=None).replaced, change


def test_a_cursor_survives_as_text() -> None:
    cursor = RelationCursor(count=3, digest="ff", columns=("a", "b"), column="a", value="1", tied=1, arrivals=2)
    assert parse_cursor(cursor_json(cursor)) == cursor
    assert parse_cursor(cursor_json(RelationCursor())) == RelationCursor()
    assert unpacked(packed([0, 5, 2**60 - 1])) == (0, 5, 2**60 - 1)


def test_rows_above_the_cursor_are_new_up_to_the_highest_value(tmp_path: Path) -> None:
    database = orders_in(tmp_path)
    assert look(database).upto == ""
    database.insert([order(1, 1), order(2, 2)])
    first = look(database)
    assert (first.rows, first.upto, first.cursor.first) == (2, "2026-08-01 10:00:02", 7)
    cursor, ties = taken(database, first)
    assert look(database, cursor) == RelationNews(cursor=cursor, upto=cursor.value)
    database.insert([order(3, 1), order(4, 3), order(5, 9)])
    later = look(database, cursor, ties)
    assert (later.rows, later.late, later.upto) == (2, 0, "2026-08-01 10:00:09")
    assert look(database, cursor, cursor="id", lag=None).cursor.value == "", "another column begins anew"


def test_rows_that_share_the_last_value_and_come_later_are_late(tmp_path: Path) -> None:
    database = orders_in(tmp_path, [order(1, 1), order(2, 2), order(2, 2)])
    cursor, ties = taken(database, look(database))
    database.insert([order(2, 2), order(3, 2)])
    assert look(database, cursor, ties).late == 2, "also one that is equal to two others"
    database.execute("DELETE FROM orders WHERE id = 2")
    assert look(database, cursor, ties).late == 1, "rows that went are no news"


def test_where_the_rows_at_the_last_value_are_too_many_to_be_remembered_more_of_them_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "TIES", 1)
    database = orders_in(tmp_path, [order(1, 2), order(2, 2)])
    cursor, _ = taken(database, look(database))
    database.execute("UPDATE orders SET at = '2026-08-01 12:00:00' WHERE id = 1")
    assert not look(database, cursor).unclear
    database.insert([order(3, 2), order(4, 2)])
    news = look(database, cursor)
    assert news.unclear.startswith("1 row came with at = 2026-08-01 10:00:02 after 2 of them had been taken in")
    assert not look(database, news.cursor).unclear, "once it was accepted"


def test_a_rebuild_needs_all_rows_that_were_taken_in_as_they_were(tmp_path: Path) -> None:
    database = orders_in(tmp_path, [order(1, 1), order(2, 2)])
    cursor, ties = taken(database, look(database))

    def gone(**options: Any) -> str:
        memory = Memory(ties=lambda _: ties)
        with open_client(connection(database)) as client:
            return compared(source(**options), client, cursor, memory, RelationNews(cursor=cursor)).gone

    database.insert([order(3, 2), order(4, 3)])
    assert gone() == "", "late rows and newer ones are no difference"
    assert gone(cursor="id") == ""
    database.execute("UPDATE orders SET customer = 'bo' WHERE id = 1")
    assert gone() == "2 rows of orders with at up to 2026-08-01 10:00:02 were taken in, and the database has others now"
    database.execute("DELETE FROM orders WHERE id = 1")
    assert gone().endswith("and the database has 1 now")
    database.execute("ALTER TABLE orders DROP COLUMN customer")
    assert gone(schema="id BIGINT, at TIMESTAMP") == "orders no longer has the column customer"


@pytest.mark.parametrize(
    ("rows", "options", "told"),
    [
        ([(1, "a", 1, None), (2, "b", 1, None)], {}, "2 rows of orders have NULL in the cursor column at"),
        ([(1, "a", 1, "soon")], {}, "the highest value of the cursor column at of orders is 'soon'"),
        ([(1, "a", 1, 17)], {}, "at of orders is integer in the database, which is not ordered as TIMESTAMP"),
        ([("x", "a", 1, None)], {"cursor": "id"}, "id of orders is text in the database"),
        ([(1, "a", 2.5, None)], {"cursor": "amount"}, "amount of orders is real in the database"),
    ],
)
def test_a_cursor_column_by_which_rows_cannot_be_followed_is_refused(
    tmp_path: Path, rows: list[Any], options: dict[str, Any], told: str
) -> None:
    database = orders_in(tmp_path)
    database.execute("DROP TABLE orders", "CREATE TABLE orders (id, customer, amount, at)")
    database.insert(rows)
    with pytest.raises(WrongCursor, match=told):
        look(database, **options)


def test_lag_stays_behind_the_clock(tmp_path: Path) -> None:
    now = datetime.now().astimezone().astimezone(tz=None)
    utc = datetime.fromtimestamp(now.timestamp(), tz=None) - (now.utcoffset() or timedelta())
    rows = [(n, "a", 1, f"{utc - timedelta(minutes=ago):%Y-%m-%d %H:%M:%S}") for n, ago in enumerate([60, 20, 1])]
    database = orders_in(tmp_path, rows)
    assert look(database, lag=timedelta(minutes=10)).rows == 2
    assert look(database, lag=timedelta(minutes=40)).rows == 1
    assert look(database, lag=timedelta(hours=5)).rows == 0


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    database = orders_in(tmp_path)
    with pytest.raises(NoRelation, match="no table or view order") as told:
        look(database, relation="order")
    assert "did you mean `orders`" in told.value.remedy
    with pytest.raises(NoRelation, match="orders has no column custom"):
        look(database, schema="id BIGINT, custom STRING, at TIMESTAMP")
    database.path.unlink()
    with pytest.raises(NoDatabase, match="does not exist") as absent:
        look(database)
    assert "[profile.local.jdbc.default]" in absent.value.where
    with pytest.raises(NoDatabase, match=r"no database `shop`, from which raw\.orders is read"):
        named((), "shop", "local", "raw.orders")
    with pytest.raises(NoDriver, match=r"db2\.jar does not exist"):
        _ = connection(database, url="jdbc:db2://h/d", jars=(tmp_path / "db2.jar",)).needed


def test_news_of_databases_that_cannot_be_asked_are_found_by_reading() -> None:
    assert unsure_news(source(None), None, Memory()).unsure
    news = unsure_news(source(), fresh(source(), 3), Memory())
    assert (news.unsure, news.cursor.arrivals) == (True, 3)


# --- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "hosts", "ports", "database"),
    [
        ("jdbc:postgresql://db.example:5433/shop?sslmode=require", "db.example", "5433", "shop"),
        ("jdbc:postgresql://a,b:6000/shop%20x", "a,b", "5432,6000", "shop x"),
        ("jdbc:postgresql://[::1]/shop", "::1", "5432", "shop"),
        ("jdbc:postgresql:shop", "localhost", "5432", "shop"),
    ],
)
def test_an_address_of_postgres_is_understood(url: str, hosts: str, ports: str, database: str) -> None:
    found = postgres_address(url)
    assert (found.hosts, found.ports, found.database) == (hosts, ports, database)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://h:1/d?user=u&password=c4n4ry", "postgresql://h:1/d"),
        ("jdbc:sqlserver://h:1;databaseName=d;password=c4n4ry", "sqlserver://h:1"),
        ("jdbc:mysql://u:c4n4ry@h/d", "mysql://h/d"),
    ],
)
def test_secrets_of_an_address_are_never_shown(tmp_path: Path, url: str, shown: str) -> None:
    one = connection(SqliteFile(tmp_path / "x"), url=url, password="c4n4ry-too")
    assert one.address == shown
    said = f"java.sql.SQLException: cannot open {url} with password=c4n4ry-too or c4n4ry-too"
    assert "c4n4ry" not in f"{one!r} {one.where} {one.without_secrets(said)} {driver_problem(said, one)}"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (": java.sql.SQLException: No suitable driver\n\tat java.sql", NoDriver),
        (": java.lang.ClassNotFoundException: a.b.C", NoDriver),
        (": java.sql.SQLException: Access denied for user 'x'", DatabaseRefused),
        (": org.apache.spark.SparkException: [JDBC_EXTERNAL_ENGINE_SYNTAX_ERROR.X] Table 'NOPE' does not", NoRelation),
        (": java.sql.SQLNonTransientConnectionException: Communications link failure", NoDatabase),
    ],
)
def test_what_a_driver_says_is_told_by_kind(tmp_path: Path, said: str, kind: type[Exception]) -> None:
    assert type(driver_problem(said, connection(SqliteFile(tmp_path / "x"), url="jdbc:x://h"))) is kind
    assert driver_problem("java.io.IOException: No space left on device", connection(SqliteFile(tmp_path))) is None


def test_names_and_values_are_quoted() -> None:
    span = Span('a"b', "TIMESTAMP", after="x'y", upto="z", tied=True)
    assert Postgres().relation('public.a"b') == '"public"."a""b"'
    assert Postgres().where(span) == """ WHERE "a""b" >= 'x''y' AND "a""b" <= 'z'"""
