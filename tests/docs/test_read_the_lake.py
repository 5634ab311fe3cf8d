"""The examples of docs/how-to/read-the-lake.md, run as printed: by run, every engine sees what --as-of shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from icefield import Lake
from icefield.engine.refresh import replace as replacing
from icefield.engine.refresh import update
from projects import TinyProject, order, tiny

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-the-lake.md"
PRINTED = ("gold.visits_a_day", "20261116T181757-7a427b")

TABLES = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, files, full, table

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"


@table("bronze.orders", source=files("landing/orders/*.csv", schema=ORDERS), refresh=append())
def orders(rows):
    return rows.select("id", "customer", "amount")


@table("silver.appended", refresh=append())
def appended(orders):
    return orders.withColumn("cents", F.expr("bigint(amount * 100)"))


@table("gold.by_key", refresh=by_key("customer"))
def keyed(orders):
    return orders.groupBy("customer").agg(F.max("amount").alias("most"), F.count_distinct("id").alias("n"))


@table("gold.in_parts", refresh=by_key("customer"), partitioned_by=["customer"])
def in_parts(orders):
    return orders.select("customer", "id")


@table("gold.merged", refresh=accumulate("customer", n="count", amount="sum"))
def merged(orders):
    return orders.groupBy("customer").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))


@table("gold.whole", refresh=full())
def whole(orders):
    return orders.agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
"""
KINDS = ("silver.appended", "gold.by_key", "gold.in_parts", "gold.merged", "gold.whole")
ENGINES = ("PyIceberg", "Polars", "DuckDB", "Spark")


@pytest.fixture(
    scope="module",
    params=[pytest.param(100_000, marks=pytest.mark.thorough), 0],
    ids=["written anew", "by delete files"],
)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyProject, list[str]]:
    """Four runs, each of which changes every table; how rows of small tables are replaced depends on a limit."""
    project = tiny(tmp_path_factory.mktemp("read"), TABLES)
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "REBUILD_SHARE", 100.0)
        patch.setattr(replacing, "SMALL_TABLE", request.param)
        for number, customers in enumerate([["ann", "bob", "cid"], ["ann", "dan"], ["bob"], ["ann", "eve", "cid"]]):
            lines = [order(10 * number + n, who, f"{number + n}.50") for n, who in enumerate(customers)]
            project.land(f"{number}.csv", lines)
            result = project.run()
            assert result.status == "published", result.error
            runs.append(result.run)
    return project, runs


def examples() -> dict[str, str]:
    """The first block of Python below the heading of each engine."""
    text = PAGE.read_text()
    found = {name: re.search(rf"### {name}\n.*?```python\n(.*?)```", text, re.DOTALL) for name in ENGINES}
    assert all(found.values())
    blocks = {name: match[1] for name, match in found.items() if match is not None}
    return {**blocks, "Polars": blocks["PyIceberg"] + blocks["Polars"]}  # `table` as above


def written_for(code: str, table: str, run: str) -> str:
    """An example as someone with another table and run would write it."""
    schema, name = table.split(".")
    assert PRINTED[1] in code
    code = code.replace("'gold' AND table_name = 'visits_a_day'", f"'{schema}' AND table_name = '{name}'")
    return code.replace(PRINTED[0], table).replace(PRINTED[1], run)


def rows(found: Any) -> Counter[tuple[Any, ...]]:
    """What an example left in `then`, as a multiset of texts, columns in the order of their names."""
    if hasattr(found, "toArrow"):
        found = found.toArrow()
    elif hasattr(found, "to_arrow_table"):
        found = found.to_arrow_table()
    elif hasattr(found, "to_arrow"):
        found = found.to_arrow()
    return Counter(tuple(str(row[name]) for name in sorted(row)) for row in found.to_pylist())


def as_of(project: TinyProject, table: str, run: str) -> Counter[tuple[Any, ...]]:
    return rows(Lake(project.root, as_of=run).table(table).to_arrow())


@pytest.mark.parametrize("engine", ["PyIceberg", "Polars", "DuckDB"])
def test_by_run_an_engine_sees_what_as_of_shows(
    lake: tuple[TinyProject, list[str]], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, runs = lake
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for table in KINDS:
        for run in runs:
            space: dict[str, Any] = {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(written_for(examples()[engine], table, run), engine, "exec"), space)
            assert rows(space["then"]) == as_of(project, table, run), (table, run)


def test_by_run_spark_sees_what_as_of_shows(lake: tuple[TinyProject, list[str]]) -> None:
    project, runs = lake
    wanted = {f"{table} {run}": written_for(examples()["Spark"], table, run) for table in KINDS for run in runs}
    script = (
        "import json, sys\n"
        "from test_read_the_lake import rows\n"
        "found = {}\n"
        "for name, code in json.loads(sys.stdin.read()).items():\n"
        "    exec(compile(code, name, 'exec'), space := {})\n"
        "    found[name] = sorted(map(list, rows(space['then']).elements()))\n"
        "print('FOUND', json.dumps(found))\n"
    )
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(wanted),
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, here.parent, here.parents[1] / "src")))},
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert told, done.stderr[-2000:]
    found = json.loads(told[0])
    for table in KINDS:
        for run in runs:
            expected = sorted(map(list, as_of(project, table, run).elements()))
            assert found[f"{table} {run}"] == expected, (table, run)


def test_a_run_leaves_one_snapshot_a_table(lake: tuple[TinyProject, list[str]]) -> None:
    from icefield.lake import metadata as meta

    project, runs = lake
    for table in KINDS:
        metadata = meta.load(project.lake.pointers()[table])
        assert [snapshot["summary"]["icefield.run"] for snapshot in metadata["snapshots"]] == runs, table


def test_history_agrees_with_what_the_runs_told(lake: tuple[TinyProject, list[str]]) -> None:
    project, runs = lake
    recorded = project.ask(
        'SELECT run, "table", rows_added::INT, rows_removed::INT, rows_total::INT FROM ops.table_runs'
    )
    told = {(run, table): counts for run, table, *counts in recorded}
    for table in KINDS:
        versions = Lake(project.root).table(table).history()
        seen = {version.run: [version.rows_added, version.rows_removed, version.rows_total] for version in versions}
        assert seen == {run: told[run, table] for run in runs}, table
