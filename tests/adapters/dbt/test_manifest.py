"""What icefield takes of a dbt project, and what it refuses with which reason."""

from __future__ import annotations

import pytest
from manifests import generic, manifest, model, seed, singular

from icefield.adapters.dbt.compiled import Compiled, read
from icefield.adapters.dbt.manifest import Answer, convert, files_of

RAW = seed("events", id="bigint", at="timestamp", amount="decimal(12, 2)")
OVER_RAW = "select * from raw.events e"


def converted(*nodes, answer=None, sources=()) -> Compiled:
    return convert(manifest(*nodes, sources=sources), answer or Answer())


def test_tables_are_full_and_incremental_models_want_their_key():
    found = converted(
        RAW,
        model("a", OVER_RAW),
        model("b", OVER_RAW, materialized="incremental", unique_key=["id", "at"]),
        model("c", OVER_RAW, materialized="incremental"),
        model("d", OVER_RAW, materialized="incremental", incremental_strategy="microbatch"),
        model("e", OVER_RAW, materialized="incremental", incremental_strategy="insert_overwrite", partition_by="at"),
        model("f", OVER_RAW, materialized="incremental", unique_key="concat(id, at)"),
    ).taken
    assert {one.name: one.wanted for one in found.values() if one.kind == "table"} == {
        "a": {},
        "b": {"by_key": ["id", "at"]},
        "c": {"append": []},
        "d": {},
        "e": {"by_key": ["at"]},
        "f": {},
    }
    assert all(one.refresh == {"full": []} for one in found.values())  # until something is proven
    assert "is an expression" in found["model.p.f"].notes[-1]


def test_a_view_is_a_helper_unless_it_is_checked_or_nobody_reads_it():
    found = converted(
        RAW,
        model("plain", OVER_RAW, materialized="view"),
        model("checked", OVER_RAW, materialized="view"),
        model("last", "select * from marts.plain, marts.checked", materialized="view"),
        generic("not_null", "model.p.checked", "id"),
    ).taken
    assert {one.name: one.kind for one in found.values()} == {
        "events": "seed",
        "plain": "view",
        "checked": "table",
        "last": "table",
    }


def test_the_four_generic_tests_are_checks_in_which_null_passes_as_in_dbt():
    found = converted(
        RAW,
        model("orders", OVER_RAW),
        generic("unique", "model.p.orders", "id"),
        generic("not_null", "model.p.orders", "id", severity="WARN"),
        generic("accepted_values", "model.p.orders", "status", values=["a", "it's"]),
        generic("accepted_values", "model.p.orders", "size", values=[1, 2], quote=False),
        generic("relationships", "model.p.orders", "id", ("seed.p.events",), to="ref('events')", field="id"),
    )
    assert list(found.taken["model.p.orders"].checks) == [
        {"expect": ["size is one of 1, 2", "`size` IN (1, 2)"], "otherwise": "fail"},
        {"expect": ["status is one of a, it's", r"`status` IN ('a', 'it\'s')"], "otherwise": "fail"},
        {"not_null": ["id"], "otherwise": "warn"},
        {"unique": ["id"], "otherwise": "fail"},
        {"references": ["id", "seed.p.events"], "otherwise": "fail"},
    ]
    assert not [one for one in found.taken.values() if one.kind == "test"]


