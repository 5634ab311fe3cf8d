"""Every count that a check reports is the count of rows that are really there, whatever Spark does on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icefield.engine import tables
from icefield.engine.checks import split as quality
from projects import TinyProject, order, tiny

pytestmark = pytest.mark.spark

IMPORTS = """
from pyspark.sql import functions as F
from icefield import (
    append, between, expect, expect_table, files, full, not_null, one_of, reconciles, references, table, unique,
)

ORDERS = files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP")
"""

ALL_OUTCOMES = (
    IMPORTS
    + """
@table(
    "bronze.orders", source=ORDERS, refresh=append(), partitioned_by=["days(at)"],
    checks=[
        not_null("customer", otherwise="quarantine"),
        unique("id", otherwise="quarantine"),
        expect("amount: it is positive", "amount > 0", otherwise="quarantine"),
        expect("small", "amount < 100", otherwise="drop"),
        expect("even", "id % 2 = 0", otherwise="warn"),
        expect_table("not too many", "count(*) < 1000000", otherwise="warn"),
        expect_table("impossible", "count(*) < 0", otherwise="warn"),
        expect_table("unknown", "max(id) > NULL", otherwise="warn"),
    ],
)
def orders(rows):
    return rows


@table(
    "silver.sorted", refresh=append(),
    checks=[expect("even", "id % 2 = 0", otherwise="warn"), references("id", to="bronze.orders", otherwise="warn")],
)
def sorted_orders(orders):
    return orders.select("id", "customer", "amount").orderBy("amount")


@table(
    "gold.totals", refresh=full(),
    checks=[
        unique("customer"),
        reconciles("all is there", {"gold.totals": "sum(amount)", "silver.sorted": "sum(amount)"}),
        between("amount", 0, 10, otherwise="warn"),
    ],
)
def totals(sorted):
    return sorted.groupBy("customer").agg(F.sum("amount").alias("amount"))
