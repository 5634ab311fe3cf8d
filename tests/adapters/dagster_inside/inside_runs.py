"""Runs of Dagster in this process, on one Spark session. Carried out by tests/adapters/test_dagster.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from icefield.adapters.dagster import definitions
from projects import ORDERS, QUICK, TinyProject, order, tiny

ROOT = Path(__file__).parents[3]

MONTHS = """
from pyspark.sql import functions as F
from icefield import by_key, expect, files, table


@table("raw.trips", source=files("landing/{month}.csv", schema="id BIGINT, fare DECIMAL(10,2)", batch="month"),
       refresh=by_key("month"), checks=[expect("fare is not negative", "fare >= 0")])
def trips(rows):
    return rows.select("id", "fare", "month")


@table("marts.months", refresh=by_key("month"))
def months(trips):
    return trips.groupBy("month").agg(F.sum("fare").alias("fare"))
"""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


class Ran:
    """A run of Dagster's, and what it has recorded."""

    def __init__(self, result: dg.ExecuteInProcessResult) -> None:
        self.result = result
        self.ok = result.success

    @property
    def materialized(self) -> dict[str, dict[str, Any]]:
        found = {}
        for event in self.result.get_asset_materialization_events():
            told = event.step_materialization_data.materialization
            key = told.asset_key.to_user_string() + (f"|{told.partition}" if told.partition else "")
            found[key] = {name: value.value for name, value in told.metadata.items()}
        return found

    @property
    def checks(self) -> dict[tuple[str, str], Any]:
        return {
            (one.asset_key.to_user_string(), one.check_name): one for one in self.result.get_asset_check_evaluations()
        }

    @property
    def error(self) -> str:
        """Why the step of icefield failed, as Dagster shows it."""
        for event in self.result.all_node_events:
            if event.is_step_failure and event.step_failure_data.user_failure_data is not None:
                return str(event.step_failure_data.user_failure_data.description)
        return ""

    @property
    def attempts(self) -> int:
        kinds = [event.event_type_value for event in self.result.all_events]
        return kinds.count("STEP_START") + kinds.count("STEP_RESTARTED")


def run(project: TinyProject | Path, instance: dg.DagsterInstance, job: str = "tiny", **options: Any) -> Ran:
    given = {key: options.pop(key) for key in ("assets", "retry_policy", "backfill_policy") if key in options}
    root = project.root if isinstance(project, TinyProject) else project
    defs = definitions(root, **given)
    return ran(defs, instance, job, **options)


def ran(defs: dg.Definitions, instance: dg.DagsterInstance, job: str, **options: Any) -> Ran:
    return Ran(defs.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False, **options))


def key(text: str) -> dg.AssetKey:
    return dg.AssetKey(text.split("/"))


def shop(root: Path) -> TinyProject:
    project = tiny(root, ORDERS)
    project.land("1.csv", [order(1), order(2, "bob", "2.50"), order(3, "", "1.00")])
    return project


