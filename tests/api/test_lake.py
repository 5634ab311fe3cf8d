"""`Lake`: what a script or a notebook does with a project."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pytest

import icefield
from icefield import Lake
from icefield.errors import NoLake, NoProject, NoSuchTable, UnknownProfile, UnknownSelector
from lakes import new_lake, publish
from projects import order, tiny

FIRST, SECOND = "20260101T000000-aaaaaa", "20260102T000000-bbbbbb"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two published runs, made without Spark."""
    project = tiny(tmp_path_factory.mktemp("api") / "tiny")
    project.land("1.csv", [order(1)])
    lake = new_lake(project.root / "lake")
    publish(lake, {"gold.totals": [1, 2]}, FIRST)
    publish(lake, {"gold.totals": [3], "gold.more": [4]}, SECOND)
    return project.root


def test_a_table_comes_in_every_shape(root: Path) -> None:
    table = Lake(root).table("gold.totals")
    assert sorted(table.to_arrow().column("value").to_pylist()) == [1, 2, 3]
    assert sorted(table.to_polars()["value"]) == [1, 2, 3]
    assert sorted(table.to_pandas()["value"]) == [1, 2, 3]
    assert (table.count(), table.schema, table.name) == (3, {"value": "long"}, "gold.totals")
    assert [(version.run, version.rows_added) for version in table.history()] == [(FIRST, 2), (SECOND, 1)]


def test_tables_and_sql(root: Path) -> None:
    lake = Lake(str(root))
    assert lake.tables() == ("gold.more", "gold.totals", "ops.runs")
    assert lake.sql("SELECT sum(value) AS total FROM gold.totals").rows() == [(6,)]
    with pytest.raises(NoSuchTable, match=r"did you mean `gold\.totals`"):
        lake.table("gold.total")


@pytest.mark.parametrize("moment", [FIRST, FIRST[:10]])
def test_as_of_applies_to_every_read(root: Path, moment: str) -> None:
    lake = Lake(root, as_of=moment)
    assert lake.tables() == ("gold.totals", "ops.runs")
    assert lake.table("totals").count() == 2
    assert [version.run for version in lake.table("totals").history()] == [FIRST]
    assert Lake(root, as_of=dt.datetime.now(dt.UTC)).table("totals").count() == 3


def test_what_is_due_is_told_without_spark(root: Path) -> None:
    found = Lake(root).due("bronze.orders")
    assert [(cause.table, cause.kind, cause.told) for cause in found.causes] == [
        ("bronze.orders", "files", "1 new file")
    ]
    assert found.digest == Lake(root).due().digest
    assert not Lake(root).due("gold.by_customer")  # it waits for what is not selected


def test_a_lake_sees_what_was_published_meanwhile(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    lake = Lake(project.root)
    with pytest.raises(NoLake):
        lake.tables()
    written = new_lake(project.root / "lake")
    publish(written, {"gold.totals": [1]})
    table = lake.table("gold.totals")
    assert table.count() == 1
    publish(written, {"gold.totals": [2]})
    assert table.count() == 2


def test_reading_works_while_the_projects_code_is_broken(root: Path, tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny", "this is no Python")
    publish(new_lake(project.root / "lake"), {"gold.totals": [1]})
    assert Lake(project.root).table("gold.totals").count() == 1


def test_a_plan_says_what_a_run_would_do(root: Path) -> None:
    lake = Lake(root)
    assert [(step.table, step.action) for step in lake.plan().work] == [
        ("bronze.orders", "build"),
        ("silver.sales", "build"),
        ("gold.by_customer", "build"),
    ]
    assert [step.table for step in lake.plan("bronze.*").steps] == ["bronze.orders"]
    several = lake.plan(["bronze.orders", "silver.*"], exclude=["silver.sales"])
    assert [step.table for step in several.steps] == ["bronze.orders"]
    with pytest.raises(UnknownSelector):
        lake.plan("nothing")


def test_a_wrong_path_or_profile_is_said_at_once(root: Path, tmp_path: Path) -> None:
    with pytest.raises(NoProject):
        Lake(tmp_path)
    with pytest.raises(UnknownProfile):
        Lake(root, profile="nope")


def test_lake_is_a_public_name() -> None:
    assert icefield.Lake is sys.modules["icefield.api"].Lake


@pytest.mark.spark
def test_a_run_from_python(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1), order(2, amount="-1.00")])
    lake, heard = Lake(project.root), []
    result = lake.run(listener=heard.append)
    assert (result.ok, result.status) == (True, "published")
    assert {type(event).__name__ for event in heard} == {"RunStarted", "PhaseStarted", "TableStarted", "TableOutcome"}
    assert lake.table("gold.by_customer").to_polars().height == 1
    assert lake.table("bronze.orders").to_arrow().column("at").to_pylist() == [
        dt.datetime(2026, 8, 1, 10, tzinfo=dt.UTC)
    ]
    assert lake.run().status == "nothing new"
    assert lake.plan().work == ()
    assert Lake(project.root, as_of=result.run).table("bronze.orders").count() == 1
