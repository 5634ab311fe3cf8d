"""How many queries a run asks of Spark, and how many metadata files it writes: what small runs spend their time on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from icefield import Lake
from icefield.engine.refresh import replace as replacing
from icefield.engine.session import spark as session
from icefield.engine.tables import Tables
from icefield.lake import branch
from icefield.lake import metadata as meta
from projects import TinyProject, order, tiny

pytestmark = pytest.mark.spark

TABLES = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, expect, files, full, not_null, table, unique


@table("bronze.orders", refresh=append(), otherwise="quarantine",
       source=files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"),
       checks=[not_null("customer"), unique("id"), expect("amount is positive", "amount > 0")])
def orders(rows):
    return rows


@table("silver.sales", refresh=append(), checks=[expect("not too much", "amount < 1000", otherwise="warn")])
def sales(orders):
    return orders.select("id", "customer", "amount", F.to_date("at").alias("day"))


@table("gold.days", refresh=by_key("day"), checks=[unique("day"), expect("some", "orders > 0")])
def days(sales):
    return sales.groupBy("day").agg(F.countDistinct("customer").alias("customers"), F.count("*").alias("orders"))


def with_mean(totals):
    return totals.select("customer", "orders", F.try_divide("amount", "orders").alias("mean"))


@table("gold.customers", refresh=accumulate("customer", orders="count", amount="sum", finish=with_mean))
def customers(sales):
    return sales.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


@table("gold.largest", refresh=full())
def largest(sales):
    return sales.groupBy().agg(F.max("amount").alias("largest"))
"""


@contextmanager
def counted() -> Iterator[list[int]]:
    """Spark's queries, commands included."""
    live = session._live
    assert live is not None
    store = live.spark._jsparkSession.sharedState().statusStore()
    bus = live.spark.sparkContext._jsc.sc().listenerBus()
    found: list[int] = []
    bus.waitUntilEmpty()
    before = store.executionsCount()
    yield found
    bus.waitUntilEmpty()
    found.append(int(store.executionsCount() - before))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyProject:
    found = tiny(tmp_path_factory.mktemp("queries"), TABLES)
    many = [order(n, f"c{n % 5}", at=f"2026-08-{1 + n % 9:02} 10:00:00") for n in range(100)]
    found.land("1.csv", [*many, "broken"])  # once there is something in quarantine, it need not be created
    assert found.run().status == "published"
    found.land("2.csv", [order(200, "c1"), order(201, "c9"), order(202, "", "-1.00"), "broken"])
    return found


@pytest.mark.parametrize(
    ("table", "most"),
    [("bronze.orders", 1), ("silver.sales", 1), ("gold.days", 2), ("gold.customers", 2), ("gold.largest", 2)],
)
def test_a_table_asks_few_queries(project: TinyProject, table: str, most: int) -> None:
    with counted() as queries:
        result = project.run(select=table)
    assert result.status == "published", result.error
    assert queries[0] <= most


KEYED = """
from pyspark.sql import Window, functions as F
from icefield import append, by_key, files, table


@table("bronze.orders", refresh=append(),
       source=files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"))
def orders(rows):
    return rows


@table("gold.days", refresh=by_key(day="to_date(at)"))
def days(orders):
    return orders.groupBy(F.to_date("at").alias("day")).agg(F.max("customer").alias("last"), F.count("*").alias("n"))


@table("gold.ranked", refresh=by_key("customer"))
def ranked(orders):
    order = Window.partitionBy("customer").orderBy("id")
    return orders.select("customer", "id", F.row_number().over(order).alias("rank"))
"""


def test_rows_of_keys_in_large_tables_are_replaced_without_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacing, "SMALL_TABLE", 0)
    monkeypatch.setattr(Tables, "remove_keys", lambda *_: pytest.fail("merged by Spark"))
    project = tiny(tmp_path, KEYED)
    project.land("1.csv", [order(n, f"c{n % 50}", at=f"2026-08-{1 + n % 28:02} 10:00:00") for n in range(200)])
    assert project.run().status == "published"
    project.land("2.csv", [order(-1, "c1", at="2026-08-03 11:00:00"), order(301, "c99", at="2026-08-05 11:00:00")])
    assert project.run(select="bronze.orders").status == "published"
    for table in ("gold.days", "gold.ranked"):
        with counted() as queries:
            result = project.run(select=table)
        assert [one.action for one in result.tables] == ["update"], result.error
        assert queries[0] <= 1, table
        snapshot = meta.current_snapshot(meta.load(project.lake.pointers()[table]))
        assert snapshot is not None
        assert meta.has_deletes(snapshot)
    verdicts = Lake(project.root).verify("gold.days gold.ranked")
    assert [one.status for one in verdicts] == ["exact", "exact"]


def test_a_run_of_all_tables_writes_each_metadata_file_once(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    real = branch._write

    def write(path: Path, metadata: dict[str, object]) -> str:
        written.append(path)
        return real(path, metadata)

    monkeypatch.setattr(branch, "_write", write)
    project.land("3.csv", [order(300, "c1"), order(301, "c8", at="2026-08-03 10:00:00"), order(200)])
    with counted() as queries:
        result = project.run()
    assert [table.status for table in result.tables] == ["published"] * 5, result.error
    changed = {path.parent for path in written}
    assert len(written) == len(changed), [str(path) for path in written]
    assert queries[0] <= 7