def test_all_other_tests_are_tables_of_the_rows_that_fail():
    found = converted(
        RAW,
        model("orders", OVER_RAW),
        singular("no_gap", "select * from marts.orders where id is null", error_if="> 10", warn_if="> 0"),
        generic("not_null", "model.p.orders", "id", where="at > now()"),
        generic("relationships", "model.p.orders", "id", ("seed.p.events",), to="ref('events')", field="other"),
        generic("is_recent", "model.p.orders", "at", severity="WARN"),
    )
    tests = {one.name: one for one in found.taken.values() if one.kind == "test"}
    assert list(tests["no_gap"].checks) == [
        {"expect_table": ["no_gap", "coalesce(NOT (count(*) > 10), true)"], "otherwise": "fail"},
        {"expect_table": ["no_gap (warn_if)", "coalesce(NOT (count(*) > 0), true)"], "otherwise": "warn"},
    ]
    assert tests["no_gap"].query == "select * from {orders} AS `orders` where id is null"
    assert tests["is_recent_orders_at"].checks[0]["otherwise"] == "warn"
    assert set(tests) == {"no_gap", "not_null_orders_id", "relationships_orders_id", "is_recent_orders_at"}


REFUSED = {
    "reads itself": model("x", "select * from marts.x, raw.events", materialized="incremental"),
    "Python model": model("x", "", language="python"),
    "materialized_view": model("x", OVER_RAW, materialized="materialized_view"),
    "not those of a full refresh": model("x", OVER_RAW, materialized="incremental", merge_update_columns=["at"]),
    "incremental_predicates": model("x", OVER_RAW, materialized="incremental", incremental_predicates=["at > 1"]),
    "sql_header": model("x", OVER_RAW, sql_header="SET a = 1"),
    "reads no table": model("x", "select 1 as one"),
    "no rebuild can repeat": {**model("x", OVER_RAW, materialized="snapshot"), "resource_type": "snapshot"},
    "an operation runs outside": {**model("x", "vacuum"), "resource_type": "operation"},
    "dbt did not compile it": model("x", " "),
    "lower-case alias": model("x", OVER_RAW, schema="9marts"),
    "column_types": seed("x"),
}


@pytest.mark.parametrize(("reason", "node"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_taken_has_its_reason(reason, node):
    found = converted(RAW, node)
    assert reason in found.left["x"]
    assert [one.name for one in found.taken.values()] == ["events"]


def test_a_model_that_dbt_could_not_compile_has_dbts_reason():
    found = converted(RAW, model("x", OVER_RAW), answer=Answer(errors={"model.p.x": "it runs\n  a query"}))
    assert found.left == {"x": "it runs a query"}


def test_a_hook_is_not_taken_but_its_model_is():
    found = converted(RAW, model("x", OVER_RAW, **{"post-hook": [{"sql": "analyze  table x"}]}))
    assert found.left == {"x.post-hook": "a hook changes the database beside the model: analyze table x"}
    assert "model.p.x" in found.taken


def test_relations_of_the_same_name_are_told_apart():
    sql = "select * from crm.orders a join shop.orders b on a.id = b.id"
    found = converted(model("x", sql), sources=("crm.orders", "shop.orders")).taken["model.p.x"]
    assert found.query == "select * from {crm_orders} a join {shop_orders} b on a.id = b.id"
    assert found.reads == {"crm_orders": "source.p.crm.orders", "shop_orders": "source.p.shop.orders"}


def test_types_of_other_databases_are_sparks():
    types = {"a": "varchar(20)", "b": "double precision", "c": "int8", "d": "numeric(12, 2)", "e": "timestamptz"}
    found = converted(RAW, answer=Answer(seeds={"seed.p.events": types})).taken["seed.p.events"]
    assert found.schema == "`a` STRING, `b` DOUBLE, `c` BIGINT, `d` DECIMAL(12,2), `e` TIMESTAMP"


def test_the_rows_of_seeds_are_data_and_no_files_of_the_project():
    files = set(files_of(manifest(RAW, model("x", OVER_RAW), sources=("crm.orders",))))
    assert {"models/x.sql", "models/sources.yml", "dbt_project.yml"} <= files
    assert "seeds/events.csv" not in files


def test_what_is_written_is_read_again(tmp_path):
    found = converted(
        RAW,
        model("a", "select 1,\n2 from raw.events e", description="A.", tags=["t"]),
        generic("unique", "model.p.a", "id"),
    )
    assert read(found.write(tmp_path)) == found
