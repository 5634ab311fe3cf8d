"""`icefield table`: one table, what it is and how it came to be."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from icefield.cli import output
from icefield.cli.compare import compare_versions
from icefield.cli.guard import guarded
from icefield.cli.one_table import TableName, graph_at, pin_at
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.cli.output import Column, Count
from icefield.cli.plan import promise_of
from icefield.cli.tree import show_tree
from icefield.lake.history import TableVersion, history
from icefield.lake.table_state import table_state
from icefield.query.overview import overview
from icefield.words import from_ms, moment, number, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.declare import Check
    from icefield.graph import Node
    from icefield.query import Pin

_RUN = ("published (UTC)", "run")
#: Where there are batches, a narrow terminal has no room for a time that the run's id tells anyway.
_RUN_AND_BATCH = (Column(name="published (UTC)", optional=True), "run", "batch")
_CHANGE = (
    Column(name="operation", optional=True),
    Column(name="added", right=True),
    Column(name="removed", right=True),
    Column(name="total", right=True),
    Column(name="growth", right=True, optional=True),
)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Show one table: its declaration, columns, versions and files.", no_args_is_help=True)
    group.command("show")(guarded(show))
    group.command("history")(guarded(versions))
    group.command("compare")(guarded(compare_versions))
    group.command("tree")(guarded(show_tree))
    app.add_typer(group, name="table")


def show(name: TableName, *, as_json: Json = False, project: ProjectDir = HERE, profile: ProfileName = None) -> None:
    """Show the columns, size, checks and inputs of a table."""
    pin = pin_at(name, project, profile)
    graph = graph_at(project, profile)
    facts = _facts(pin, None if graph is None else graph.nodes.get(pin.table))
    if as_json:
        return output.json(facts)
    shown = {
        key: value for key, value in facts.items() if key not in ("columns", "checks") and value not in ("", None, [])
    }
    for key, value in shown.items():
        output.line(f"{key:13} {_plain(key, value)}")
    output.heading("Columns")
    columns = ("name", Column(name="type", wraps=True), Column(name="comment", wraps=True))
    output.table(columns, [(c["name"], c["type"], c["comment"]) for c in facts["columns"]])
    if facts["checks"]:
        output.heading("Checks")
        listed = [(c["check"], c["otherwise"], c["at_most"] or "") for c in facts["checks"]]
        output.table((Column(name="check", wraps=True), "otherwise", "at most"), listed)
    return None


def versions(
    name: TableName, *, as_json: Json = False, project: ProjectDir = HERE, profile: ProfileName = None
) -> None:
    """List the published versions of a table: when, by which run and batch, and how many rows were added."""
    found = history(pin_at(name, project, profile).metadata)
    if as_json:
        output.json([asdict(version) for version in found])
    else:
        _show_versions(found)


def _show_versions(found: Sequence[TableVersion]) -> None:
    batches = any(version.batch for version in found)
    columns = (*(_RUN_AND_BATCH if batches else _RUN), *_CHANGE)
    output.table(columns, [_version(version, batches=batches) for version in found])


def _facts(pin: Pin, node: Node | None) -> dict[str, Any]:
    seen = overview(pin)
    checks = () if node is None else (*node.row_checks, *node.table_checks)
    return {
        "table": pin.table,
        "comment": seen["comment"],
        "declared": str(node.location) if node else None,
        "refresh": node.refresh.kind if node else None,
        "promise": promise_of(node, table_state(pin.table, pin.metadata)) if node else None,
        "inputs": list(node.inputs) if node else [],
        "tags": list(node.tags) if node else [],
        "owners": list(node.owners) if node else [],
        "partitioned": _partitions(pin),
        "rows": seen["rows"],
        "bytes": seen["bytes"],
        "files": seen["files"],
        "run": seen["run"],
        "published_at": from_ms(seen["published_at"] // 1000),
        "snapshot": seen["snapshot"],
        "metadata": pin.location,
        "columns": seen["columns"],
        "max_rejected": str(node.max_rejected) if node and node.max_rejected else None,
        "checks": [{"check": check.name, "otherwise": check.otherwise, "at_most": _limit(check)} for check in checks],
    }


def _limit(check: Check) -> str | None:
    return None if check.at_most is None else str(check.at_most)


def _partitions(pin: Pin) -> list[str]:
    schema = pin.metadata["current-schema-id"]
    fields = next(s["fields"] for s in pin.metadata["schemas"] if s["schema-id"] == schema)
    names = {field["id"]: field["name"] for field in fields}
    chosen = pin.metadata["default-spec-id"]
    spec = next(s["fields"] for s in pin.metadata["partition-specs"] if s["spec-id"] == chosen)
    return [f"{part['transform']}({names.get(part['source-id'], part['name'])})" for part in spec]


def _plain(key: str, value: Any) -> str:
    match key:
        case "bytes":
            return size(value)
        case "rows" | "files":
            return number(value)
        case "published_at":
            return f"{moment(value)} UTC"
        case _:
            return ", ".join(value) if isinstance(value, list) else str(value)


def _version(version: TableVersion, *, batches: bool) -> tuple[Any, ...]:
    before = version.rows_total - version.growth
    percent = f" ({100 * version.growth / before:+.1f} %)" if before else ""
    return (
        moment(version.published_at),
        version.run,
        *([version.batch] if batches else []),
        version.operation,
        Count(version.rows_added),
        Count(version.rows_removed),
        Count(version.rows_total),
        f"{version.growth:+,}{percent}",
    )
