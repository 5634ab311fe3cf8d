"""A decision about quarantine is about the rows that waited then: never about rows that come to wait later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from icefield.errors import OriginLost
from icefield.graph.state import Repair
from icefield.lake.catalog import LAKE
from icefield.run.replaying import Replaying
from projects import ORDERS, TinyProject, order, tiny

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

TABLE = "bronze.orders"
BRONZE = ORDERS.partition('@table("silver')[0]
BAD = order(2, "bob", "-2.00")


def discard(project: TinyProject, where: str = "true", table: str = TABLE) -> Any:
    repair = Repair(table=table, kind="discard", where=where, reason="a test")
    return project.run(select=f"{table}+", replay=(table,), repairs=(repair,))


def replay(project: TinyProject, where: str, **assign: str) -> Any:
    repair = Repair(table=TABLE, kind="replay", where=where, assign=tuple(assign.items()))
    return project.run(select=f"{TABLE}+", replay=(TABLE,), repairs=(repair,))


def waiting(project: TinyProject) -> list[tuple[int, int]]:
    """Where the rows come from that wait: arrival and line."""
    return project.ask("SELECT arrival, line FROM bronze.orders__quarantine ORDER BY ALL")


def ids(project: TinyProject) -> list[int]:
    return [number for (number,) in project.ask("SELECT id FROM bronze.orders ORDER BY id")]


def require_rebuild_gives_the_same(project: TinyProject) -> None:
    before = project.everything()
    project.run(full_refresh=True)
    assert project.everything() == before


def landed(root: Path, source: str = BRONZE) -> TinyProject:
    """A project where line 3 of the first file waits."""
    project = tiny(root, source)
    project.land("1.csv", [order(1), BAD])
    project.run()
    assert waiting(project) == [(0, 3)]
    return project


@pytest.mark.parametrize("where", ["true", "line = 3", "amount < 0"])
def test_a_discard_does_not_let_go_of_rows_that_arrive_later(tmp_path: Path, where: str) -> None:
    project = landed(tmp_path)
    result = discard(project, where)
    assert [(one.kind, one.matched, one.moved) for one in result.replayed] == [("discard", 1, 1)]
    assert waiting(project) == []
    project.land("2.csv", [order(3), order(4, "eve", "-4.00")])
    project.run()
    assert waiting(project) == [(1, 3)]
    require_rebuild_gives_the_same(project)


def test_what_was_decided_about_a_table_that_was_dropped_no_longer_counts(tmp_path: Path) -> None:
    project = landed(tmp_path)
    discard(project)
    lake = project.lake
    catalog = SqlCatalog(LAKE, uri=f"sqlite:///{lake.catalog.path}", warehouse=str(lake.warehouse))
    catalog.drop_table(TABLE)
    catalog.close()
    project.run()
    assert waiting(project) == [(1, 3)]
    replay(project, "amount < 0", amount="abs(amount)")
    assert ids(project) == [1, 2]
    assert project.ask("SELECT number, kind FROM ops.repairs ORDER BY ALL") == [(1, "discard"), (2, "replay")]
    require_rebuild_gives_the_same(project)


def test_rows_that_arrive_in_the_very_run_of_a_discard_wait(tmp_path: Path) -> None:
    project = landed(tmp_path)
    project.land("2.csv", [order(3), order(4, "eve", "-4.00")])
    discard(project)
    assert waiting(project) == [(1, 3)]
    assert ids(project) == [1, 3]


def test_a_repair_is_not_applied_to_rows_that_arrive_later(tmp_path: Path) -> None:
    project = landed(tmp_path)
    replay(project, "amount < 0", amount="abs(amount)")
    project.land("2.csv", [order(4, "eve", "-4.00")])
    project.run()
    assert waiting(project) == [(1, 2)]
    assert ids(project) == [1, 2]
    require_rebuild_gives_the_same(project)


def test_rows_that_a_new_check_takes_out_are_not_among_those_discarded_before(tmp_path: Path) -> None:
    project = landed(tmp_path)
    discard(project)
    project.declare(BRONZE.replace("amount > 0", "amount > 5"))
    project.run()
    assert waiting(project) == [(0, 2)]
    assert ids(project) == []


def test_a_correction_brings_other_rows_than_those_discarded(tmp_path: Path) -> None:
    project = landed(tmp_path, BRONZE.replace('at TIMESTAMP")', 'at TIMESTAMP", changed="replace")'))
    discard(project)
    project.land("1.csv", [order(1), order(7, "eve", "-70.00")])
    project.run()
    assert waiting(project) == [(0, 3)]
    require_rebuild_gives_the_same(project)


def test_decisions_in_turn_hold_together(tmp_path: Path) -> None:
    project = tiny(tmp_path, BRONZE)
    project.land("1.csv", [order(1, "ann", "-1.00"), order(2, "", "-2.00"), order(3, "bob", "-3.00")])
    project.run()
    replay(project, "amount < 0", amount="abs(amount)")
    assert (ids(project), waiting(project)) == ([1, 3], [(0, 3)])
    result = replay(project, "amount = -2", customer="'eve'")
    assert [(one.matched, one.moved, one.waiting) for one in result.replayed] == [(1, 1, 0)]
    assert (ids(project), waiting(project)) == ([1, 2, 3], [])
    assert project.ask("SELECT number, kind FROM ops.repairs ORDER BY ALL") == [(1, "replay"), (2, "replay")]
    require_rebuild_gives_the_same(project)


RENAMED = BRONZE.replace("return rows", 'return rows.withColumnRenamed("amount", "paid")').replace(
    "amount > 0", "paid > 0"
)
A_DATE = """return rows.withColumns({"amount": F.expr("date'2026-01-01'"), "bad": F.col("amount") < 0})"""
DATED = BRONZE.replace("return rows", A_DATE).replace("amount > 0", "NOT bad")


@pytest.mark.parametrize(
    ("where", "assign", "other"),
    [
        ("true", {"amount": "abs(amount)"}, RENAMED),
        ("amount < 0", {"customer": "'eve'", "amount": "1"}, RENAMED),
        ("true", {"amount": "1"}, DATED),
        ("amount < 0", {}, RENAMED),
    ],
    ids=["value", "condition", "type", "discard"],
)
def test_rows_wait_again_where_a_decision_no_longer_fits_the_columns(
    tmp_path: Path, where: str, assign: dict[str, str], other: str
) -> None:
    project = landed(tmp_path)
    if assign:
        replay(project, where, **assign)
    else:
        discard(project, where)
    decided = project.everything()
    project.declare(other)
    result = project.run(full_refresh=True)
    assert "repair 1 no longer matches the columns; its rows stay in quarantine" in result.tables[0].reason
    assert (ids(project), waiting(project)) == ([1], [(0, 3)])
    project.declare(BRONZE)
    assert "repair" not in project.run(full_refresh=True).tables[0].reason
    assert project.everything() == decided


def test_what_no_waiting_row_matches_leaves_no_trace(tmp_path: Path) -> None:
    project = landed(tmp_path)
    before = project.lake.pointers()
    for result in (discard(project, "amount < -100"), replay(project, "id = 77", amount="1")):
        assert (result.status, result.run, result.tables) == ("nothing new", "", ())
        assert [one.matched for one in result.replayed] == [0]
    assert project.lake.pointers() == before


def test_an_empty_quarantine_is_noticed_before_spark_starts(tmp_path: Path) -> None:
    project = tiny(tmp_path, BRONZE)
    project.land("1.csv", [order(1)])
    project.run()
    for result in (discard(project), project.run(select=f"{TABLE}+", replay=(TABLE,))):
        assert result.status == "nothing new"
        assert result.phases == {}


def test_values_cannot_be_set_in_lines_that_cannot_be_read(tmp_path: Path) -> None:
    project = tiny(tmp_path, BRONZE)
    project.land("1.csv", [order(1), "seven,ann,1.00,2026-08-01 10:00:00", BAD])
    project.run()
    before = project.lake.pointers()
    result = replay(project, "line = 3", id="7")
    assert result.status == "nothing new"
    assert [(one.matched, one.unreadable, one.waiting) for one in result.replayed] == [(1, 1, 1)]
    assert project.lake.pointers() == before
    result = replay(project, "true", amount="abs(amount)")
    assert [(one.matched, one.unreadable, one.moved, one.waiting) for one in result.replayed] == [(2, 1, 1, 1)]
    assert [(one.matched, one.moved) for one in discard(project).replayed] == [(1, 1)]
    assert waiting(project) == []
    require_rebuild_gives_the_same(project)


def test_lines_that_cannot_be_read_can_be_discarded_where_the_table_has_no_checks(tmp_path: Path) -> None:
    project = tiny(
        tmp_path,
        BRONZE.replace('checks=[not_null("customer"), unique("id"), expect("amount is positive", "amount > 0")],', ""),
    )
    project.land("1.csv", [order(1), "seven,ann,1.00,2026-08-01 10:00:00"])
    project.run()
    assert discard(project, "amount IS NULL").replayed[0].moved == 1
    assert waiting(project) == []


def test_a_replay_without_a_repair_tells_what_still_waits(tmp_path: Path) -> None:
    project = landed(tmp_path)
    result = project.run(select=f"{TABLE}+", replay=(TABLE,))
    assert [(one.kind, one.matched, one.moved, one.waiting) for one in result.replayed] == [("replay", 1, 0, 1)]
    assert "ops.repairs" not in project.lake.pointers()


def test_a_decision_whose_rows_were_never_noted_is_about_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = landed(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Replaying, "rows", lambda *_: None)
        discard(project)
    assert "ops.repaired" not in project.lake.pointers()
    project.run(full_refresh=True)
    assert waiting(project) == [(0, 3)]
    discard(project)
    assert waiting(project) == []
    assert project.ask("SELECT number, arrival, line FROM ops.repaired") == [(2, 0, 3)]
    require_rebuild_gives_the_same(project)


@pytest.mark.parametrize("lost", ["a table without a source", "a function that selects"])
def test_rows_without_file_and_line_are_not_decided_about(tmp_path: Path, lost: str) -> None:
    checked = 'checks=[expect("not large", "amount < 9")], otherwise="quarantine"'
    if lost == "a table without a source":
        source = ORDERS.replace('"silver.sales", refresh=append()', f'"silver.sales", refresh=append(), {checked}')
        table = "silver.sales"
    else:
        source = BRONZE.replace('not_null("customer"), unique("id"), ', "").replace(
            "    return rows\n", '    return rows.select("id", "customer", "amount", "at")\n'
        )
        table = TABLE
    project = tiny(tmp_path, source)
    project.land("1.csv", [order(1), order(2, "bob", "10.00"), order(3, "bob", "-1.00")])
    project.run()
    with pytest.raises(OriginLost, match=r"1 of the quarantined rows .* have no file and line"):
        discard(project, table=table)


def test_a_check_that_warns_sees_the_values_after_the_repair(tmp_path: Path) -> None:
    warns = 'expect("amount is usual", "amount < 100", otherwise="warn"), expect("amount is positive"'
    project = landed(tmp_path, BRONZE.replace('expect("amount is positive"', warns))
    project.land("9.csv", [order(90, amount="-500.00")])
    project.run()
    assert replay(project, "amount = -500", amount="abs(amount)").status == "published"
    result = project.run(full_refresh=True)
    told = {check.check: (check.status, check.failed_rows) for check in result.checks if check.table == TABLE}
    assert told["amount is usual"] == ("warned", 1)
