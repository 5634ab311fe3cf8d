"""dbt itself, in its own environment: what it builds is what icefield makes of its projects and gives to them."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from icefield.api import Lake
from service_fixtures import python_of

pytestmark = pytest.mark.adapters

STORE = Path(__file__).parent / "store"
AWKWARD = Path(__file__).parent / "awkward"
ECOMMERCE = Path(__file__).parents[3] / "pipelines" / "ecommerce"
LEFT = shutil.ignore_patterns("lake", "landing", ".icefield", "__pycache__", "target", "logs")


@pytest.fixture(scope="module")
def environment():
    return python_of("dbt").parent


@pytest.fixture
def dbt(environment):
    """Runs dbt in a folder; returns its exit code and what it printed."""

    def run(folder: Path, *arguments: str) -> tuple[int, str]:
        quiet = {"DO_NOT_TRACK": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
        command = [environment / "dbt", "--no-use-colors", *arguments]
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **quiet}, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def icefield(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "icefield", *arguments]
    return subprocess.run(
        command, cwd=root, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def rows_of(table) -> Counter:
    """Rows as a multiset, by the names of their columns; times without a zone are in UTC."""

    def plain(value):
        return (
            value.astimezone(dt.UTC).replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value
        )

    names = sorted(table.column_names)
    return Counter(tuple(plain(row[name]) for name in names) for row in table.to_pylist())


def built(database: Path, table: str) -> Counter:
    """What dbt-duckdb made. It copies seeds by DuckDB, where dbt's other adapters read the word `null` as NULL."""
    with duckdb.connect(str(database), read_only=True) as db:
        found = rows_of(db.execute(f"SELECT * FROM {table}").to_arrow_table())
    return Counter({tuple(None if value == "null" else value for value in row): n for row, n in found.items()})


TABLES = [
    "store_raw.raw_customers",
    "store_raw.raw_orders",
    "store_raw.raw_payments",
    "store_staging.stg_orders",
    "store_marts.orders",
    "store_marts.customers",
]
MORE = {
    "raw_customers": "9,Ida,null,FR\n",  # dbt reads `null` as NULL
    "raw_orders": "17,8,2026-02-01,placed,2026-02-01 07:00:00\n18,1,2026-02-01,shipped,2026-02-01 08:30:00\n",
    "raw_payments": "25,17,card,1999\n26,18,transfer,50\n27,18,voucher,25\n",
}
#: An order that moves on, and when it does.
MOVED = ("2,5,2026-01-12,shipped,2026-01-13 10:14:00", "2,5,2026-01-12,returned,2026-02-01 09:00:00")


def test_models_give_the_tables_that_dbt_builds(tmp_path, dbt, environment):
    root = Path(shutil.copytree(STORE, tmp_path / "store", ignore=LEFT))
    database = root / "dbt" / "target" / "store.duckdb"
    recorded = (root / "dbt" / "icefield_models.json").read_text()
    (root / "dbt" / "icefield_models.json").unlink()

    declared = (root / "tables.py").read_text()
    (root / "tables.py").write_text("")
    early = icefield(root, "dbt", "compile", "dbt", "--dbt", str(environment / "dbt"))
    assert early.returncode == 0, early.stderr
    assert 'write models("dbt") into one, and compile again' in early.stderr  # not `full` for no reason
    (root / "tables.py").write_text(declared)
    done = icefield(root, "dbt", "compile", "dbt", "--dbt", str(environment / "dbt"))
    assert done.returncode == 0, done.stderr
    assert (root / "dbt" / "icefield_models.json").read_text() == recorded  # nothing of time or place is in it
    assert not (root / "dbt" / "target").exists()

    lake, seeds = Lake(root), root / "dbt" / "seeds"
    for more in ({}, MORE):
        for seed, lines in more.items():
            text = (seeds / f"{seed}.csv").read_text()
            (seeds / f"{seed}.csv").write_text(text.replace(*MOVED) + lines)
        code, printed = dbt(root / "dbt", "build", "--profiles-dir", ".")
        assert code == 0, printed
        result = lake.run()
        assert result.ok, result.error
        for table in TABLES:
            assert rows_of(lake.table(table).to_arrow()) == built(database, table), table
    assert MOVED[1] in (seeds / "raw_orders.csv").read_text()
    orders = next(one for one in result.tables if one.table == "store_marts.orders")
    assert (orders.rows_added, orders.rows_removed) == (3, 1)  # not built again

    with (seeds / "raw_orders.csv").open("a") as file:
        file.write("19,1,2026-02-02,lost,2026-02-02 08:30:00\n")
    before = lake.table("store_marts.orders").count()
    code, printed = dbt(root / "dbt", "build", "--profiles-dir", ".")
    assert code == 1
    assert "accepted_values_stg_orders_status" in printed
    result = lake.run()
    assert not result.ok
    assert "status is one of placed, shipped, completed, returned" in result.error
    assert lake.table("store_marts.orders").count() == before  # dbt has built half of it, icefield nothing


