"""Promises that first data cannot break, and tables that go on after --accept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from icefield import Lake
from icefield.engine import limits
from icefield.engine.limits import Limits
from icefield.engine.refresh import renewal, update
from icefield.engine.session.spark import start_session, stop_session
from icefield.errors import NotExact, PromiseBroken
from icefield.lake.catalog import LAKE
from projects import TinyProject, order, tiny

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

HEAD = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, expect, files, lookup, ref, table

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"


@table("bronze.orders", source=files("landing/orders/*.csv", schema=ORDERS), refresh=append())
def orders(rows):
    return rows.select("id", "customer", "amount", "at")
"""
SUMS = """
@table("gold.sums", refresh=accumulate("customer", v="sum"){checks})
def sums(orders):
    return orders.groupBy("customer").agg(F.sum("amount").alias("v"))
"""
LARGE = ', checks=[expect("large", "v > 2", otherwise="quarantine")]'


def project_of(root: Path, text: str, *orders: str) -> TinyProject:
    project = tiny(root, HEAD + text)
    project.land("1.csv", orders or [order(1), order(2, "bob", "3.00")])
    return project


def require_exact(project: TinyProject, table: str) -> None:
    assert [(one.status, one.examples) for one in Lake(project.root).verify(table)] == [("exact", ())]


@pytest.mark.parametrize(("before", "after"), [("", LARGE), (LARGE, "")], ids=["more checks", "fewer checks"])
def test_where_accepted_checks_hide_measures_the_next_rows_are_not_merged(
    tmp_path: Path, before: str, after: str
) -> None:
    project = project_of(tmp_path, SUMS.format(checks=before))
    assert project.run().status == "published"
    project.declare(HEAD + SUMS.format(checks=after))
    assert project.run(accept=("gold.sums",)).status == "published"
    project.land("2.csv", [order(9, "ann", "1.00")])
    result = project.run()
    (outcome,) = [one for one in result.tables if one.table == "gold.sums"]
    assert (result.status, outcome.action) == ("published", "rebuild")
    assert "accepted" in outcome.reason
    require_exact(project, "gold.sums")


DOUBLED = """
def doubled(measures):
    return measures.selectExpr("customer", "v * 2 AS v")


@table("gold.sums", refresh=accumulate("customer", v="sum"{measure}, finish=doubled))
def sums(orders):
    return orders.groupBy("customer").agg(F.sum("amount").alias("v"){column})
"""
COUNTED = {"{measure}": ', n="count"', "{column}": ', F.count("*").alias("n")'}


@pytest.mark.parametrize("more", [True, False], ids=["one more", "one less"])
def test_where_other_measures_are_accepted_the_next_rows_are_not_merged(tmp_path: Path, *, more: bool) -> None:
    texts = [DOUBLED, DOUBLED]
    for place, told in COUNTED.items():
        texts = [texts[0].replace(place, ""), texts[1].replace(place, told)]
    before, after = texts if more else reversed(texts)
    project = project_of(tmp_path, before)
    assert project.run().status == "published"
    project.declare(HEAD + after)
    assert project.run(accept=("gold.sums",)).status == "published"
    project.land("2.csv", [order(9, "ann", "1.00")])
    result = project.run()
    (outcome,) = [one for one in result.tables if one.table == "gold.sums"]
    assert (result.status, outcome.action) == ("published", "rebuild"), result.error
    assert "changed measures were accepted" in outcome.reason
    require_exact(project, "gold.sums")


def test_code_that_gives_other_columns_cannot_be_accepted(tmp_path: Path) -> None:
    project = project_of(tmp_path, SUMS.format(checks=""))
    project.run()
    project.declare(HEAD + SUMS.format(checks="").replace("v=", "w=").replace('"v"', '"w"'))
    result = project.run(accept=("gold.sums",))
    assert result.status == "failed"
    assert "ICE-306" in result.error
    assert "--select gold.sums --full-refresh" in result.error


