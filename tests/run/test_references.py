"""A check that follows what came and went counts what it would count over all rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icefield import Lake
from icefield.engine import limits
from icefield.engine.checks import references
from icefield.engine.checks import view as seen
from icefield.engine.limits import Limits
from icefield.engine.refresh import update
from icefield.lake.arrow_scan import different, not_among
from icefield.lake.embedded import EmbeddedLake
from projects import TinyProject, order, tiny

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

TABLES = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, files, references, table

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"
SOURCE = files("landing/orders/*.csv", schema=ORDERS, changed="replace")


@table("bronze.orders", source=SOURCE, refresh=append())
def orders(rows):
    return rows.drop("ingested_at", "source_line")


@table("silver.open", refresh=by_key("customer"))
def open_orders(orders):
    open = F.sum("amount").alias("open")
    return orders.groupBy("customer").agg(open, F.max("id").alias("last")).where("open <> 0")


@table(
    "gold.newest", refresh=accumulate("customer", last="max"),
    checks=[
        references("customer", to="silver.open", otherwise="warn"),
        references("customer", to="silver.open", where="last % 3 = 0", otherwise="warn"),
        references("customer", to="gold.newest", of="bronze.orders", otherwise="warn"),
        references("customer", to="gold.newest", of="silver.open"),
        references("last", to="silver.open", of="gold.newest", where="last > 0 AND current_date() IS NULL"),
    ],
)
def newest(orders):
    return orders.groupBy("customer").agg(F.max("id").alias("last"))
"""

WANTED = {
    "customer is in silver.open": ("gold.newest", "silver.open", "customer", "true"),
    "customer where last % 3 = 0 is in silver.open": ("gold.newest", "silver.open", "customer", "last % 3 = 0"),
    "customer of bronze.orders is in gold.newest": ("bronze.orders", "gold.newest", "customer", "true"),
    "customer of silver.open is in gold.newest": ("silver.open", "gold.newest", "customer", "true"),
    "last of gold.newest where last > 0 AND current_date() IS NULL is in silver.open": (
        "gold.newest", "silver.open", "last", "false",
    ),
}  # fmt: skip


def counted(project: TinyProject) -> dict[str, int]:
    """What the checks must count, over all rows."""

    def missing(rows: str, others: str, column: str, where: str) -> int:
        query = f"SELECT count(*) FROM {rows} WHERE {where} AND {column} NOT IN (SELECT {column} FROM {others})"
        return int(project.ask(query)[0][0])

    return {name: missing(*asked) for name, asked in WANTED.items()}


def told(result: Any) -> dict[str, int]:
    return {check.check: check.failed_rows for check in result.checks if check.kind == "references"}


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows that each check was about."""
    counts: list[int] = []
    real = references._count

    def count(check: Any, rows: Any, *rest: Any) -> Any:
        counts.append(rows.frame.count())
        return real(check, rows, *rest)

    monkeypatch.setattr(references, "_count", count)
    return counts


@pytest.mark.parametrize(("seed", "how"), [(1, "few rows"), (2, "few rows"), (3, "few values"), (1, "many")])
def test_counts_are_those_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at: list[int], seed: int, how: str
) -> None:
    monkeypatch.setattr(update, "REBUILD_SHARE", 100.0)
    if how == "few values":  # of more rows than fit into memory
        monkeypatch.setattr(seen.TableView, "fit", property(lambda self: False))
    if how == "many":
        monkeypatch.setattr(limits, "LIMITS", Limits(compared_rows=-1))
    print(f"seed {seed}")
    draw, project = random.Random(seed), tiny(tmp_path, TABLES)
    project.land("0.csv", [order(number, f"c{number}", "1.00") for number in range(30)])
    few = 0
    for step in range(1, 6):
        before = len(looked_at)
        result = Lake(project.root).run()
        assert result.status == "published", result.error
        assert told(result) == counted(project)
        few += sum(rows < 20 for rows in looked_at[before:])
        rows = []
        for number in range(draw.randint(1, 3)):
            customer = f"c{draw.randrange(40)}"
            rows.append(order(step * 100 + number, customer, draw.choice(["-1.00", "1.00", "0.00"])))
        project.land(f"{step}.csv", rows)
    assert few, "no check ever followed"


def test_a_value_that_goes_is_missed_by_rows_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "REBUILD_SHARE", 100.0)
    project = tiny(tmp_path, TABLES)
    project.land("0.csv", [order(number, f"c{number}", "1.00") for number in range(9)])
    lake = Lake(project.root)
    assert told(lake.run())["customer is in silver.open"] == 0
    project.land("1.csv", [order(100, "c4", "-1.00")])
    assert told(lake.run())["customer is in silver.open"] == 1
    project.land("2.csv", [order(101, "c5", "2.00")])
    assert told(lake.run())["customer is in silver.open"] == 1  # a row failed before, so all are looked at
    project.land("3.csv", [order(102, "c4", "2.00")])
    assert told(lake.run())["customer is in silver.open"] == 0


def test_what_held_is_remembered_at_its_snapshots(tmp_path: Path, looked_at: list[int]) -> None:
    project = tiny(tmp_path, TABLES)
    project.land("0.csv", [order(number, f"c{number}", "1.00") for number in range(9)])
    Lake(project.root).run()
    states = EmbeddedLake(project.root / "lake").states()
    held = states["gold.newest"].held
    at = {name: state.version.snapshot for name, state in states.items()}
    assert held["customer of bronze.orders where true to gold.newest in UTC"] == (
        f"{at['bronze.orders']} {at['gold.newest']}"
    )
    assert not any("current_date" in key for key in held), "it depends on the clock"
    looked_at.clear()
    project.land("1.csv", [order(100, "c4", "1.00")])
    assert Lake(project.root).run().status == "published"
    assert sorted(looked_at) == [1, 1, 1, 1, 9], "rows that came, but for the check that depends on the clock"


def test_values_are_looked_for_as_python_does() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        kind = draw.choice([pa.int8(), pa.int32(), pa.int64(), pa.string(), pa.date32()])
        apart = 1 if kind == pa.int8() else draw.choice([1, 1_000])  # far apart, numbers are looked for in another way
        values = pa.array([n * apart for n in range(draw.choice([1, 12, 100]))], pa.int32()).cast(kind).to_pylist()

        def column(rows: int, draw: random.Random = draw, values: list[Any] = values) -> list[Any]:
            nulls = draw.random() / 4
            return [None if draw.random() < nulls else draw.choice(values) for _ in range(draw.randint(0, rows))]

        wanted, parts = column(20), [column(20) for _ in range(draw.randint(0, 3))]
        missing = [value for value in wanted if value is not None and all(value not in part for part in parts)]
        rows = pa.chunked_array([wanted], kind)
        assert sorted(different(rows).to_pylist()) == sorted({value for value in wanted if value is not None})
        absent = not_among(different(rows), [pa.array(part, kind) for part in parts])
        assert sorted(absent.to_pylist()) == sorted(set(missing)), f"seed {seed}"
        count, example = references._told(rows, absent)
        assert (count, example in (missing or [None])) == (len(missing), True), f"seed {seed}"
        counted = references._told(rows, absent, pa.chunked_array([[3] * len(wanted)], pa.int64()))
        assert counted[0] == 3 * len(missing), f"seed {seed}"


def test_parts_are_read_until_all_is_found() -> None:
    def parts() -> Iterator[pa.Array]:
        yield pa.array([1, 2])
        yield pa.array([3])
        pytest.fail("read on, with nothing left to look for")

    assert len(not_among(pa.array([1, 3]), parts())) == 0