def test_a_run_is_one_transaction_and_tells_what_it_published(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    project = shop(tmp_path)
    first = run(project, instance)
    assert first.ok, first.error
    assert list(first.materialized) == ["bronze/orders", "silver/sales", "gold/by_customer"]
    ((published, batch),) = project.ask("SELECT run, batch FROM ops.runs")
    told = first.materialized["bronze/orders"]
    assert {one["run_id"] for one in first.materialized.values()} == {published}
    assert batch == ""
    assert {name: told[name] for name in ("dagster/row_count", "rows_added", "rows_quarantined", "action")} == {
        "dagster/row_count": 2,
        "rows_added": 2,
        "rows_quarantined": 1,
        "action": "build",
    }
    assert told["seconds"] > 0
    assert [column.name for column in told["dagster/column_schema"].columns][:2] == ["id", "customer"]
    assert "| ann |" in told["preview"]
    (snapshot,) = project.ask("SELECT snapshot FROM ops.table_runs WHERE \"table\" = 'bronze.orders'")
    assert told["snapshot_id"] == str(snapshot[0])
    refused = first.checks["bronze/orders", "customer_is_not_null"]
    assert (refused.passed, refused.severity.value) == (False, "WARN")
    assert refused.description == "customer is not null: quarantined, 1 row"
    assert first.checks["gold/by_customer", "customer_is_unique"].passed
    assert first.checks["gold/by_customer", "customer_is_unique"].blocking
    nothing_new_is_a_run_as_well(project, instance, first)
    one_table_alone(project, instance)


def nothing_new_is_a_run_as_well(project: TinyProject, instance: dg.DagsterInstance, first: Ran) -> None:
    """Every table keeps its data version, and every check has a result: that of the run that evaluated it."""
    again = run(project, instance)
    assert again.ok
    assert {name: one["action"] for name, one in again.materialized.items()} == dict.fromkeys(
        first.materialized, "none"
    )
    for name, one in first.materialized.items():
        assert again.materialized[name]["snapshot_id"] == one["snapshot_id"]
        versions = {
            event.step_materialization_data.materialization.tags["dagster/data_version"]
            for ran in (first, again)
            for event in ran.result.get_asset_materialization_events()
            if event.asset_key == key(name)
        }
        assert len(versions) == 1
    assert {place: one.passed for place, one in again.checks.items()} == {p: o.passed for p, o in first.checks.items()}
    assert project.ask("SELECT count(*) FROM ops.runs") == [(1,)]


def one_table_alone(project: TinyProject, instance: dg.DagsterInstance) -> None:
    project.land("2.csv", [order(4)])
    some = run(project, instance, asset_selection=[key("bronze/orders")])
    assert {name: one["rows_added"] for name, one in some.materialized.items()} == {"bronze/orders": 1}
    assert project.ask("SELECT count(*) FROM silver.sales") == [(2,)]
    full = run(project, instance, run_config={"ops": {"tiny_tables": {"config": {"full_refresh": True}}}})
    assert {one["action"] for one in full.materialized.values()} == {"rebuild"}, full.error


def test_a_failed_check_fails_its_asset_and_nothing_is_materialized(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = shop(tmp_path)
    happened: list[str] = []

    @dg.asset(deps=[["gold", "by_customer"]])
    def mail() -> None:
        happened.append("mail")

    def job(defs: dg.Definitions) -> dg.Definitions:
        return dg.Definitions.merge(defs, dg.Definitions(jobs=[dg.define_asset_job("all", selection="*")]))

    retries = dg.RetryPolicy(max_retries=2, delay=0)
    assert ran(job(definitions(project.root, assets=[mail], retry_policy=retries)), instance, "all").ok
    before = project.everything()
    broken = ORDERS.replace('checks=[unique("customer")]', 'checks=[unique("customer"), expect("few", "orders < 1")]')
    project.declare(broken)
    project.land("2.csv", [order(5)])
    happened.clear()
    failed = ran(job(definitions(project.root, assets=[mail], retry_policy=retries)), instance, "all")
    assert not failed.ok
    assert failed.materialized == {}
    assert happened == []  # what is downstream did not run
    assert failed.attempts == 1  # the same rows would fail again
    assert project.everything() == before
    assert "ICE-601" in failed.error
    few = failed.checks["gold/by_customer", "few"]
    assert (few.passed, few.severity.value, few.blocking) == (False, "ERROR", True)
    assert few.metadata["rows"].value[0]["customer"] in ("ann", "bob")
    assert len(failed.checks) == 6  # every one that was selected
    assert failed.checks["bronze/orders", "id_is_unique"].passed  # what was found before is told

    project.declare(ORDERS)
    mended = ran(job(definitions(project.root, assets=[mail])), instance, "all")
    assert mended.ok, mended.error
    assert happened == ["mail"]
    assert project.ask("SELECT sum(orders) FROM gold.by_customer") == [(3,)]


def test_a_retry_after_the_publish_does_nothing_twice(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost between publishing and reporting: the second attempt finds everything done."""
    from icefield.adapters.dagster import execution
    from icefield.errors import CatalogBusy

    real, lost = execution.Report, []

    def report(*given: Any) -> Any:
        if not lost:
            lost.append(given)
            raise CatalogBusy("catalog.db", 30)
        return real(*given)

    monkeypatch.setattr(execution, "Report", report)
    project = shop(tmp_path)
    done = run(project, instance, retry_policy=dg.RetryPolicy(max_retries=1, delay=0))
    assert (done.ok, done.attempts, len(lost)) == (True, 2, 1)
    assert project.ask("SELECT count(*) FROM bronze.orders") == [(2,)]
    assert project.ask("SELECT count(*) FROM ops.runs") == [(1,)]
    assert list(done.materialized) == ["bronze/orders", "silver/sales", "gold/by_customer"]


def test_with_a_job_per_table_each_follows_what_is_published_above_it(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = shop(tmp_path)
    assert run(project, instance).ok
    project.land("2.csv", [order(4)])
    defs = definitions(project.root, jobs="per table")
    repository, followed = defs.get_repository_def(), []
    for _ in range(4):
        for sensor in defs.sensors:
            context = dg.build_sensor_context(instance=instance, repository_def=repository)
            for request in sensor.evaluate_tick(context).run_requests:
                followed.append((sensor.job_name, request.tags["icefield/due"]))
                assert ran(defs, instance, sensor.job_name).ok
    assert followed == [
        ("bronze__orders", "bronze.orders: 1 new file"),
        ("silver__sales", "silver.sales: bronze.orders changed"),
        ("gold__by_customer", "gold.by_customer: silver.sales changed"),
    ]
    assert project.ask("SELECT sum(orders) FROM gold.by_customer") == [(3,)]
    assert project.ask("SELECT count(*) FROM ops.runs") == [(4,)]  # each a transaction of its own


def test_checks_can_be_run_alone(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    project = shop(tmp_path)
    assert run(project, instance).ok
    defs = definitions(project.root)
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.checks_for_assets(key("gold/by_customer")))
    alone = ran(dg.Definitions.merge(defs, dg.Definitions(jobs=[job])), instance, "checks")
    assert alone.ok, alone.error
    assert alone.materialized == {}
    assert [(place, one.passed) for place, one in alone.checks.items()] == [
        (("gold/by_customer", "customer_is_unique"), True)
    ]


def test_what_cannot_be_done_is_refused_before_anything_is(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    project = shop(tmp_path)
    waiting = run(project, instance, asset_selection=[key("gold/by_customer")])
    assert (waiting.ok, waiting.materialized) == (False, {})
    assert "ICE-207 gold.by_customer: waiting for silver.sales (never built and not selected)" in waiting.error
    assert not waiting.checks["gold/by_customer", "customer_is_unique"].passed

    defs = definitions(project.root)
    project.declare(ORDERS[: ORDERS.index('@table("gold.by_customer"')])
    removed = ran(defs, instance, "tiny")
    assert (removed.ok, removed.materialized) == (False, {})
    assert "ICE-207 gold.by_customer: no longer declared" in removed.error
    assert "reload the code location" in removed.error
    assert len(removed.checks) == 5
    assert not any(one.passed for one in removed.checks.values())

    project.declare("import nowhere_to_be_found")
    broken = ran(defs, instance, "tiny")
    assert "ICE-204" in broken.error
    assert "tables.py:1" in broken.error

    project.declare(ORDERS)
    (project.root / "landing" / "orders" / "2.csv").write_text("who,are,you\n")
    header = run(project, instance)
    assert (header.ok, header.materialized) == (False, {})
    assert "ICE-402" in header.error
    assert project.everything() == {}


def test_an_asset_in_between_that_was_merged_in_later_is_refused_as_well(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = shop(tmp_path)

    @dg.asset(key=["landing", "orders"], deps=[["silver", "sales"]])
    def loop() -> None: ...

    defs = definitions(project.root)
    tables = [asset for asset in defs.assets if isinstance(asset, dg.AssetsDefinition)]
    split = dg.Definitions(assets=[*tables, loop], jobs=[dg.define_asset_job("all", selection="*")])
    try:
        done = ran(split, instance, "all")
    except dg.DagsterInvalidDefinitionError:  # a circle is refused by Dagster itself
        assert project.everything() == {}
        return
    assert "Dagster has split this run" in done.error
    assert project.everything() == {}


def months(root: Path, *bad: str) -> TinyProject:
    project = tiny(root, MONTHS)
    for number, month in enumerate(("2026-01", "2026-02", "2026-03"), 1):
        fare = "-1.00" if month in bad else f"{number}.00"
        project.land(f"{month}.csv", f"id,fare\n{number},{fare}\n", folder=".")
    return project


def test_a_partition_is_a_batch_and_unknown_ones_are_refused(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    project = months(tmp_path)
    one = run(project, instance, partition_key="2026-02")
    assert one.ok, one.error
    assert list(one.materialized) == ["raw/trips|2026-02", "marts/months"]
    assert project.ask("SELECT month FROM marts.months") == [("2026-02",)]
    none = run(project, instance)
    assert "ICE-207 raw.trips: partitioned, and the run has no partition" in none.error
    nobody = run(project, instance, partition_key="2026-04")  # a month that has no file yet
    assert "ICE-407 there are no files of the batch 2026-04" in nobody.error
    with pytest.raises(dg.DagsterUnknownPartitionError):  # a month that is none
        run(project, instance, partition_key="2026-13")
    assert project.ask("SELECT count(*) FROM ops.runs") == [(1,)]
    alone = run(project, instance, asset_selection=[key("marts/months")])
    assert alone.ok, alone.error
    raw = run(project, instance, asset_selection=[key("raw/trips")], partition_key="2026-01")
    both = run(project, instance, partition_key="2026-01")  # its files are taken in, and the mart is behind
    assert (raw.ok, both.materialized["raw/trips|2026-01"]["action"]) == (True, "none")
    assert project.ask("SELECT month FROM marts.months ORDER BY 1") == [("2026-01",), ("2026-02",)]


def test_several_partitions_of_one_run_are_a_transaction_each(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    project = months(tmp_path, "2026-03")
    tags = {"dagster/asset_partition_range_start": "2026-01", "dagster/asset_partition_range_end": "2026-03"}
    failed = run(project, instance, tags=tags, backfill_policy=dg.BackfillPolicy.single_run())
    assert not failed.ok
    assert list(failed.materialized) == ["raw/trips|2026-01", "marts/months", "raw/trips|2026-02"]
    assert project.ask("SELECT batch, status FROM ops.runs ORDER BY started_at") == [
        ("2026-01", "published"),
        ("2026-02", "published"),
        ("2026-03", "failed"),
    ]
    assert not failed.checks["raw/trips", "fare_is_not_negative"].passed
    project.land("2026-03.csv", "id,fare\n3,3.00\n", folder=".")
    mended = run(project, instance, tags=tags, backfill_policy=dg.BackfillPolicy.single_run())
    assert mended.ok, mended.error
    assert Counter(name.partition("|")[0] for name in mended.materialized) == {"raw/trips": 3, "marts/months": 1}
    assert project.ask("SELECT sum(fare) FROM marts.months") == [(6,)]
    rows = {name: (one["action"], one["dagster/row_count"]) for name, one in mended.materialized.items() if "|" in name}
    assert rows["raw/trips|2026-03"] == ("update", 3)
    assert rows["raw/trips|2026-02"] == ("none", 2)


def reference(root: Path, name: str, *generate: str) -> Path:
    """A copy of a reference project with a few rows, and settings for a few rows."""
    left = shutil.ignore_patterns("landing", "lake", "downloads", "reports", ".icefield", "__pycache__")
    shutil.copytree(ROOT / "pipelines" / name, root, ignore=left)
    toml = (
        (root / "icefield.toml")
        .read_text()
        .replace('"spark.driver.memory" = "3g"', "\n".join(f'"{key}" = "{value}"' for key, value in QUICK.items()))
    )
    (root / "icefield.toml").write_text(toml)
    command = [sys.executable, str(root / "generate.py"), *generate]
    subprocess.run(command, check=True, capture_output=True)
    return root


def test_the_shop_is_materialized(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    root = reference(tmp_path / "ecommerce", "ecommerce", "--rows", "2000", "--days", "2")
    done = run(root, instance, "everything")
    assert done.ok, done.error
    assert len(done.materialized) == 12
    assert all(one["dagster/row_count"] > 0 for one in done.materialized.values())
    blocking = {place: one.passed for place, one in done.checks.items() if one.blocking}
    assert len(blocking) > 5
    assert all(blocking.values())
    assert sum(not one.passed for one in done.checks.values()) > 0  # the generator makes dirty rows


def test_a_month_of_taxis_is_materialized(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    root = reference(tmp_path / "taxi", "taxi", "--rows", "200", "--months", "2")
    done = run(root, instance, "taxi", partition_key="2023-01")
    assert done.ok, done.error
    assert len(done.materialized) == 11
    assert done.materialized["raw/yellow_trips|2023-01"]["dagster/row_count"] == 200
    assert "raw/green_trips|2023-01" in done.materialized
    assert all(one["run_id"] for one in done.materialized.values())
    assert len({one["run_id"] for one in done.materialized.values()}) == 1