"""
)


def recount(project: TinyProject, run: str) -> dict[tuple[str, str], int]:
    """What the checks of a run must have counted, from the tables as they are; `drop` is told by the landed files."""
    one = lambda query: project.ask(query)[0][0]  # noqa: E731
    waiting = f"SELECT unnest(reasons) FROM bronze.orders__quarantine WHERE run = '{run}'"
    aside = Counter(reason for (reason,) in project.ask(waiting))
    new = f"source_file IN (SELECT path FROM ops.files WHERE run = '{run}')"
    ids = f"SELECT id FROM bronze.orders WHERE {new}"
    return {
        ("bronze.orders", "customer is not null"): aside["customer is not null"],
        ("bronze.orders", "id is unique"): aside["id is unique"],
        ("bronze.orders", "amount: it is positive"): aside["amount: it is positive"],
        ("bronze.orders", "every line can be read"): sum(n for r, n in aside.items() if r.startswith("malformed")),
        ("bronze.orders", "even"): one(f"SELECT count(*) FROM bronze.orders WHERE {new} AND id % 2 <> 0"),
        ("bronze.orders", "not too many"): 0,
        ("bronze.orders", "impossible"): 1,
        ("bronze.orders", "unknown"): 1,
        ("silver.sorted", "even"): one(f"SELECT count(*) FROM silver.sorted WHERE id IN ({ids}) AND id % 2 <> 0"),
        ("silver.sorted", "id references bronze.orders"): 0,
        ("gold.totals", "customer is unique"): 0,
        ("gold.totals", "all is there"): 0,
        ("gold.totals", "amount is between 0 and 10"): one("SELECT count(*) FROM gold.totals WHERE amount > 10"),
    }


def told(project: TinyProject, run: str) -> dict[tuple[str, str], int]:
    query = f"""SELECT "table", "check", failed_rows FROM ops.checks WHERE run = '{run}'"""
    return {(table, check): count for table, check, count in project.ask(query)}


def require_true_counts(project: TinyProject, run: str, *, dropped: int, landed: int) -> None:
    reported = told(project, run)
    assert reported.pop(("bronze.orders", "small")) >= dropped
    expected = recount(project, run)
    names = {key: count for key, count in reported.items() if "references" not in key[1] and "in bronze" not in key[1]}
    assert names == {key: expected[key] for key in names}
    below = {"silver.sorted", "gold.totals"} if landed else set()
    assert {table for table, _ in names} == {"bronze.orders", *below}
    ((added, aside, let_go, total),) = project.ask(f"""
        SELECT rows_added, rows_quarantined, rows_dropped, rows_total FROM ops.table_runs
        WHERE run = '{run}' AND "table" = 'bronze.orders'""")
    assert let_go == dropped
    assert added + aside + let_go == landed
    so_far = f"source_file IN (SELECT path FROM ops.files WHERE run <= '{run}')"
    assert [(total,)] == project.ask(f"SELECT count(*) FROM bronze.orders WHERE {so_far}")
    assert [(aside,)] == project.ask(f"SELECT count(*) FROM bronze.orders__quarantine WHERE run = '{run}'")


def days(first: int, count: int) -> list[str]:
    """Clean rows over ten days, so that a partitioned table is written through a shuffle."""
    return [
        order(first + n, f"c{n % 7}", f"{n % 90 + 1}.25", f"2026-08-{n % 10 + 1:02d} 10:00:00") for n in range(count)
    ]


DIRTY = [
    order(900, "", "5.00"), order(901, "", "-5.00"), order(902, "ann", "-1.00"), order(903, "ann", "500.00"),
    order(904, "", "500.00"), order(10, "bob"), order(905), order(905), "906,broken",
]  # fmt: skip


@pytest.fixture(scope="module", params=["few", "many"])
def size(request: pytest.FixtureRequest) -> Iterator[str]:
    """Few rows are split by Arrow once Spark has evaluated them; of many only the suspicious ones are."""
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "many":
            patched.setattr(quality, "FEW_ROWS", 0)
            patched.setattr(tables, "FEW_ROWS", 0)
        yield request.param


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, size: str) -> tuple[TinyProject, list[Any]]:
    """Three runs over a partitioned, a sorted and a full table: clean and dirty rows, more of both, an empty file."""
    project = tiny(tmp_path_factory.mktemp(f"outcomes-{size}") / "p", ALL_OUTCOMES)
    results = []
    for lines in ([*days(10, 200), *DIRTY], [*days(1000, 50), *DIRTY], []):
        project.land(f"{len(results)}.csv", lines)
        results.append(project.run())
        assert results[-1].status == "published", results[-1].error
    return project, results


def test_counts_are_true_over_partitioned_and_sorted_tables(outcomes: tuple[TinyProject, list[Any]]) -> None:
    project, (first, _, _) = outcomes
    require_true_counts(project, first.run, dropped=1, landed=209)


def test_counts_are_those_of_the_run_and_not_of_all_runs(outcomes: tuple[TinyProject, list[Any]]) -> None:
    project, (_, second, _) = outcomes
    require_true_counts(project, second.run, dropped=1, landed=59)


def test_counts_over_an_empty_file_are_zero(outcomes: tuple[TinyProject, list[Any]]) -> None:
    project, (_, _, third) = outcomes
    require_true_counts(project, third.run, dropped=0, landed=0)


def test_every_reason_is_listed_and_quarantine_wins_over_drop(outcomes: tuple[TinyProject, list[Any]]) -> None:
    project, (first, _, _) = outcomes
    found = dict(project.ask(f"SELECT line, reasons FROM bronze.orders__quarantine WHERE run = '{first.run}'"))
    assert sorted(found[203]) == ["amount: it is positive", "customer is not null"]
    assert sorted(found[206]) == ["customer is not null", "small"]
    assert 205 not in found, "the author wrote drop"
    assert found[207] == ["id is unique"]
    assert found[209] == ["id is unique"]


def test_nothing_ripples_down_from_a_file_without_rows(outcomes: tuple[TinyProject, list[Any]]) -> None:
    _, (_, _, third) = outcomes
    assert {table.table: table.rows_added for table in third.tables if table.rows_added} == {}
    assert {table.table for table in third.tables if table.status == "published"} == {"bronze.orders"}


def test_counts_are_true_when_tasks_fail_and_are_tried_again(tmp_path: Path) -> None:
    """Master local[2,4]; a function that fails in the first attempt of every task."""
    source = (
        IMPORTS
        + """
def shaky(value):
    from pyspark import TaskContext
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt always fails")
    return value


@table(
    "bronze.orders", source=ORDERS, refresh=append(),
    checks=[expect("amount is positive", "amount > 0"), expect("even", "id % 2 = 0", otherwise="warn"), unique("id")],
    otherwise="quarantine",
)
def orders(rows):
    return rows.withColumn("id", F.udf(shaky, "BIGINT")("id"))
