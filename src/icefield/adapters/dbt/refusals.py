"""What icefield cannot take of a dbt project, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MATERIALIZED = ("view", "table", "incremental", "ephemeral", "test", "seed")
_KINDS = {
    "snapshot": "a snapshot records what it saw at the times of its runs, which no rebuild can repeat: take in the"
    " changes themselves and use icefield.cdc.history",
    "operation": "an operation runs outside of tables: do it before or after `icefield run`",
}
#: Options of incremental models by which a table is not what a full refresh gives.
_PARTIAL = {
    "incremental_predicates": "it compares only a part of the table with new rows",
    "merge_update_columns": "it keeps old values of some columns",
    "merge_exclude_columns": "it keeps old values of some columns",
}


def why_not(node: Mapping[str, Any], errors: Mapping[str, str]) -> str:
    """Why icefield cannot take a node of the manifest; empty where it can."""
    config = node["config"]
    if node["resource_type"] in _KINDS:
        return _KINDS[node["resource_type"]]
    if node["resource_type"] not in ("model", "seed", "test"):
        return f"icefield has nothing like a {node['resource_type']}"
    if node.get("language") == "python":
        return "a Python model: declare it as a function with @table"
    if config.get("materialized") not in _MATERIALIZED:
        return f"its materialization {config.get('materialized')} is not one of dbt's own for tables"
    if config.get("sql_header"):
        return "sql_header: icefield runs one query a table"
    for option, meaning in _PARTIAL.items():
        if config.get(option):
            return f"{option}: {meaning}, so its rows are not those of a full refresh"
    if node["unique_id"] in errors:
        return " ".join(errors[node["unique_id"]].split())
    if node["resource_type"] != "seed" and not (node.get("compiled_code") or "").strip():
        return "dbt did not compile it"
    return ""


def hooks_of(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The hooks of a node that is taken itself: ("post-hook", why not)."""
    for hook in ("pre-hook", "post-hook"):
        told = "; ".join(
            str(one.get("sql") if isinstance(one, Mapping) else one) for one in node["config"].get(hook) or []
        )
        if told:
            yield hook, f"a hook changes the database beside the model: {' '.join(told.split())}"
