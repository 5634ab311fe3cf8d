"""A correction costs what it changes: rows leave by what they came with, and tables below follow that like any change.

Whatever is done this way, a rebuild gives the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icefield.engine.refresh.keys import KeySet
from icefield.engine.refresh.renewal import Renewal
from icefield.graph.state import Repair
from icefield.lake import metadata as meta
from icefield.lake.history import history
from projects import TinyProject, order, tiny

pytestmark = pytest.mark.spark

TABLES = """
from pyspark.sql import DataFrame, functions as F
from icefield import accumulate, append, by_key, expect, files, not_null, table, unique


@table(
    "bronze.orders",
    source=files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP",
                 changed="replace", deleted="withdraw"),
    refresh=append(),
    checks=[not_null("customer"), unique("id"), expect("amount is positive", "amount > 0")],
    otherwise="quarantine",
)
def orders(rows: DataFrame) -> DataFrame:
    return rows.drop("source_line")


@table("silver.sales", refresh=append())
def sales(orders: DataFrame) -> DataFrame:
    return orders.select("customer", "amount", F.to_date("at").alias("day"))


@table("silver.large", refresh=append())
def large(sales: DataFrame) -> DataFrame:
    return sales.where("amount >= 10")


@table("gold.days", refresh=by_key("day"))
def days(sales: DataFrame) -> DataFrame:
    return sales.groupBy("day").agg(F.count_distinct("customer").alias("customers"))


@table("gold.customers", refresh=accumulate("customer", spent="sum", orders="count", most="max"))
def customers(sales: DataFrame) -> DataFrame:
    return sales.groupBy("customer").agg(
        F.sum("amount").alias("spent"), F.count("*").alias("orders"), F.max("amount").alias("most")
    )