"""
    )
    project = tiny(tmp_path, source, spark={"spark.master": "local[2,4]"})
    project.land("a.csv", [*(order(n, amount="-1.00" if n % 10 == 0 else "1.00") for n in range(100)), order(1)])
    ended = project.spawn().end()
    assert ended.result["status"] == "published", ended.output
    counts = {check: count for (_, check), count in told(project, ended.result["run"]).items()}
    assert counts == {"amount is positive": 10, "even": 50, "id is unique": 1, "every line can be read": 0}
    assert project.ask("SELECT count(*), count(DISTINCT id) FROM bronze.orders") == [(90, 90)]
    assert project.ask("SELECT count(*) FROM bronze.orders__quarantine") == [(11,)]


def test_after_a_failed_write_no_check_is_told_as_passed(tmp_path: Path) -> None:
    source = (
        IMPORTS
        + """
@table("bronze.orders", source=ORDERS, refresh=append(), checks=[expect("even", "id % 2 = 0", otherwise="warn")])
def orders(rows):
    return rows.withColumn("id", F.expr("IF(id = 5, raise_error('five is right out'), id)").cast("BIGINT"))
"""
    )
    project = tiny(tmp_path, source)
    project.land("a.csv", [order(n) for n in range(10)])
    result = project.run()
    assert result.status == "failed"
    assert "five is right out" in result.error
    assert [check for check in result.checks if check.status == "passed"] == []
    assert "bronze.orders" not in project.lake.pointers()


def test_a_check_that_fails_publishes_nothing_and_its_count_is_told(tmp_path: Path) -> None:
    source = (
        IMPORTS
        + """
@table("bronze.orders", source=ORDERS, refresh=append(), checks=[expect("even", "id % 2 = 0"), unique("id")])
def orders(rows):
    return rows
"""
    )
    project = tiny(tmp_path, source)
    project.land("a.csv", [order(1), order(2), order(3), order(3)])
    result = project.run()
    assert result.status == "failed"
    assert {(c.check, c.status, c.failed_rows) for c in result.checks if c.status != "passed"} == {
        ("even", "failed", 3), ("id is unique", "failed", 1),
    }  # fmt: skip
    assert "bronze.orders" not in project.lake.pointers()
    assert project.ask("SELECT status FROM ops.runs") == [("failed",)]


@pytest.mark.usefixtures("size")
def test_a_function_that_makes_several_rows_of_one_keeps_the_first_of_each_key(tmp_path: Path) -> None:
    source = (
        IMPORTS
        + """
@table("bronze.orders", source=ORDERS, refresh=append(), checks=[unique("id", "part")], otherwise="quarantine")
def orders(rows):
    return rows.withColumn("part", F.explode(F.expr("array(1, 2)")))
"""
    )
    project = tiny(tmp_path, source)
    project.land("a.csv", [order(1), order(2), order(1)])
    result = project.run()
    assert result.status == "published", result.error
    assert sorted(project.ask("SELECT id, part FROM bronze.orders")) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert project.ask("SELECT count(*) FROM bronze.orders__quarantine") == [(2,)]


@pytest.mark.usefixtures("size")
def test_several_unique_checks_each_take_their_own(tmp_path: Path) -> None:
    source = (
        IMPORTS
        + """
CHECKS = [unique("id"), unique("customer")]


@table("bronze.orders", source=ORDERS, refresh=append(), checks=CHECKS, otherwise="quarantine")
def orders(rows):
    return rows
"""
    )
    project = tiny(tmp_path, source)
    project.land("a.csv", [order(1, "ann"), order(1, "bob"), order(2, "ann"), order(3, "bob"), order(4, "")])
    result = project.run()
    assert result.status == "published", result.error
    assert sorted(project.ask("SELECT id FROM bronze.orders")) == [(1,), (3,), (4,)]
    found = sorted(project.ask("SELECT line, reasons[1] FROM bronze.orders__quarantine"))
    assert found == [(3, "id is unique"), (4, "customer is unique")]


def test_a_check_that_is_taken_away_lets_its_rows_out_of_quarantine(tmp_path: Path) -> None:
    with_check = (
        IMPORTS
        + """
@table("bronze.orders", source=ORDERS, refresh=append())
def orders(rows):
    return rows


@table("silver.large", refresh=append(), checks=[expect("large", "amount > 10", otherwise="quarantine")])
def large(orders):
    return orders.select("id", "amount")
"""
    )
    project = tiny(tmp_path, with_check)
    project.land("a.csv", [order(1, amount="5.00"), order(2, amount="50.00")])
    assert project.run().status == "published"
    assert project.ask("SELECT id FROM silver.large__quarantine") == [(1,)]
    project.declare(with_check.replace(', checks=[expect("large", "amount > 10", otherwise="quarantine")]', ""))
    assert project.run().status == "published"
    assert sorted(project.ask("SELECT id FROM silver.large")) == [(1,), (2,)]
    assert project.ask("SELECT id FROM silver.large__quarantine") == []
