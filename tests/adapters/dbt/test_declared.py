"""`models`: the tables of a compiled dbt project, declared; without dbt and without Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from manifests import generic, manifest, model, seed, singular

from icefield.adapters.dbt.compiled import digests
from icefield.adapters.dbt.manifest import Answer, convert
from icefield.declare import ByKey, Full
from icefield.errors import DbtNotCompiled, DbtNotTaken
from icefield.project import open_project

STORE = Path(__file__).parent / "store"
RAW = seed("events", id="bigint", at="timestamp")


@pytest.fixture
def project(tmp_path):
    """A project over a dbt project of some nodes."""

    def make(*nodes, options="", sources=(), refresh=None, more=""):
        (tmp_path / "dbt").mkdir(exist_ok=True)
        compiled = convert(manifest(*nodes, sources=sources), Answer())
        decided = {
            id: replace(one, refresh=(refresh or {}).get(one.name, one.refresh)) for id, one in compiled.taken.items()
        }
        (tmp_path / "dbt" / "dbt_project.yml").write_text("name: p\n")
        files = digests(tmp_path / "dbt", ["dbt_project.yml"])
        replace(compiled, taken=decided, files=files).write(tmp_path / "dbt")
        (tmp_path / "icefield.toml").write_text("")
        text = f'from icefield import *\nfrom icefield.adapters.dbt import models\nmodels("dbt"{options})\n{more}'
        (tmp_path / "tables.py").write_text(text)
        return open_project(tmp_path)

    return make


def test_the_store_is_declared_from_what_was_compiled():
    graph = open_project(STORE).graph
    orders = graph["store_marts.orders"]
    assert isinstance(orders.refresh, ByKey)
    assert orders.keys == ("order_id",)
    assert orders.inputs == ("store_raw.raw_payments", "store_staging.stg_orders")  # the view between is a helper
    assert orders.comment == "One row for each order, with what was paid for it."
    assert orders.comments["amount"] == "In euros, all ways of payment together."
    assert str(orders.location) == "dbt/models/marts/orders.sql:1"
    assert [check.name for check in orders.row_checks] == ["customer_id is not null", "order_id is not null"]
    assert isinstance(graph["store_marts.customers"].refresh, Full)
    assert graph["store_raw.raw_orders"].source.path == "dbt/seeds/raw_orders.csv"


def test_loading_the_store_imports_neither_dbt_nor_pyspark(tmp_path):
    shutil.copytree(STORE, tmp_path / "store", ignore=shutil.ignore_patterns(".icefield", "lake"))
    code = (
        "import sys; from icefield.project import open_project; open_project(sys.argv[1]);"
        "print([name for name in ('dbt', 'pyspark', 'yaml', 'duckdb') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_project_that_was_never_compiled_says_how(tmp_path):
    (tmp_path / "icefield.toml").write_text("")
    (tmp_path / "tables.py").write_text('from icefield.adapters.dbt import models\n\nmodels("reports")\n')
    with pytest.raises(DbtNotCompiled) as refused:
        open_project(tmp_path)
    assert refused.value.where == "tables.py:3"
    assert refused.value.remedy == "run: icefield dbt compile reports"


def test_a_model_that_changed_since_is_not_run_by_its_old_query(project, tmp_path):
    opened = project(RAW, model("a", "select * from raw.events e"))
    assert "marts.a" in opened.graph
    (tmp_path / "dbt" / "dbt_project.yml").write_text("name: other\n")
    with pytest.raises(DbtNotCompiled, match=r"changed since it was compiled: dbt_project\.yml"):
        open_project(tmp_path)  # not from the cache


def test_a_file_that_is_no_compiled_project_is_refused(project, tmp_path):
    project(RAW)
    for text in ("", "{}", '{"version": 1, "taken": [{}]}', "[1]"):
        (tmp_path / "dbt" / "icefield_models.json").write_text(text)
        with pytest.raises(DbtNotCompiled, match="cannot be used"):
            open_project(tmp_path)


SNAPSHOT = {**model("history", "select 1", materialized="snapshot"), "resource_type": "snapshot"}
READER = model("after", "select * from marts.history h")


def test_what_cannot_be_taken_stops_the_project_until_the_author_goes_on_without(project):
    nodes = (RAW, model("a", "select * from raw.events e"), SNAPSHOT, READER)
    with pytest.raises(DbtNotTaken) as refused:
        project(*nodes)
    told = str(refused.value)
    assert "history: a snapshot records" in told
    assert "after: it reads history, which is not taken" in told
    assert 'leave_out=["history", "after"]' in told
    with pytest.raises(DbtNotTaken, match="after"):
        project(*nodes, options=', leave_out=["history"]')
    opened = project(*nodes, options=', leave_out=["history", "after"]')
    assert set(opened.graph.nodes) == {"raw.events", "marts.a"}


def test_a_model_can_be_left_out_with_those_that_read_it(project):
    nodes = (RAW, model("a", "select * from raw.events e"), model("b", "select * from marts.a a"))
    with pytest.raises(DbtNotTaken, match="b: it reads a, which is not taken"):
        project(*nodes, options=', leave_out=["a"]')
    assert set(project(*nodes, options=', leave_out=["a", "b"]').graph.nodes) == {"raw.events"}


def test_a_table_of_icefields_can_stand_for_what_is_not_taken(project):
    more = '@table("own.history")\ndef history(events):\n    return events\n'
    opened = project(RAW, SNAPSHOT, READER, options=', inputs={"history": "own.history"}', more=more)
    assert opened.graph["marts.after"].inputs == ("own.history",)


def test_sources_are_tables_of_the_project(project):
    more = '@table("bronze.orders", source=files("x.csv", schema="id INT"))\ndef orders(rows):\n    return rows\n'
    node = model("a", "select * from bronze.orders o join crm.people p on o.id = p.id")
    options = ', inputs={"crm.people": "bronze.orders"}'
    opened = project(node, sources=("bronze.orders", "crm.people"), options=options, more=more)
    assert opened.graph["marts.a"].inputs == ("bronze.orders",)


def test_names_that_the_dbt_project_does_not_have_are_noticed(project):
    with pytest.raises(DbtNotTaken, match="has no snapshots") as refused:
        project(RAW, SNAPSHOT, options=', leave_out=["snapshots"]')
    assert "history" in refused.value.remedy


def test_schemas_get_other_names_in_tables_inputs_and_checks(project):
    check = generic("relationships", "model.p.a", "id", ("seed.p.events",), to="ref('events')", field="id")
    opened = project(
        RAW, model("a", "select * from raw.events e"), check, options=', schemas={"marts": "gold", "raw": "bronze"}'
    )
    assert opened.graph["gold.a"].inputs == ("bronze.events",)
    assert opened.graph["gold.a"].table_checks[0].to == "bronze.events"


def test_tests_can_set_rows_aside_where_they_are_about_rows(project):
    nodes = (RAW, model("a", "select * from raw.events e"), generic("not_null", "model.p.a", "id"))
    nodes += (generic("unique", "model.p.a", "id"), generic("unique", "seed.p.events", "id"))
    nodes += (singular("odd", "select * from marts.a where id = 1"),)
    graph = project(*nodes, options=', otherwise="quarantine"').graph
    assert [check.otherwise for check in graph["marts.a"].row_checks] == ["quarantine"]
    assert [check.otherwise for check in graph["marts.a"].table_checks] == ["fail"]  # none of its rows came first
    assert [check.otherwise for check in graph["audit.odd"].table_checks] == ["fail"]
    assert graph["raw.events"].table_checks[0].otherwise == "quarantine"


def test_what_was_proven_decides_the_refresh_and_the_inputs(project):
    node = model("a", "select x.id from raw.events x join raw.rates r", materialized="incremental", unique_key="id")
    proven = {"by_key": ["id"], "inputs": {"events": {}, "rates": "lookup"}}
    graph = project(RAW, seed("rates", rate="double"), node, refresh={"a": proven}).graph
    assert graph["marts.a"].keys == ("id",)
    assert [edge.lookup for edge in graph["marts.a"].edges] == [False, True]
    proven = {"by_key": ["id"], "inputs": {"events": {"id": "at"}, "rates": "lookup"}}
    graph = project(RAW, seed("rates", rate="double"), node, refresh={"a": proven}).graph
    assert graph["marts.a"].edges[0].key == {"id": "at"}


def test_only_another_query_is_another_meaning(project):
    def fingerprint(sql, **more):
        return project(RAW, model("a", sql, **more)).graph["marts.a"].fingerprint

    one = fingerprint("select * from raw.events e", description="A.")
    assert fingerprint("select  *  -- all\nfrom raw.events e", description="B.", tags=["t"]) == one
    assert fingerprint("select id from raw.events e") != one


def test_a_changed_view_changes_the_meaning_of_its_readers(project):
    def fingerprint(sql):
        nodes = (RAW, model("v", sql, materialized="view"), model("a", "select * from marts.v v"))
        return project(*nodes).graph["marts.a"].fingerprint

    assert fingerprint("select * from raw.events e") != fingerprint("select id from raw.events e")