@pytest.mark.parametrize("more", [[], [order(3)]], ids=["nothing new", "with new rows"])
def test_code_that_gives_other_types_cannot_be_accepted(tmp_path: Path, more: list[str]) -> None:
    project = project_of(tmp_path, SUMS.format(checks=""))
    project.run()
    project.declare(HEAD + SUMS.format(checks="").replace('F.sum("amount")', 'F.sum("amount").cast("DECIMAL(30,2)")'))
    if more:
        project.land("2.csv", more)
    result = project.run(accept=("gold.sums",))
    told = "ICE-306 the function of gold.sums returns v decimal(30,2), but the table has v decimal(20,2)"
    assert (result.status, told in result.error) == ("failed", True), result.error


@pytest.mark.parametrize(
    ("many", "held"), [(0, -1), (10, -1), (10, Limits().held_bytes)], ids=["joined", "grouped", "in memory"]
)
def test_a_key_that_someone_else_stored_twice_does_not_multiply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int, held: int
) -> None:
    monkeypatch.setattr(renewal, "MANY", many)
    monkeypatch.setattr(limits, "LIMITS", Limits(held_bytes=held))
    project = project_of(tmp_path, SUMS.format(checks=""))
    project.run()
    catalog = SqlCatalog(LAKE, uri=f"sqlite:///{project.lake.catalog.path}", warehouse=str(project.lake.warehouse))
    table = catalog.load_table("gold.sums")
    table.append(table.scan().to_arrow())
    catalog.close()
    assert project.run(accept=("gold.sums",)).status == "published"
    project.land("2.csv", [order(9, "ann", "1.00")])
    result = project.run()
    assert result.status == "failed"
    assert "ICE-125 the function of gold.sums returns more than one row per key" in result.error


AVERAGE = """
from pyspark.sql.types import DoubleType


@table("gold.average", refresh=accumulate("customer", v="max", trusted=True))
def average(orders):
    mean = F.pandas_udf(lambda amounts: float(amounts.mean()), DoubleType(), F.PandasUDFType.GROUPED_AGG)
    return orders.groupBy("customer").agg(mean(F.col("amount").cast("DOUBLE")).alias("v"))
"""


@pytest.mark.filterwarnings("ignore:In Python 3.6")
def test_what_one_row_a_key_could_not_show_is_found_when_the_next_comes(tmp_path: Path) -> None:
    project = project_of(tmp_path, AVERAGE)
    assert project.run().status == "published"
    assert project.lake.states()["gold.average"].promise == "trusted"
    project.land("2.csv", [order(3, "ann", "9.00")])
    assert "ICE-125 gold.average does not keep the promise of accumulate('customer')" in project.run().error


ABOVE = """
def above(parts):
    for part in parts:
        yield part.assign(above=part["cents"] - part["cents"].min())


@table("gold.above", refresh=by_key("id", trusted=True))
def shown(orders):
    cents = orders.selectExpr("id", "bigint(amount * 100) AS cents").coalesce(1)
    return cents.mapInPandas(above, "id BIGINT, cents BIGINT, above BIGINT")
"""


def test_what_is_trusted_is_tried_as_soon_as_there_is_something_to_try_it_on(tmp_path: Path) -> None:
    project = project_of(tmp_path / "late", ABOVE, order(1))
    assert project.run().status == "published"
    assert project.lake.states()["gold.above"].promise == "untried", "with one key nothing can go wrong"
    recorded = """SELECT promise FROM ops.table_runs WHERE "table" = 'gold.above'"""
    assert project.ask(recorded) == [("untried",)]
    project.land("2.csv", [order(2, amount="5.00"), order(3, amount="7.00")])
    assert "ICE-125 gold.above does not keep the promise of by_key('id')" in project.run().error
    at_once = project_of(tmp_path / "at once", ABOVE, order(1), order(2, amount="5.00"))
    assert "ICE-125 gold.above does not keep the promise of by_key('id')" in at_once.run().error


