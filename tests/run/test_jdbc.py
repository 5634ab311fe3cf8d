"""Runs over databases: whole relations, rows above a cursor, what is rejected, rebuilt, replayed, and read in parts.

SQLite is asked for news; Derby, which comes with Spark, stands for databases that can only be read.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from databases import BY_TIME, SCHEMA, declared, many, order, orders_in, tables
from icefield import Lake
from icefield.errors import RowsChanged
from icefield.graph.state import Repair
from projects import QUICK, TinyProject

pytestmark = pytest.mark.spark
UNIQUE = ', unique("id")'


def ids(project: TinyProject) -> list[int]:
    return sorted(number for (number,) in project.ask("SELECT id FROM raw.orders"))


def actions(result: Any) -> dict[str, str]:
    return {one.table: one.action for one in result.tables}


def run(project: TinyProject, **order: Any) -> Any:
    """A run, which is to be published."""
    result = project.run(**order)
    assert result.ok, result.error
    return result


def reason(result: Any) -> str:
    return {one.table: one.reason for one in result.tables}["raw.orders"]


def test_a_whole_relation_replaces_what_was_there_and_bad_rows_wait(tmp_path: Path) -> None:
    odd = [(2, "bo", "abc", "2026-08-01"), (3, None, -1, None), (4, "", 0.1, "2026-08-01T10:00:00.5Z")]
    database = orders_in(tmp_path, [order(1), *odd, (5, "xxx", b"\x01", "nothing"), *many(8, 100)])
    project = declared(tmp_path, database.profile)
    run(project)
    rows = project.ask('SELECT id, customer, amount::VARCHAR, "at"::VARCHAR FROM raw.orders WHERE id < 100')
    assert Counter(rows) == Counter(
        [(1, "ann", "1.00", "2026-08-01 10:00:00+00"), (4, "", "0.10", "2026-08-01 10:00:00.5+00")]
    )
    waiting = project.ask("SELECT raw, reasons FROM raw.orders__quarantine ORDER BY raw")
    assert waiting == [
        (b'{"id":"2","customer":"bo","amount":"abc","at":"2026-08-01"}',
         ["malformed: amount is not a valid DECIMAL(10,2)"]),
        (b'{"id":"3","customer":null,"amount":"-1","at":null}', ["amount is positive"]),
        (b'{"id":"5","customer":"xxx","amount":"\\\\x01","at":"nothing"}',
         ["malformed: amount is not a valid DECIMAL(10,2)"]),
    ]  # fmt: skip
    assert project.run().status == "nothing new"
    database.execute("UPDATE orders SET amount = 7 WHERE id = 3", "DELETE FROM orders WHERE id = 1")
    result = project.run()
    assert reason(result) == "orders has changed"
    assert actions(result) == {"raw.orders": "refresh", "gold.by_customer": "update"}, "only what changed is followed"
    assert ids(project) == [3, 4, *range(100, 108)]
    assert project.run().status == "nothing new"
    assert project.ask("SELECT rows, arrival FROM ops.reads ORDER BY taken_at") == [(13, 0), (12, 0)]


def test_rows_above_the_cursor_are_added_and_late_ones_at_it_are_not_lost(tmp_path: Path) -> None:
    database = orders_in(tmp_path, [order(1, 1), order(2, 5), order(2, 5)])
    project = declared(tmp_path, database.profile, options=BY_TIME)
    run(project)
    database.insert([order(3, 5), order(2, 5)])
    assert reason(project.run()) == "2 new rows with at = 2026-08-01 10:00:05 as before"
    assert ids(project) == [1, 2, 2, 2, 3], "one that is equal to two others is a third one"
    assert project.run().status == "nothing new"
    database.insert([order(4, 5), order(5, 9), order(6, 3)])
    assert reason(project.run()) == (
        "1 new row, at up to 2026-08-01 10:00:09; 1 new row with at = 2026-08-01 10:00:05 as before"
    )
    assert ids(project) == [1, 2, 2, 2, 3, 4, 5], "what comes below the cursor is not seen"
    database.execute("UPDATE orders SET amount = 5, at = '2026-08-01 10:01:00' WHERE id = 5")
    run(project)
    assert ids(project) == [1, 2, 2, 2, 3, 4, 5, 5], "each version that was seen"
    assert project.ask("SELECT after, upto, rows, arrival FROM ops.reads ORDER BY arrival") == [
        ("", "2026-08-01 10:00:05", 3, 0),
        ("2026-08-01 10:00:05", "2026-08-01 10:00:05", 2, 1),
        ("2026-08-01 10:00:05", "2026-08-01 10:00:09", 2, 2),
        ("2026-08-01 10:00:09", "2026-08-01 10:01:00", 1, 3),
    ]
    (verdict, _) = Lake(project.root).verify(deep=True)
    assert verdict.status == "not compared"
    told = "8 rows of orders with at up to 2026-08-01 10:01:00 were taken in, and the database has others now"
    assert verdict.detail.endswith(told)


def test_incremental_equals_full_and_a_rebuild_keeps_when_rows_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = orders_in(tmp_path, [order(1, 1), order(2, 5, customer="zoe")])
    project = declared(tmp_path, database.profile, options=BY_TIME, checks=UNIQUE)
    run(project)
    database.insert([order(2, 5, customer="ann"), order(3, 7, amount="?")])
    for point in ("stage.landed", "publish.before-commit"):
        monkeypatch.setenv("ICEFIELD_FAILPOINTS", f"{point}=raise")
        assert not project.run().ok
        monkeypatch.delenv("ICEFIELD_FAILPOINTS")
    run(project)
    database.insert([order(1, 8, customer="late"), order(4, 9), order(4, 9)])
    run(project)
    came = "SELECT id, customer, ingested_at::VARCHAR FROM raw.orders"
    before, times = project.everything(), Counter(project.ask(came))
    assert sorted((number, who) for number, who, _ in times) == [(1, "ann"), (2, "zoe"), (4, "ann")]
    assert len({time for _, _, time in times}) == 2
    assert {verdict.status for verdict in Lake(project.root).verify(deep=True)} == {"exact"}
    run(project, full_refresh=True)
    assert project.everything() == before
    assert Counter(project.ask(came)) == times
    database.execute("ALTER TABLE orders ADD COLUMN nr TEXT")
    wider = SCHEMA.replace(", at", ", nr STRING, at")
    project.declare(tables(options=BY_TIME, checks=UNIQUE, schema=wider), more=database.profile)
    assert actions(project.run()) == {"raw.orders": "rebuild", "gold.by_customer": "rebuild"}
    assert Counter(project.ask(came)) == times
    assert project.run().status == "nothing new"


def test_a_rebuild_stops_where_the_database_no_longer_has_what_was_taken_in(tmp_path: Path) -> None:
    database = orders_in(tmp_path, [order(1, 1), order(2, 5)])
    project = declared(tmp_path, database.profile, options=BY_TIME)
    run(project)
    database.execute("UPDATE orders SET amount = 9, at = '2026-08-01 11:00:00' WHERE id = 1")
    run(project)
    project.declare(tables(options=BY_TIME, code=".where('id > 0')"), more=database.profile)
    told = r"3 rows of orders with at up to .* were taken in, and the database has 2 now"
    with pytest.raises(RowsChanged, match=told):
        project.run()
    assert ids(project) == [1, 1, 2]
    run(project, accept=("raw.orders",))
    assert ids(project) == [1, 1, 2]
    with pytest.raises(RowsChanged, match=told):
        project.run(full_refresh=True)
    run(project, full_refresh=True, accept=("raw.orders",))
    assert ids(project) == [1, 2]
    database.insert([order(3, 5000)])
    assert actions(project.run())["raw.orders"] == "append"
    run(project, full_refresh=True)
    assert ids(project) == [1, 2, 3]


@pytest.mark.parametrize("options", [BY_TIME, ""], ids=["by cursor", "whole"])
def test_a_repair_is_remembered(tmp_path: Path, options: str) -> None:
    database = orders_in(tmp_path, [order(1, 1), order(2, 5, amount=-7), order(3, 6, amount=-8)])
    project = declared(tmp_path, database.profile, options=options)
    run(project)
    database.insert([order(4, 9)])
    repair = Repair(table="raw.orders", kind="replay", where="id = 2", assign=(("amount", "abs(amount)"),))
    assert run(project, replay=("raw.orders",), repairs=(repair,)).ok
    if options:
        assert ids(project) == [1, 2], "what has come meanwhile is for another run"
    run(project)
    assert ids(project) == [1, 2, 4]
    run(project, full_refresh=True)
    assert ids(project) == [1, 2, 4]
    assert project.ask("SELECT id FROM raw.orders__quarantine") == [(3,)]


def test_connections_share_the_rows_by_a_column(tmp_path: Path) -> None:
    database = orders_in(tmp_path, many(40))
    project = declared(tmp_path, database.profile, options='partitions=4, partition_by="id", ', checks=UNIQUE)
    run(project)
    assert ids(project) == list(range(40))
    database.insert([order(7, 99)])
    run(project)
    assert ids(project) == list(range(40))
    assert project.ask("SELECT count(*) FROM raw.orders__quarantine") == [(1,)]
    project.declare(tables(options=BY_TIME + "partitions=3, "), more=database.profile)
    run(project)
    database.insert([*many(20, 200), order(999, 219)])
    run(project)
    assert ids(project) == sorted([*range(40), 7, *range(200, 220), 999])


def test_a_database_that_cannot_be_asked_is_read_at_every_run(tmp_path: Path) -> None:
    from icefield.engine.session.spark import start_session

    spark = start_session(app="derby", conf=QUICK, log=tmp_path / "spark.log")
    url = f"jdbc:derby:{tmp_path}/derby"

    def insert(*rows: tuple[Any, ...]) -> None:
        frame = spark.createDataFrame(
            [(n, c, str(a), t) for n, c, a, t in rows], "id INT, customer STRING, a STRING, t STRING"
        )
        typed = frame.selectExpr("id", "customer", "CAST(a AS DECIMAL(12,3)) AS amount", "CAST(t AS TIMESTAMP) AS at")
        typed.write.jdbc(f"{url};create=true", "orders", mode="append")

    insert(order(1, 1), order(2, 5), order(3, 5, amount="0.125"))
    profile = f'[profile.local.jdbc.default]\nurl = "{url}"\n'
    whole, above = declared(tmp_path / "a", profile), declared(tmp_path / "b", profile, options=BY_TIME)
    assert whole.run().ok
    assert above.run().ok
    assert ids(whole) == ids(above) == [1, 2]
    for project in (whole, above):
        assert project.ask("SELECT reasons FROM raw.orders__quarantine") == [
            (["malformed: amount is not a valid DECIMAL(10,2)"],)
        ]
        again = project.run()
        assert {one.table: one.rows_added for one in again.tables} == {"raw.orders": 0, "gold.by_customer": 0}
    insert(order(4, 5), order(5, 9), order(6, 1))
    whole.run()
    above.run()
    assert ids(whole) == [1, 2, 4, 5, 6]
    assert ids(above) == [1, 2, 4, 5]
    failed = above.run(full_refresh=True)
    assert (
        "5 rows of orders with at up to 2026-08-01 10:00:09 were taken in, and the database has 6 now" in failed.error
    )
