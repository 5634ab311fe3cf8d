"""A project as a DAG of a real Airflow 3: parsed in its own environment, and run with `dag.test()`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflows import ICEFIELD, Airflow, Answer

from batched import TRIPS
from projects import ORDERS, TinyProject, order, tiny, until
from service_fixtures import python_of

pytestmark = pytest.mark.adapters

DOUBTED = """

@table("gold.doubted", checks=[expect_table("there are many", "count(*) > 1000")])
def doubted(sales: DataFrame) -> DataFrame:
    return sales
"""
PIPELINES = Path(__file__).parents[2] / "pipelines"
TABLES = ("bronze.orders", "silver.sales", "gold.by_customer")


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    found = Airflow(tmp_path_factory.mktemp("airflow") / "home", python_of("airflow"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, airflow: Airflow) -> TinyProject:
    """A project with three DAGs: one with a report behind it, one that loses an answer, one that waits for it."""
    root = tmp_path_factory.mktemp("shop")
    project = tiny(root / "shop")
    project.land("1.csv", [order(1), order(2, "bob", "-1.00")])
    forgetful = root / "icefield"
    forgetful.write_text(
        f"""#!/bin/sh
        if [ "$1" = run ] && [ ! -e {root}/lost ]; then
            touch {root}/lost
            {ICEFIELD} "$@" > /dev/null
            kill -9 $$
        fi
        exec {ICEFIELD} "$@"
        """
    )
    forgetful.chmod(0o755)
    airflow.declare(
        "shop",
        f"""
        from datetime import timedelta
        from airflow.sdk import DAG, Asset, TaskGroup, task
        from icefield.adapters.airflow import dag

        once = dag("{project.root}", dag_id="shop", schedule="0 */6 * * *", icefield="{ICEFIELD}")
        with once, TaskGroup("reports"):
            once.get_task("published") >> task(lambda: None, task_id="send")()
        again = dag(
            "{project.root}", dag_id="again", icefield="{forgetful}",
            default_args={{"retries": 1, "retry_delay": timedelta(0)}},
        )
        with DAG("report", schedule=[Asset("x-icefield://tiny/gold.by_customer")]) as report:
            pass
        """,
    )
    return project


@pytest.fixture(scope="module")
def first(airflow: Airflow, shop: TinyProject) -> Answer:
    """The first run: it is published, and its process is killed before it can say so."""
    return airflow.ask("run", dag="again")


def states(answer: Answer) -> dict[str, str]:
    return {**answer["tasks"], "DAG run": answer["state"]}


def all_of(transaction: str, tables: str, published: str, run: str, report: str = "reports.send") -> dict[str, str]:
    """The states of all tasks; what comes behind `published` fares as it does."""
    after = dict.fromkeys(filter(None, ["published", report]), published)
    return {"transaction": transaction, **dict.fromkeys(TABLES, tables), **after, "DAG run": run}


def test_a_dag_has_the_transaction_and_each_table_behind_its_inputs(airflow: Airflow, shop: TinyProject) -> None:
    read = airflow.ask("parse")
    assert read["errors"] == {}
    assert read["upstream"]["shop"] == {
        "transaction": [],
        "bronze.orders": ["transaction"],
        "silver.sales": ["bronze.orders", "transaction"],
        "gold.by_customer": ["silver.sales", "transaction"],
        "published": sorted(["transaction", *TABLES]),
        "reports.send": ["published"],
    }
    assert read["docs"]["shop"]["gold.by_customer"].split("\n\n") == [
        "refresh: full",
        "declared in tables.py",
        "reads: silver.sales",
        "checks:",
        "- customer is unique, otherwise fail",
    ]


def test_reading_a_dag_again_is_quick_and_gives_the_same(airflow: Airflow, shop: TinyProject) -> None:
    before = airflow.ask("parse")["digest"]
    again = airflow.ask("parse")
    assert again["digest"] == before
    assert again["seconds"]["shop.py"] < 0.5
    (shop.root / "tables.py").write_text("# a line more\n" + (shop.root / "tables.py").read_text())
    assert airflow.ask("parse")["digest"] == before, "an edit that declares nothing else makes no new version"
    shop.declare(ORDERS)


def test_the_examples_are_read(airflow: Airflow) -> None:
    read = airflow.ask("parse", folder=str(PIPELINES))
    assert read["errors"] == {}
    assert {name: len(tasks) for name, tasks in read["upstream"].items()} == {"ecommerce": 14, "shop": 41, "taxi": 13}
    assert {name: "logical_date" in batch for name, batch in read["batches"].items()} == {
        "ecommerce": False, "shop": False, "taxi": True,
    }  # fmt: skip


def test_a_lost_answer_is_found_again_in_the_lake(first: Answer, shop: TinyProject) -> None:
    assert states(first) == all_of("success", "success", "success", "success", report="")
    assert first["tries"]["transaction"] == 2
    assert first["xcoms"]["transaction"]["status"] == "nothing new", "the second try had nothing left to do"
    assert shop.ask("SELECT customer, orders::INT FROM gold.by_customer") == [("ann", 1)]
    assert shop.ask("SELECT count(*)::INT FROM ops.runs") == [(1,)]


def test_a_table_shows_its_rows_checks_and_time(first: Answer, shop: TinyProject) -> None:
    ((run,),) = shop.ask("SELECT run FROM ops.runs")
    told = first["xcoms"]["bronze.orders"]
    assert (told["run"], told["action"], told["rows_added"], told["rows_quarantined"], told["rows_total"]) == (
        run, "build", 1, 1, 1,
    )  # fmt: skip
    assert told["seconds"] > 0
    assert {check["check"]: (check["status"], check["failed_rows"]) for check in told["checks"]} == {
        "every line can be read": ("passed", 0),
        "customer is not null": ("passed", 0),
        "amount is positive": ("quarantined", 1),
        "id is unique": ("passed", 0),
    }
    assert "bronze.orders: 1 row added, 1 row rejected, 1 in total" in first.log


def test_assets_are_updated_and_wake_who_waits_for_them(first: Answer) -> None:
    assert {uri: extra["rows_added"] for uri, extra in first["events"].items()} == {
        f"x-icefield://tiny/{table}": 1 for table in TABLES
    }
    assert first["queued"] == ["report"]


def test_nothing_new_updates_no_asset(airflow: Airflow, shop: TinyProject, first: Answer) -> None:
    nothing = airflow.ask("run", dag="shop", task="reports.send")  # which is no table that was removed
    assert states(nothing) == all_of("success", "skipped", "success", "success")
    assert nothing["events"] == {}
    assert "nothing new for gold.by_customer" in nothing.log


def test_a_failed_check_fails_its_table_and_publishes_nothing(
    airflow: Airflow, shop: TinyProject, first: Answer
) -> None:
    before = shop.everything()
    shop.declare(ORDERS + DOUBTED)
    file = shop.land("2.csv", [order(3, "eve")])
    failed = airflow.ask("run", dag="shop")
    assert states(failed) == {
        **all_of("failed", "skipped", "upstream_failed", "failed"),
        "gold.doubted": "failed",
    }
    assert failed["events"] == {}
    assert failed.log.count("gold.doubted was not published: check `there are many` failed") >= 2
    assert "silver.sales was staged and is not published, because run" in failed.log
    assert shop.everything() == before
    file.unlink()
    shop.declare(ORDERS)


def test_a_table_that_was_removed_meanwhile_is_no_success(airflow: Airflow, shop: TinyProject, first: Answer) -> None:
    shop.declare(ORDERS.partition('@table("gold')[0])
    gone = airflow.ask("run", dag="shop", task="gold.by_customer")
    assert gone["tasks"]["gold.by_customer"] == "failed"
    assert (gone["tasks"]["transaction"], gone["state"]) == ("success", "failed")
    assert "gold.by_customer is no longer declared in" in gone.log
    assert airflow.ask("parse")["upstream"]["shop"]["published"] == ["bronze.orders", "silver.sales", "transaction"]
    shop.declare(ORDERS)
    airflow.ask("parse")


def test_a_project_that_does_not_load_says_where(airflow: Airflow, shop: TinyProject, first: Answer) -> None:
    before = shop.everything()
    (shop.root / "tables.py").write_text("import nothing_like_this\n")
    (told,) = airflow.ask("parse")["errors"].values()
    assert "tables.py cannot be imported: ModuleNotFoundError" in told
    assert "where: tables.py:1" in told
    # A task that is about to run still finds its DAG, and says what is wrong.
    failed = airflow.ask("run", dag="shop", task="transaction")
    assert states(failed) == all_of("failed", "skipped", "upstream_failed", "failed")
    assert "tables.py cannot be imported: ModuleNotFoundError" in failed.log
    assert "nothing is recorded of gold.by_customer: see the log of the task `transaction`" in failed.log
    assert shop.everything() == before
    shop.declare(ORDERS)


def test_two_at_once_take_every_row_once(airflow: Airflow, shop: TinyProject, first: Answer) -> None:
    shop.land("3.csv", [order(4, "dan")])
    other = shop.spawn("publish.metadata-written=pause")
    try:
        until(lambda: other.stopped, what="the other run is about to publish")
        ran = airflow.ask("run", dag="shop")
        other.signal(signal.SIGCONT)
        ended = other.end()
    finally:
        other.kill()
    assert states(ran) == all_of("success", "success", "success", "success")
    assert "another run" in ran.log
    assert ended.result["status"] == "nothing new", "it was overtaken, and planned again"
    assert shop.ask("SELECT id::INT FROM bronze.orders ORDER BY 1") == [(1,), (4,)]


def test_a_task_that_is_ended_abandons_its_run(airflow: Airflow, shop: TinyProject, first: Answer) -> None:
    before = shop.everything()
    shop.land("4.csv", [order(5, "fay")])
    airflow.begin("run", dag="shop")
    (run,) = until(shop.lake.open_runs, what="the transaction has begun")
    os.kill(airflow.pid, signal.SIGTERM)
    ended = airflow.answer()
    assert ended["tasks"]["transaction"] == "failed"
    assert ended["state"] == "failed"
    with pytest.raises(ProcessLookupError):
        os.kill(run.pid, 0)
    assert shop.everything() == before


def test_the_logical_date_selects_the_month(airflow: Airflow, tmp_path: Path) -> None:
    project = tiny(tmp_path / "taxi", TRIPS)
    airflow.declare(
        "taxi",
        f"""
        from icefield.adapters.airflow import dag

        monthly = dag("{project.root}", dag_id="taxi", schedule="0 6 1 * *", icefield="{ICEFIELD}")
        """,
    )

    def land(*months: str) -> None:
        for month in months:
            project.land(f"{month}.csv", f"id,fare,tip\n{int(month[-2:])},10.00,1.0\n", folder="trips")

    def months() -> list[str]:
        return [month for (month,) in project.ask("SELECT month FROM marts.months ORDER BY 1")]

    land("2026-01", "2026-02")
    due = airflow.ask("run", dag="taxi", logical_date=None)
    assert due["state"] == "success"
    assert months() == ["2026-01", "2026-02"], "without a logical date, as after an asset event: all that are due"
    assert len(due["xcoms"]["transaction"]["runs"]) == 2
    assert (due["xcoms"]["raw.trips"]["rows_added"], len(due["xcoms"]["raw.trips"]["runs"])) == (2, 2)

    land("2026-03", "2026-04")
    march = airflow.ask("run", dag="taxi", logical_date="2026-03-01T06:00:00+00:00")
    assert march["state"] == "success"
    assert months() == ["2026-01", "2026-02", "2026-03"]
    assert project.ask("SELECT batch FROM ops.runs ORDER BY started_at")[-1] == ("2026-03",)

    before = project.everything()
    unknown = airflow.ask("run", dag="taxi", logical_date="2027-01-01T06:00:00+00:00")
    assert (unknown["tasks"]["transaction"], unknown["state"]) == ("failed", "failed")
    assert "there are no files of the batch 2027-01" in unknown.log
    assert "batches with files: 2026-01, 2026-02, 2026-03, 2026-04" in unknown.log
    assert project.everything() == before
