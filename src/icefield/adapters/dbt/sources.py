"""Published tables as sources of a dbt project: `sources.yml`, and a profile for dbt-duckdb."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from icefield.declare import FreshWithin
from icefield.query.overview import columns as columns_of

if TYPE_CHECKING:
    from icefield.graph import Graph
    from icefield.query import Pin

#: How a file begins that icefield has written, and may write again.
HEAD = "# Written by `icefield dbt sources`, which writes it anew: do not edit."
#: The name that the lake has in dbt's database.
DATABASE = "lake"
PLUGIN = "icefield.adapters.dbt.duckdb_plugin"
_TYPES = {
    "long": "bigint",
    "int": "integer",
    "float": "float",
    "string": "varchar",
    "binary": "blob",
    "timestamp": "timestamp",
    "timestamptz": "timestamp with time zone",
}
#: Plain words that mean something else in YAML.
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
_PERIODS = (("day", timedelta(days=1)), ("hour", timedelta(hours=1)), ("minute", timedelta(minutes=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """When a table counts as old where it declares nothing itself: so long after a run last published it."""

    warn_after: timedelta | None = timedelta(days=1)


def sources_yaml(pins: Iterable[Pin], graph: Graph, freshness: Freshness, database: str = DATABASE) -> str:
    """The text of `sources.yml`: a source for each schema, in the form of dbt 1.10 and later."""
    schemas: dict[str, list[Any]] = {}
    for pin in pins:
        schema, _, name = pin.table.partition(".")
        schemas.setdefault(schema, []).append(_table(name, pin, graph, freshness, database))
    sources = [
        {
            "name": schema,
            "description": f"Tables of the lake, schema {schema}.",
            "database": database,
            "schema": schema,
            "tables": tables,
        }
        for schema, tables in schemas.items()
    ]
    return f"{HEAD}\n" + "\n".join(_yaml({"version": 2, "sources": sources})) + "\n"


def profile_yaml(name: str, project: str, profile: str, path: str) -> str:
    """The text of a `profiles.yml` for dbt-duckdb: its models are in a file of DuckDB's, the lake is attached."""
    plugin = {"module": PLUGIN, "alias": "icefield", "config": {"project": project, "profile": profile}}
    target = {
        "type": "duckdb",
        "path": path,
        "threads": 2,
        "settings": {"TimeZone": "UTC"},
        "plugins": [plugin],
    }
    content = {name: {"target": "lake", "outputs": {"lake": target}}}
    return "\n".join(_yaml(content)) + "\n"


def profile_of(project_file: str) -> str:
    """The name of the profile that a dbt_project.yml asks for."""
    for key in ("profile", "name"):
        if found := re.search(rf"^{key}:\s*['\"]?([\w.-]+)", project_file, re.MULTILINE):
            return found[1]
    return "icefield"


def _table(name: str, pin: Pin, graph: Graph, freshness: Freshness, database: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    if comment := pin.metadata.get("properties", {}).get("comment", ""):
        found["description"] = comment
    if config := _config(pin, graph, freshness, database):
        found["config"] = config
    found["columns"] = [_column(column) for column in columns_of(pin)]
    return found


def _column(column: Mapping[str, str]) -> dict[str, str]:
    found = {"name": column["name"], "description": column["comment"], "data_type": _type(column["type"])}
    return {key: value for key, value in found.items() if value}


def _type(kind: str) -> str:
    """The type in DuckDB's words; none for nested ones."""
    if kind.startswith(("struct<", "list<", "map<")):
        return ""
    return _TYPES.get(kind, kind.replace(", ", ","))


def _config(pin: Pin, graph: Graph, freshness: Freshness, database: str) -> dict[str, Any]:
    """How dbt finds out how old a table is: by what it declares with `fresh_within`, else by its last publish."""
    if (check := _declared(pin.table, graph)) is not None:
        limit = {"error_after" if check.otherwise == "fail" else "warn_after": _period(check.limit)}
        kinds = {column["name"]: column["type"] for column in columns_of(pin)}
        field = f"cast({check.column} as timestamp)" if kinds.get(check.column) == "date" else check.column
        return {"loaded_at_field": field, "freshness": limit}
    if freshness.warn_after is None:
        return {}
    query = f"select published_at from {database}.ops.tables where \"table\" = '{pin.table}'"
    return {"loaded_at_query": query, "freshness": {"warn_after": _period(freshness.warn_after)}}


def _declared(table: str, graph: Graph) -> FreshWithin | None:
    checks = graph[table].table_checks if table in graph else ()
    return next((check for check in checks if isinstance(check, FreshWithin)), None)


def _period(limit: timedelta) -> dict[str, Any]:
    """The time as dbt counts it; never less than it is."""
    for name, unit in _PERIODS:
        if limit % unit == timedelta(0):
            return {"count": limit // unit, "period": name}
    return {"count": math.ceil(limit / timedelta(minutes=1)), "period": "minute"}


def _yaml(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(item, f"{indent}  ")
        elif isinstance(item, list):
            yield f"{indent}{key}:"
            yield from _list(item, f"{indent}  ")
        else:
            yield f"{indent}{key}: {_scalar(item)}"


def _list(items: Sequence[Any], indent: str) -> Iterator[str]:
    for item in items:
        first, *rest = _yaml(item, f"{indent}  ")
        yield f"{indent}- {first.strip()}"
        yield from rest


def _scalar(value: object) -> str:
    """A value as YAML; texts that are not plain words as in JSON, with Jinja's signs kept from dbt."""
    if isinstance(value, str) and re.fullmatch(r"[a-z_][a-z0-9_]*", value) and value not in _WORDS:
        return value
    safe = re.sub(r"\{(?=[{%#])", "{{ '{' }}", value) if isinstance(value, str) else value
    return json.dumps(safe, ensure_ascii=False)