def test_rows_that_depend_on_one_another_are_found_out_where_append_is_trusted(tmp_path: Path) -> None:
    text = ABOVE.replace('by_key("id", trusted=True)', "append(trusted=True)")
    project = project_of(tmp_path, text, order(1), order(2, amount="5.00"))
    assert "ICE-125 gold.above does not keep the promise of append()" in project.run().error
    honest = text.replace('part["cents"].min()', "1")
    project.declare(HEAD + honest)
    assert project.run().status == "published"
    assert project.lake.states()["gold.above"].promise == "trusted"


def test_trust_that_is_withdrawn_stops_the_next_run_of_that_table(tmp_path: Path) -> None:
    honest = ABOVE.replace('part["cents"].min()', "1")
    project = project_of(tmp_path, honest, order(1), order(2))
    assert project.run().status == "published"
    project.declare(HEAD + honest.replace(", trusted=True", ""))
    project.land("2.csv", [order(3)])
    with pytest.raises(PromiseBroken, match="calls Python on batches of rows"):
        project.run()
    assert project.run(select="bronze.orders").status == "published", "other tables are not stopped by it"


LOOKED = """
@table("bronze.names", source=files("landing/names/*.csv", schema="customer STRING, code STRING"), refresh=append())
def names(rows):
    return rows.select("customer", "code")


@table("gold.named", refresh=by_key("id"), inputs={"names": lookup("bronze.names", on="{on}")})
def named(orders, names):
    codes = names.select(F.col("{joined}").alias("customer"), F.col("{other}").alias("told"))
    known = orders.select("id", "customer").join(names, "customer", "left")
    return known.join(codes, "customer", "left")  # the same frame again is another one for Spark's plan
"""


@pytest.mark.parametrize("on", ["customer", "code"])
def test_a_lookup_that_is_joined_on_another_column_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    monkeypatch.setattr(update, "REBUILD_SHARE", 100.0)
    text = LOOKED.replace("{on}", "customer").replace("{joined}", on)
    project = project_of(tmp_path, text.replace("{other}", "code" if on == "customer" else "customer"))
    project.land("1.csv", "customer,code\nann,bob\nbob,ann\n", "names")
    if on == "code":
        with pytest.raises(PromiseBroken, match=r"""lookup\("bronze\.names", on=\['customer'\]\), but its function"""):
            project.run()
        return
    assert project.run().status == "published"
    project.land("2.csv", "customer,code\nann,carl\n", "names")
    assert project.run().status == "published"
    require_exact(project, "gold.named")


FAR = """
@table("gold.far", refresh=by_key(day="make_date(int(amount), 1, 1)"), partitioned_by=["day"])
def far(orders):
    return orders.groupBy(F.expr("make_date(int(amount), 1, 1)").alias("day")).agg(F.count("*").alias("n"))


@table("silver.days", refresh=append())
def days(orders):
    return orders.select(F.expr("make_date(int(amount), 1, 1)").alias("day"), "id")


@table("gold.near", refresh=accumulate("day", n="count"))
def near(days):
    return days.groupBy("day").agg(F.count("*").alias("n"))
"""


def test_a_year_that_python_does_not_know_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "REBUILD_SHARE", 100.0)
    project = project_of(tmp_path, FAR, order(1, amount="2026"), order(2, amount="2025"))
    assert project.run().status == "published"
    for number in (2, 3):
        project.land(f"{number}.csv", [order(3, amount="20260")])
        result = project.run()
        assert result.status == "published", result.error
    for table in ("gold.far", "gold.near"):
        assert project.ask(f"SELECT n::INT FROM {table} ORDER BY day") == [(1,), (1,), (2,)]


def test_sums_that_become_null_when_they_are_too_large_are_refused(tmp_path: Path) -> None:
    stop_session()
    try:
        project = tiny(tmp_path, HEAD + SUMS.format(checks=""), spark={"spark.sql.ansi.enabled": "false"})
        project.land("1.csv", [order(1)])
        with pytest.raises(NotExact, match=r"without spark\.sql\.ansi\.enabled"):
            project.run()
    finally:
        stop_session()
        start_session(app="tests", conf={}, log=tmp_path / "spark.log")