"""
#: Enough rows beside those that change: a table of which most changes is built anew.
MANY = [order(100 + n, f"c{n % 5}", f"{n + 1}.00", f"2026-07-{n % 28 + 1:02d} 09:00:00") for n in range(40)]


def begun(root: Path, *days: list[str]) -> TinyProject:
    project = tiny(root, TABLES)
    project.land("0.csv", MANY)
    for number, lines in enumerate(days, 1):
        project.land(f"{number}.csv", lines)
    assert project.run().ok
    return project


def actions(result: Any) -> dict[str, str]:
    assert result.ok, result.error
    return {outcome.table: outcome.action for outcome in result.tables}


def require_same_as_rebuilt(project: TinyProject) -> None:
    before = project.everything()
    assert project.run(full_refresh=True).status == "published"
    after = project.everything()
    assert {name: after[name] for name in after if "__changes" not in name} == {
        name: before[name] for name in before if "__changes" not in name
    }


def waiting(project: TinyProject) -> list[tuple[Any, ...]]:
    return project.ask("SELECT id, line, reasons FROM bronze.orders__quarantine ORDER BY ALL")


FOLLOWED = {
    "bronze.orders": "update", "silver.sales": "update", "silver.large": "update", "gold.days": "update",
    "gold.customers": "update",
}  # fmt: skip


def test_one_corrected_line_changes_what_it_touches(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1, "ann", "5.00"), order(2, "bob", "20.00")], [order(3, "ann", "7.00")])
    project.land("1.csv", [order(1, "ann", "5.00"), order(2, "bob", "2.00")])
    result = project.run()
    assert actions(result) == FOLLOWED
    moved = {one.table: (one.rows_added, one.rows_removed) for one in result.tables}
    assert moved == {
        "bronze.orders": (1, 1), "silver.sales": (1, 1), "silver.large": (0, 1), "gold.days": (0, 0),
        "gold.customers": (1, 1),
    }  # fmt: skip
    assert project.ask("SELECT spent::INT, most::INT FROM gold.customers WHERE customer = 'bob'") == [(2, 2)]
    assert project.run().status == "nothing new"
    require_same_as_rebuilt(project)


def test_equal_rows_leave_as_often_as_they_should(tmp_path: Path) -> None:
    same = [order(n, "ann", "5.00") for n in (1, 2, 3)]
    project = begun(tmp_path, same, [order(4, "ann", "5.00")])
    assert project.ask("SELECT count(*)::INT FROM silver.sales WHERE customer = 'ann'") == [(4,)]
    project.land("1.csv", same[:1])
    assert actions(project.run())["silver.sales"] == "update"
    assert project.ask("SELECT count(*)::INT FROM silver.sales WHERE customer = 'ann'") == [(2,)]
    require_same_as_rebuilt(project)


def test_a_deleted_file_leaves_by_its_name_and_the_version_tells_its_run(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1, "ann", "5.00")], [order(1, "bob", "6.00"), order(2, "bob", "7.00")])
    (tmp_path / "landing/orders/1.csv").unlink()
    result = project.run()
    assert actions(result) == FOLLOWED
    assert project.ask("SELECT id, customer FROM bronze.orders WHERE id < 3 ORDER BY 1") == [(1, "bob"), (2, "bob")]
    (tmp_path / "landing/orders/2.csv").unlink()
    result = project.run()
    assert actions(result) == FOLLOWED
    last = history(meta.load(project.lake.pointers()["bronze.orders"]))[-1]
    assert (last.run, last.rows_added, last.rows_removed) == (result.run, 0, 2)
    require_same_as_rebuilt(project)


def test_a_deleted_file_leaves_with_its_rejected_rows(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1), order(2, "bob", "-2.00"), "no order"], [order(3, "cy", "-1.00")])
    assert len(waiting(project)) == 3
    (tmp_path / "landing/orders/1.csv").unlink()
    assert actions(project.run())["bronze.orders"] == "update"
    assert waiting(project) == [(3, 2, ["amount is positive"])]
    require_same_as_rebuilt(project)


def test_a_row_that_waits_for_a_key_comes_when_the_key_leaves(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1, "ann")], [order(1, "bob")], [order(1, "cy")])
    assert project.ask("SELECT customer FROM bronze.orders WHERE id = 1") == [("ann",)]
    project.land("1.csv", [order(7, "ann")])
    assert actions(project.run())["bronze.orders"] == "update"
    assert project.ask("SELECT customer FROM bronze.orders WHERE id = 1") == [("bob",)], "the first of those who wait"
    assert waiting(project) == [(1, 2, ["id is unique"])]
    require_same_as_rebuilt(project)


def test_a_corrected_row_with_the_key_of_a_later_one_makes_a_rebuild(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1, "ann")], [order(2, "bob")])
    project.land("1.csv", [order(2, "ann")])
    result = project.run()
    told = {one.table: (one.action, one.reason) for one in result.tables}["bronze.orders"]
    assert told[0] == "rebuild"
    assert told[1].endswith("a corrected row has the id of a row that arrived later")
    assert project.ask("SELECT customer FROM bronze.orders WHERE id = 2") == [("ann",)]
    require_same_as_rebuilt(project)


def test_a_corrected_row_with_the_key_of_an_earlier_one_waits(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1, "ann")], [order(2, "bob")])
    project.land("2.csv", [order(1, "bob"), order(3, "bob")])
    assert actions(project.run())["bronze.orders"] == "update"
    assert waiting(project) == [(1, 2, ["id is unique"])]
    require_same_as_rebuilt(project)


def test_corrected_deleted_and_new_files_at_once(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1), order(2)], [order(3)], [order(4, "dee", "40.00")])
    project.land("1.csv", [order(1), order(2, "eve", "99.00"), order(5)])
    (tmp_path / "landing/orders/2.csv").unlink()
    project.land("9.csv", [order(3, "fay"), order(6)])
    assert actions(project.run()) == FOLLOWED
    require_same_as_rebuilt(project)


def test_a_key_that_leaves_goes_to_who_waits_for_it_before_a_new_file(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1, "ann")], [order(1, "bob")])
    (tmp_path / "landing/orders/1.csv").unlink()
    project.land("9.csv", [order(1, "cy")])
    assert project.run().ok
    assert project.ask("SELECT customer FROM bronze.orders WHERE id = 1") == [("bob",)], "it arrived before"
    require_same_as_rebuilt(project)


@pytest.mark.parametrize("how", ["dropped", pytest.param("discarded", marks=pytest.mark.thorough)])
def test_a_row_that_is_gone_comes_back_when_its_key_leaves(tmp_path: Path, how: str) -> None:
    source = TABLES.replace('unique("id")', 'unique("id", otherwise="drop")') if how == "dropped" else TABLES
    project = tiny(tmp_path, source)
    for name, lines in (("0", MANY), ("1", [order(1, "ann")]), ("2", [order(1, "bob")])):
        project.land(f"{name}.csv", lines)
    assert project.run().ok
    if how == "discarded":
        assert project.run(repairs=(Repair(table="bronze.orders", kind="discard", where="id = 1", reason="x"),)).ok
    (tmp_path / "landing/orders/1.csv").unlink()
    assert project.run().ok
    require_same_as_rebuilt(project)


@pytest.mark.parametrize("how", ["deleted", pytest.param("emptied", marks=pytest.mark.thorough)])
def test_a_replay_beside_a_file_that_went_does_both(tmp_path: Path, how: str) -> None:
    project = begun(tmp_path, [order(1, "ann")], [order(2, "bob", "-20.00")])
    if how == "deleted":
        (tmp_path / "landing/orders/1.csv").unlink()
    else:
        project.land("1.csv", [])
    repair = Repair(table="bronze.orders", kind="replay", assign=(("amount", "abs(amount)"),))
    assert project.run(repairs=(repair,)).ok
    assert project.ask("SELECT id FROM bronze.orders WHERE id < 10 ORDER BY 1") == [(2,)]
    require_same_as_rebuilt(project)


def test_who_did_not_run_meanwhile_follows_later(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(1), order(2, "bob", "20.00")])
    project.land("1.csv", [order(1), order(2, "bob", "3.00")])
    assert actions(project.run(select="bronze.orders")) == {"bronze.orders": "update"}
    project.land("2.csv", [order(3, "ann", "30.00")])
    assert actions(project.run(select="bronze.orders")) == {"bronze.orders": "append"}
    assert actions(project.run()) == {name: "update" for name in FOLLOWED if name != "bronze.orders"}
    assert project.run().status == "nothing new"
    project.land("3.csv", [order(4)])
    assert actions(project.run())["silver.sales"] == "append", "all have read what left"
    require_same_as_rebuilt(project)


def test_replayed_and_discarded_rows_change_what_they_touch(tmp_path: Path) -> None:
    bad = [order(2, "bob", "-20.00"), order(3, "cy", "-1.00")]
    project = begun(tmp_path, [order(1), *bad], [order(4, "dee", "-4.00")])
    repair = Repair(table="bronze.orders", kind="replay", where="id = 2", assign=(("amount", "abs(amount)"),))
    result = project.run(repairs=(repair,))
    assert actions(result) == FOLLOWED
    assert {one.table: one.rows_added for one in result.tables}["bronze.orders"] == 1
    let_go = Repair(table="bronze.orders", kind="discard", where="id = 4", reason="a test")
    assert actions(project.run(repairs=(let_go,)))["bronze.orders"] == "update"
    assert waiting(project) == [(3, 4, ["amount is positive"])]
    require_same_as_rebuilt(project)


def test_a_replay_needs_no_file(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(2, "bob", "-20.00")])
    source = (tmp_path / "tables.py").read_text()
    (tmp_path / "tables.py").write_text(source.replace(', deleted="withdraw"', ""))
    (tmp_path / "landing/orders/0.csv").unlink()
    repair = Repair(table="bronze.orders", kind="replay", assign=(("amount", "abs(amount)"),))
    assert actions(project.run(repairs=(repair,)))["bronze.orders"] == "update"
    assert project.ask("SELECT amount::INT FROM bronze.orders WHERE id = 2") == [(20,)]


def test_a_repaired_row_with_a_key_that_is_taken_makes_a_rebuild(tmp_path: Path) -> None:
    project = begun(tmp_path, [order(2, "bob", "-20.00")], [order(2, "cy")])
    repair = Repair(table="bronze.orders", kind="replay", assign=(("amount", "abs(amount)"),))
    result = project.run(repairs=(repair,))
    assert actions(result)["bronze.orders"] == "rebuild"
    assert project.ask("SELECT customer FROM bronze.orders WHERE id = 2") == [("bob",)], "it arrived first"
    require_same_as_rebuilt(project)


def test_a_table_that_drops_the_file_is_built_anew_and_the_plan_says_so(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES.replace('drop("source_line")', 'drop("source_line", "source_file")'))
    project.land("1.csv", [order(1), order(2)])
    project.run()
    project.land("1.csv", [order(1)])
    result = project.run()
    told = {one.table: one.reason for one in result.tables}["bronze.orders"]
    assert told == "landing/orders/1.csv corrected, and its rows do not tell their file (the column source_file)"
    require_same_as_rebuilt(project)


def test_a_corrected_file_with_a_new_column_makes_a_rebuild(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES.replace('changed="replace"', 'changed="replace", new_columns="add"'))
    project.land("0.csv", MANY)
    project.land("1.csv", [order(1)])
    assert project.run().ok
    project.land("1.csv", f"id,customer,amount,at,note\n{order(1)},late\n")
    assert actions(project.run())["bronze.orders"] == "rebuild"
    assert project.ask("SELECT note FROM bronze.orders WHERE id = 1") == [("late",)]
    require_same_as_rebuilt(project)


TOTALS = """
from pyspark.sql import DataFrame, functions as F
from icefield import accumulate, append, files, table


