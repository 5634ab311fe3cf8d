"""A column whose type is widened: the tables follow, old rows, rejected ones and older versions stay readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from icefield.api import Lake
from icefield.plan.columns import is_wider
from projects import tiny

TABLES = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, expect, files, table


@table("bronze.sales", source=files("landing/orders/*.csv", schema="id {whole}, customer STRING, amount {amount}"),
       refresh=append(), checks=[expect("id is positive", "id > 0")], otherwise="quarantine")
def sales(rows):
    return rows


@table("silver.latest", refresh=by_key("customer"))
def latest(sales):
    last = F.max(F.struct("id", "amount")).getField("amount").alias("amount")
    return sales.groupBy("customer").agg(F.max("id").alias("id"), last)


@table("gold.totals", refresh=accumulate("customer", n="max", amount="sum"))
def totals(latest):
    return latest.groupBy("customer").agg(F.max("id").alias("n"), F.sum("amount").alias("amount"))


@table("gold.kept", refresh=append(){contract})
def kept(sales):
    return sales.select("id", "amount")
"""
NARROW = {"whole": "INT", "amount": "DECIMAL(10,2)", "contract": ', columns="id INT, amount DECIMAL(10,2)"'}
WIDE = {"whole": "BIGINT", "amount": "DECIMAL(14,2)", "contract": ', columns="id BIGINT, amount DECIMAL(14,2)"'}
HEADER = "id,customer,amount"


@pytest.mark.spark
def test_tables_follow_a_wider_type_and_everything_stays_readable(tmp_path: Path) -> None:
    project = tiny(tmp_path / "lake", TABLES.format(**NARROW))
    project.land("1.csv", f"{HEADER}\n1,ann,1.50\n-2,bob,2.50\n3,bob,3.50\n")
    first = project.run()
    assert first.ok, first.error
    project.declare(TABLES.format(**WIDE))
    project.land("2.csv", f"{HEADER}\n3000000000,ann,123456789012.25\n-3000000000,eve,1.00\n")
    second = project.run()
    assert second.ok, second.error
    project.land("3.csv", f"{HEADER}\n3000000001,bob,4.50\n")
    assert {one.action for one in project.run().tables} == {"append", "update"}

    anew = tiny(tmp_path / "anew", TABLES.format(**WIDE))
    for file in sorted((tmp_path / "lake" / "landing" / "orders").iterdir()):
        anew.land(file.name, file.read_bytes())
    assert anew.run().ok
    assert project.everything() == anew.everything()
    waiting = StaticTable.from_metadata(project.lake.pointers()["bronze.sales__quarantine"]).scan().to_arrow()
    assert sorted(waiting["id"].to_pylist()) == [-3_000_000_000, -2], "written with both types"
    before = Lake(project.root, as_of=first.run).sql("SELECT id, amount::VARCHAR FROM silver.latest ORDER BY 1").rows()
    assert before == [(1, "1.50"), (3, "3.50")]


@pytest.mark.parametrize(
    ("before", "after", "wider"),
    [
        ("int", "bigint", True), ("int", "long", True), ("float", "double", True), ("bigint", "int", False),
        ("int", "double", False), ("date", "timestamp", False), ("string", "binary", False), ("int", "int", False),
        ("decimal(10,2)", "decimal(12,2)", True), ("decimal(10, 2)", "decimal(12, 2)", True),
        ("decimal(10,2)", "decimal(12,3)", False), ("decimal(12,2)", "decimal(10,2)", False),
        ("decimal(10,2)", "double", False), ("int", "decimal(10,0)", False),
    ],
)  # fmt: skip
def test_only_what_iceberg_widens_is_wider(before: str, after: str, *, wider: bool) -> None:
    assert is_wider(before, after) is wider