def test_what_real_manifests_have_that_cannot_be_taken_is_listed(tmp_path, environment):
    root = Path(shutil.copytree(AWKWARD, tmp_path / "awkward"))
    done = icefield(root, "dbt", "compile", "dbt", ICEFIELD_DBT=str(environment))
    assert done.returncode == 2, done.stderr  # the project does not load before its author says so
    checked = icefield(root, "dbt", "check", "dbt", "--json")
    assert checked.returncode == 1
    found = json.loads(checked.stdout)
    left = found["not_taken"]
    assert {name: reason for name, reason in left.items() if "query while it is compiled" in reason}.keys() == {
        "asking"
    }
    assert "it reads itself" in left["itself"]
    assert "optimize {{ this }}" in left["hooked.post-hook"]
    assert "Python model" in left["python"]
    assert "no rebuild can repeat" in left["kept"]
    assert "materialization odd" in left["odd"]
    assert "reads no table" in left["nothing"]
    assert "operation" in left["awkward-on-run-end-0"]
    taken = {one["dbt"].partition(".")[0]: one["icefield"] for one in found["taken"]}
    assert {"events", "plain", "hooked", "looking", "dated"} <= set(taken)
    for name in ("asking", "after_asking", "kept"):
        assert f"{name}: " in done.stderr
    assert "date_add" in (root / "dbt" / "icefield_models.json").read_text()  # dbt-spark's own macro


def test_dbt_that_is_not_there_or_fails_says_so(tmp_path, environment):
    (tmp_path / "icefield.toml").write_text("")
    nowhere = icefield(tmp_path, "dbt", "compile", ".")
    assert "ICE-830 there is no dbt_project.yml" in nowhere.stderr
    (tmp_path / "dbt_project.yml").write_text("name: [\n")
    missing = icefield(tmp_path, "dbt", "compile", ".", "--dbt", "/nowhere/dbt")
    assert missing.returncode == 2
    assert "--dbt PATH" in missing.stderr
    broken = icefield(tmp_path, "dbt", "compile", ".", "--dbt", str(environment))
    assert broken.returncode == 2
    assert "ICE-830 dbt cannot compile the project" in broken.stderr
    assert "dbt_project.yml" in broken.stderr


def test_the_example_builds_its_models_on_the_lake(tmp_path, dbt):
    root = Path(shutil.copytree(ECOMMERCE, tmp_path / "ecommerce", ignore=LEFT))
    lake, database = Lake(root), root / "dbt" / "target" / "reports.duckdb"
    code, printed = dbt(root / "dbt", "build", "--profiles-dir", ".")
    assert code != 0
    assert "ICE-" in printed  # there is no lake yet, and dbt says so in icefield's words

    for arguments in (["--rows", "3800", "--days", "9"], ["--append", "--days", "1", "--rows", "400"]):
        subprocess.run(
            [sys.executable, str(root / "generate.py"), "--seed", "7", *arguments], check=True, capture_output=True
        )
        assert lake.run().ok
        code, printed = dbt(root / "dbt", "build", "--profiles-dir", ".")
        assert code == 0, printed
        segments = (
            "SELECT customer_segment, count(*) AS customers, sum(total_orders) AS orders, sum(total_ltv) AS revenue"
        )
        wanted = lake.sql(f"{segments} FROM gold.customer_summary GROUP BY ALL").to_arrow()
        assert built(database, "segments") == rows_of(wanted)
        (revenue,) = lake.sql("SELECT sum(total_revenue) FROM gold.daily_metrics").rows()
        with duckdb.connect(str(database), read_only=True) as db:
            assert db.execute("SELECT sum(revenue) FROM weekly_revenue").fetchone() == revenue

    shipped = (root / "dbt" / "models" / "sources.yml").read_text()
    written = icefield(root, "dbt", "sources", "dbt", "-s", "gold.*")
    assert written.returncode == 0, written.stderr
    assert (root / "dbt" / "models" / "sources.yml").read_text() == shipped
    code, printed = dbt(root / "dbt", "source", "freshness", "--profiles-dir", ".")
    assert code == 0, printed
    assert printed.count("PASS freshness of gold.") == 3