@table(
    "bronze.moves",
    source=files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP",
                 deleted="withdraw"),
    refresh=append(),
)
def moves(rows: DataFrame) -> DataFrame:
    return rows


@table("gold.totals", refresh=accumulate("customer", total="sum", sure="sum", rows="count", least="min"))
def totals(moves: DataFrame) -> DataFrame:
    return moves.groupBy("customer").agg(
        F.sum("amount").alias("total"),
        F.coalesce(F.sum("amount"), F.lit(0).cast("decimal(20,2)")).alias("sure"),
        F.count("*").alias("rows"),
        F.min("amount").alias("least"),
    )
"""


def test_totals_are_lowered_by_what_left_and_computed_again_only_where_nothing_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tiny(tmp_path, TOTALS)
    stays = [("left", "1.00"), ("left", "5.00"), ("zero", "-5.00"), ("zero", "5.00"), ("empty", ""), ("least", "7.00")]
    leaves = ["left", "zero", "empty", "least", "gone"]
    project.land("0.csv", [order(n, *row) for n, row in enumerate([*stays, *[("other", "1.00")] * 20])])
    project.land("1.csv", [order(100 + n, name, "3.00") for n, name in enumerate(leaves)])
    assert project.run().ok
    again = Renewal.again
    computed: list[str] = []

    def noted(renewal: Renewal, keys: KeySet) -> Any:
        computed.extend(keys.stored.arrow()["customer"].to_pylist())
        return again(renewal, keys)

    monkeypatch.setattr(Renewal, "again", noted)
    (tmp_path / "landing/orders/1.csv").unlink()
    assert actions(project.run()) == {"bronze.moves": "update", "gold.totals": "update"}
    assert sorted(computed) == ["empty", "gone", "least", "zero"]
    found = project.ask("SELECT customer, total::INT, sure::INT, rows, least::INT FROM gold.totals ORDER BY 1")
    assert found == [
        ("empty", None, 0, 1, None), ("least", 7, 7, 1, 7), ("left", 6, 6, 2, 1), ("other", 20, 20, 20, 1),
        ("zero", 0, 0, 2, -5),
    ]  # fmt: skip
    require_same_as_rebuilt(project)
