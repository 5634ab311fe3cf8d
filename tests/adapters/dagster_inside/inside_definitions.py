"""What Dagster is told of a project, without Spark and without a run. Carried out by tests/adapters/test_dagster.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from icefield.adapters.dagster import Job, definitions
from icefield.errors import (
    IcefieldError,
    ImportFailed,
    InvalidConfig,
    LandingMissing,
    NoTables,
    OrchestrationError,
    UnknownSelector,
)
from projects import ORDERS, SOURCES, TinyProject, order, tiny

ROOT = Path(__file__).parents[3]

TABLES = """
from icefield import by_key, debezium, expect, files, frames, kafka, reconciles, table, unique


@table(
    "bronze.orders", owners=["ann@example.com", "team:sales"], tags=["daily", "with space"], max_rejected="5%",
    source=files("landing/orders/*.csv", schema="id BIGINT COMMENT 'the number', a STRING"),
    checks=[expect("a is b", "a = 'b'"), unique("id", otherwise="fail")], otherwise="quarantine",
    columns="id BIGINT NOT NULL COMMENT 'the number', a STRING", partitioned_by=["bucket(4, id)"],
)
def orders(rows):
    '''Every order, as it came.'''
    return rows


@table("bronze.months", source=files("landing/trips_{month}.*", schema="x BIGINT", batch="month"),
       refresh=by_key("month"))
def months(rows):
    return rows


@table("raw.topic", source=kafka("readings.*", schema="x BIGINT"))
def topic(rows):
    return rows


@table("raw.changes", source=debezium("shop.public.orders"))
def changes(rows):
    return rows


@table("raw.made", source=frames(lambda: [(1,)], schema="x BIGINT"))
def made(rows):
    return rows


@table("gold.sums", inputs={"orders": "bronze.orders", "refused": "bronze.orders__quarantine"},
       checks=[reconciles("same", {"gold.sums": "count(*)", "bronze.orders": "count(*)"}, otherwise="warn")])
def sums(orders, refused):
    return orders
