"""Small manifests in dbt's form (v12), for tests that need no dbt; those with dbt show that real ones are like this."""

from __future__ import annotations

from typing import Any

USUAL = {
    "severity": "ERROR",
    "where": None,
    "limit": None,
    "fail_calc": "count(*)",
    "warn_if": "!= 0",
    "error_if": "!= 0",
}


def model(name: str, sql: str, /, *, materialized: str = "table", schema: str = "marts", **more: Any) -> dict[str, Any]:
    """A model; `more` are settings of its config, or its description, columns, tags, language."""
    own = {key: more.pop(key) for key in ("description", "columns", "tags", "language") if key in more}
    relation = None if materialized == "ephemeral" else f"{schema}.{name}"
    config = {"materialized": materialized, "pre-hook": [], "post-hook": [], **more}
    return _node("model", name, schema=schema, config=config, compiled_code=sql, relation_name=relation, **own)


def seed(name: str, **types: str) -> dict[str, Any]:
    config = {"materialized": "seed", "column_types": types, "delimiter": ","}
    return _node("seed", name, schema="raw", config=config, relation_name=f"raw.{name}")


def generic(kind: str, owner: str, column: str, reads: tuple[str, ...] = (), /, **more: Any) -> dict[str, Any]:
    """A generic test of a column; `more` are settings of its config, or its arguments."""
    config = {"materialized": "test", **USUAL, **{key: more.pop(key) for key in list(more) if key in USUAL}}
    name = f"{kind}_{owner.rpartition('.')[2]}_{column}"
    told = {"name": kind, "namespace": None, "kwargs": {"column_name": column, "model": "...", **more}}
    sql = f"select {column} from marts.{owner.rpartition('.')[2]} where {column} is null"
    depends = {"nodes": [*reads, owner]}
    extra = {"test_metadata": told, "attached_node": owner, "depends_on": depends, "compiled_code": sql}
    return _node("test", name, schema="audit", config=config, **extra)


def singular(name: str, sql: str, **more: Any) -> dict[str, Any]:
    config = {"materialized": "test", **USUAL, **more}
    return _node("test", name, schema="audit", config=config, compiled_code=sql)


def manifest(*nodes: dict[str, Any], sources: tuple[str, ...] = ()) -> dict[str, Any]:
    """A manifest of some nodes; sources are written schema.table."""
    told = {"project_name": "p", "dbt_version": "1.12.6", "adapter_type": "spark", "invocation_id": "1"}
    listed = [_source(*one.split(".")) for one in sources]
    return {
        "metadata": told,
        "nodes": {node["unique_id"]: node for node in nodes},
        "sources": {one["unique_id"]: one for one in listed},
        "macros": {},
    }


def _source(schema: str, name: str) -> dict[str, Any]:
    own = {"schema": schema, "identifier": name, "relation_name": f"{schema}.{name}", "source_name": schema}
    place = {"package_name": "p", "original_file_path": "models/sources.yml", "resource_type": "source"}
    return {"unique_id": f"source.p.{schema}.{name}", "name": name, **own, **place}


def _node(kind: str, name: str, **more: Any) -> dict[str, Any]:
    ending = "csv" if kind == "seed" else "sql"
    told = {"unique_id": f"{kind}.p.{name}", "resource_type": kind, "name": name, "alias": name, "package_name": "p"}
    return {**told, "original_file_path": f"{kind}s/{name}.{ending}", "language": "sql", **more}