"""


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    return tiny(tmp_path / "shop", TABLES)


def specs(defs: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def checks(defs: dg.Definitions) -> dict[tuple[str, str], bool]:
    found = [spec for asset in defs.resolve_asset_graph().assets_defs for spec in asset.check_specs]
    return {(spec.asset_key.to_user_string(), spec.name): spec.blocking for spec in found}


def test_an_asset_says_all_that_its_declaration_does(project: TinyProject) -> None:
    spec = specs(definitions(project.root))["bronze/orders"]
    assert (spec.group_name, spec.description) == ("bronze", "Every order, as it came.")
    assert spec.kinds == {"iceberg", "spark", "bronze"}
    assert spec.owners == ["ann@example.com", "team:sales"]
    assert {key: value for key, value in spec.tags.items() if not key.startswith("dagster/kind")} == {
        "daily": "",
        "with_space": "",
    }
    schema = spec.metadata["dagster/column_schema"]
    assert [(c.name, c.type, c.description, c.constraints.nullable) for c in schema.columns] == [
        ("id", "bigint", "the number", False),
        ("a", "string", None, True),
    ]
    (place,) = spec.metadata["dagster/code_references"].code_references
    assert (place.file_path, place.line_number) == (str(project.root / "tables.py"), 5)
    assert spec.metadata["refresh"] == "append()"
    assert spec.metadata["partitioned by"] == "bucket(4, id)"
    assert spec.metadata["dagster/table_name"] == "bronze.orders"


def test_lineage_begins_at_sources(project: TinyProject) -> None:
    found = {
        key: sorted(dep.asset_key.to_user_string() for dep in spec.deps)
        for key, spec in specs(definitions(project.root)).items()
    }
    assert found == {
        "bronze/orders": ["landing/orders"],
        "bronze/months": ["landing/trips"],
        "raw/topic": ["kafka/readings"],
        "raw/changes": ["kafka/shop_public_orders"],
        "raw/made": [],
        "gold/sums": ["bronze/orders"],
        "landing/orders": [],
        "landing/trips": [],
        "kafka/readings": [],
        "kafka/shop_public_orders": [],
    }
    assert specs(definitions(project.root))["landing/orders"].kinds == {"csv"}
    assert specs(definitions(project.root))["kafka/shop_public_orders"].kinds == {"kafka", "debezium"}
    assert "x/gold/sums" in specs(definitions(project.root, prefix=["x"]))


def test_a_source_with_the_name_of_a_table_is_set_apart(tmp_path: Path) -> None:
    declared = """
        from icefield import files, table
        @table("seeds.ghosts", source=files("seeds/ghosts.csv", schema="x BIGINT"))
        def ghosts(rows): return rows
        @table("marts.hunts", inputs={"ghosts": "seeds.ghosts"})
        def hunts(ghosts): return ghosts
    """
    project = tiny(tmp_path, declared)
    for prefix in ("", "x/"):
        found = specs(definitions(project.root, prefix=list(filter(None, prefix.split("/")))))
        assert {key: [dep.asset_key.to_user_string() for dep in spec.deps] for key, spec in found.items()} == {
            f"{prefix}seeds/ghosts": [f"{prefix}sources/seeds/ghosts"],
            f"{prefix}marts/hunts": [f"{prefix}seeds/ghosts"],
            f"{prefix}sources/seeds/ghosts": [],
        }


def test_checks_block_as_declared_also_those_that_nobody_wrote(project: TinyProject) -> None:
    assert {key: value for key, value in checks(definitions(project.root)).items() if key[0] != "raw/topic"} == {
        ("bronze/orders", "every_line_can_be_read"): False,
        ("bronze/orders", "a_is_b"): False,
        ("bronze/orders", "id_is_unique"): True,
        ("bronze/orders", "at_most_5_rejected"): True,
        ("bronze/months", "every_line_can_be_read"): False,
        ("raw/changes", "every_line_can_be_read"): False,
        ("raw/made", "every_line_can_be_read"): False,
        ("gold/sums", "same"): False,
    }


def test_names_that_would_meet_in_dagster_are_kept_apart(tmp_path: Path) -> None:
    declared = """
        from icefield import expect, files, table
        SOURCE = files("landing/*.csv", schema="x BIGINT")
        LONG = "x is " + "very " * 60 + "small"
        CHECKS = [expect("b is c", "x > 0"), expect("b-is c", "x > 1"), expect(LONG, "x < 9")]
        @table("s.a", source=SOURCE, checks=CHECKS)
        def a(rows): return rows
        @table("s.a_b", source=SOURCE, checks=[expect("is c", "x > 0"), expect("+", "x > 1")])
        def b(rows): return rows
    """
    found = checks(definitions(tiny(tmp_path, declared).root))
    assert ("s/a", "b_is_c") in found
    assert ("s/a", "b_is_c_2") in found
    assert ("s/a_b", "is_c_3") in found  # is_c_2 would meet b_is_c_2 of s.a
    assert ("s/a_b", "check") in found
    assert max(len(name) for _, name in found) < 120


@pytest.mark.parametrize(
    ("landed", "more", "kind", "keys"),
    [
        (["2026-02", "2026-01"], "", dg.MonthlyPartitionsDefinition, ["2026-01", "2026-02", "2026-03"]),
        (["2026-02-27"], "", dg.DailyPartitionsDefinition, ["2026-02-27", "2026-02-28", "2026-03-01"]),
        (["north", "2026-01"], "", dg.DynamicPartitionsDefinition, None),
        ([], 'partitions_from = "2011-12"', dg.MonthlyPartitionsDefinition, ["2011-12", "2012-01", "2012-02"]),
        ([], 'partitions = "dynamic"', dg.DynamicPartitionsDefinition, None),
    ],
)
def test_batches_are_partitions(project: TinyProject, landed: list[str], more: str, kind: type, keys: Any) -> None:
    for value in landed:
        project.land(f"trips_{value}.csv", "x\n1\n", folder=".")
    with (project.root / "icefield.toml").open("a") as toml:
        toml.write(f"[dagster]\n{more}\n")
    found = specs(definitions(project.root))
    assert isinstance(found["bronze/months"].partitions_def, kind)
    assert keys is None or found["bronze/months"].partitions_def.get_partition_keys()[:3] == keys
    assert found["bronze/orders"].partitions_def is None
    assert found["gold/sums"].partitions_def is None


def test_partitions_can_be_given(project: TinyProject) -> None:
    own = dg.StaticPartitionsDefinition(["a", "b"])
    assert specs(definitions(project.root, partitions=own))["bronze/months"].partitions_def == own


def test_one_job_over_all_tables_unless_others_are_named(project: TinyProject) -> None:
    def told(**options: Any) -> tuple[dict[str, int], list[str], list[str]]:
        defs = definitions(project.root, **options)
        jobs = {job.name: len(defs.resolve_job_def(job.name).asset_layer.executable_asset_keys) for job in defs.jobs}
        return jobs, [one.name for one in defs.schedules], [one.name for one in defs.sensors]

    assert told() == ({"tiny": 6}, [], ["tiny_sensor"])
    with (project.root / "icefield.toml").open("a") as toml:
        toml.write(
            '[dagster.jobs.gold]\nselect = "gold.*"\nschedule = "0 */6 * * *"\ntimezone = "Europe/Berlin"\n'
            'sensor = false\n[dagster.jobs.raw]\nselect = "bronze raw"\nexclude = "raw.made"\n'
            'sensor = ["files", "offsets"]\nevery = "10s"\n'
        )
    assert told() == ({"gold": 1, "raw": 4}, ["gold_schedule"], ["raw_sensor"])
    (schedule,) = definitions(project.root).schedules
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 */6 * * *", "Europe/Berlin")
    assert definitions(project.root).sensors[0].minimum_interval_seconds == 10
    assert told(jobs=[Job(name="mine", select="raw.made", sensor=())]) == ({"mine": 1}, [], [])
    jobs, _, sensors = told(jobs="per table")
    assert jobs == {
        name: 1
        for name in ("bronze__orders", "bronze__months", "raw__topic", "raw__changes", "raw__made", "gold__sums")
    }
    assert len(sensors) == 6


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("[dagster]\npreviews = 3", "did you mean `preview`"),
        ("[dagster]\npreview = -1", "not a number of rows"),
        ('[dagster]\njobs = "per tables"', 'jobs = "per table"'),
        ('[dagster]\npartitions = "weekly"', "monthly, daily, dynamic"),
        ('[dagster]\npartitions_from = "2023"', "does not fit"),
        ("[dagster.jobs.a]\nselects = 'x'", "did you mean `select`"),
        ("[dagster.jobs.a-b]\nselect = 'x'", "letters, digits and underscores"),
        ("[dagster.jobs.a]\nsensor = ['file']", "did you mean `files`"),
        ("[dagster.jobs.a]\nevery = 'often'", "not a duration"),
        ("[dagster.jobs.a]\nrunning = 'yes'", "neither true nor false"),
    ],
)
def test_wrong_settings_are_told_with_a_remedy(project: TinyProject, section: str, says: str) -> None:
    with (project.root / "icefield.toml").open("a") as toml:
        toml.write(section + "\n")
    with pytest.raises(InvalidConfig) as told:
        definitions(project.root)
    assert says in str(told.value)


def test_a_job_over_no_table_and_one_of_two_kinds_of_partitions_are_refused(tmp_path: Path) -> None:
    declared = """
        from icefield import by_key, files, table
        for name in ("a", "b"):
            @table(f"s.{name}", source=files(f"landing/{name}_{{part}}.csv", schema="x BIGINT", batch="part"),
                   refresh=by_key("part"))
            def rows_of(rows): return rows
    """
    project = tiny(tmp_path, declared)
    project.land("a_2026-01.csv", "x\n", folder=".")
    project.land("b_2026-01-01.csv", "x\n", folder=".")
    with pytest.raises(OrchestrationError, match=r"s\.a: monthly; s\.b: daily"):
        definitions(project.root)
    assert len(list(definitions(project.root, jobs="per table").jobs)) == 2
    with pytest.raises(UnknownSelector, match=r"matches no table"):
        definitions(project.root, jobs=[Job(name="x", select="s.c")])


def test_own_assets_stand_in_for_sources_and_never_in_between(tmp_path: Path) -> None:
    project = tiny(tmp_path, ORDERS)

    @dg.asset(key=["landing", "orders"])
    def download() -> None: ...

    @dg.asset(deps=[["gold", "by_customer"]])
    def mail() -> None: ...

    defs = definitions(project.root, assets=[download, mail])
    assert defs.resolve_asset_graph().get(dg.AssetKey(["landing", "orders"])).is_materializable
    dg.Definitions.validate_loadable(defs)

    @dg.asset(key=["landing", "orders"], deps=[["silver", "sales"]])
    def loop() -> None: ...

    steps = [dg.AssetSpec("a", deps=[["silver", "sales"]]), dg.AssetSpec(["landing", "orders"], deps=["a"])]
    for between, name in (([loop], "landing/orders"), (steps, "a")):
        with pytest.raises(
            OrchestrationError, match=rf"the asset {name} reads silver\.sales and is read by bronze\.orders"
        ):
            definitions(project.root, assets=between)


def test_a_project_that_does_not_load_says_where(tmp_path: Path) -> None:
    project = tiny(tmp_path, "from icefield import table\nimport nowhere_to_be_found\n")
    with pytest.raises(ImportFailed, match=r"tables\.py:2"):
        definitions(project.root)
    with pytest.raises(IcefieldError, match="ICE-201"):
        definitions(tmp_path / "nowhere")
    project.declare("")
    with pytest.raises(NoTables):
        definitions(project.root)


def test_published_columns_are_told_where_none_are_declared(tmp_path: Path) -> None:
    from lakes import new_lake, publish

    project = tiny(tmp_path, ORDERS)
    publish(new_lake(project.root / "lake"), {"gold.by_customer": [1]}, "20260101T000000-aaaaaa")
    schema = specs(definitions(project.root))["gold/by_customer"].metadata["dagster/column_schema"]
    assert [(column.name, column.type) for column in schema.columns] == [("value", "long")]


LOAD = """
import sys, time
import dagster
for project in sys.argv[1:]:
    before = time.process_time()
    from icefield.adapters.dagster import definitions
    defs = definitions(project)
    print(time.process_time() - before, len(defs.resolve_all_asset_keys()))
print(*({"pyspark", "py4j"} & set(sys.modules)))
"""


def test_loading_takes_less_than_half_a_second_beside_dagster_and_no_pyspark(tmp_path: Path) -> None:
    left = shutil.ignore_patterns("landing", "lake", ".icefield")
    names = ("ecommerce", "taxi", "sensors", "shop")
    roots = [shutil.copytree(ROOT / "pipelines" / name, tmp_path / name, ignore=left) for name in names]
    for root in roots:
        definitions(root)  # the graph is in the cache from now on
    command, paths = [sys.executable, "-c", LOAD, *map(str, roots)], {**os.environ, "PYTHONPATH": str(SOURCES)}
    *told, jvm = subprocess.run(command, check=True, capture_output=True, text=True, env=paths).stdout.splitlines()
    assert jvm == ""
    for line in told:
        seconds, tables = line.split()
        assert int(tables) > 2
        assert float(seconds) < 0.5  # of the processor's time, however busy the machine is


def test_a_sensor_asks_once_for_the_same_news(tmp_path: Path) -> None:
    project = tiny(tmp_path, ORDERS)
    defs = definitions(project.root)
    (sensor,) = defs.sensors
    repository = defs.get_repository_def()

    def look() -> dg.SensorExecutionData:
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(instance=instance, repository_def=repository)
            return sensor.evaluate_tick(context)

    with pytest.raises(LandingMissing):
        look()
    project.land("1.csv", [order(1)])
    first, second = look(), look()
    assert [request.run_key for request in first.run_requests] == [request.run_key for request in second.run_requests]
    assert first.run_requests[0].tags["icefield/due"] == "bronze.orders: 1 new file"
    project.land("2.csv", [order(2)])
    assert look().run_requests[0].run_key != first.run_requests[0].run_key


def test_a_sensor_hears_of_new_messages(tmp_path: Path) -> None:
    left = shutil.ignore_patterns("lake", ".icefield")
    root = Path(shutil.copytree(ROOT / "pipelines" / "sensors", tmp_path / "sensors", ignore=left))
    recorded = root / "recorded" / "sensor-readings" / "00000.jsonl"
    lines = recorded.read_text().splitlines(keepends=True)

    def look(kinds: tuple[Any, ...]) -> dg.SensorExecutionData:
        defs = definitions(root, jobs=[Job(name="stream", sensor=kinds)])
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(instance=instance, repository_def=defs.get_repository_def())
            return defs.sensors[0].evaluate_tick(context)

    keys = set()
    for count in (100, 101):
        recorded.write_text("".join(lines[:count]))
        (request,) = look(("offsets",)).run_requests
        assert request.tags["icefield/due"] == f"raw.sensor_readings: {count} new messages"
        keys.add(request.run_key)
    assert len(keys) == 2
    assert not look(("files", "upstream")).run_requests  # which are not what has come


def test_a_sensor_asks_for_each_month_and_names_those_that_are_no_partition(
    project: TinyProject, tmp_path: Path
) -> None:
    project.land("1.csv", "id,a\n1,b\n")
    for month in ("2026-02", "2025-12", "2026-01"):
        project.land(f"trips_{month}.csv", "x\n1\n", folder=".")
    months = dg.MonthlyPartitionsDefinition(start_date="2026-01", fmt="%Y-%m", end_offset=1)
    jobs = [Job(name="files", select="bronze"), Job(name="months", select="bronze.months", exclude="")]
    defs = definitions(project.root, jobs=jobs, partitions=months)
    repository = defs.get_repository_def()
    (home := tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        for sensor in defs.sensors:
            found = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, repository_def=repository))
            assert [request.partition_key for request in found.run_requests] == ["2026-01", "2026-02"], sensor.name
        early = dg.MonthlyPartitionsDefinition(start_date="2026-05", fmt="%Y-%m", end_offset=1)
        defs = definitions(project.root, jobs=jobs[1:], partitions=early)
        found = defs.sensors[0].evaluate_tick(
            dg.build_sensor_context(instance=instance, repository_def=defs.get_repository_def())
        )
        assert found.skip_message == "files of 2025-12, 2026-01, 2026-02, which is no partition of this job"
        dynamic = definitions(project.root, jobs=jobs[1:], partitions=dg.DynamicPartitionsDefinition(name="all"))
        context = dg.build_sensor_context(instance=instance, repository_def=dynamic.get_repository_def())
        asked = dynamic.sensors[0](context)  # Dagster looks for the partitions afterwards, in an instance of its own
        assert [request.partition_key for request in asked] == ["2025-12", "2026-01", "2026-02"]
        assert instance.get_dynamic_partitions("all") == ["2025-12", "2026-01", "2026-02"]
