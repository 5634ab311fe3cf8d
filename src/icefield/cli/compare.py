"""`icefield table compare`: two versions of a table side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icefield.cli import output
from icefield.cli.one_table import TableName, graph_at, pin_at
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.cli.output import Column, Count
from icefield.declare import Files
from icefield.lake.history import LATEST, find_version, history
from icefield.query.compare import compare
from icefield.words import moment, plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from icefield.graph import Graph
    from icefield.lake.history import TableVersion
    from icefield.query.compare import Comparison, Present

_VERSION = "A run id or the beginning of one, a batch, a snapshot id, or latest"
_SIDES = ("", "before", "after")
_ROWS = [Column(name=name, right=True) for name in ("added", "removed", "same")]
_TOTALS = [Column(name=name, right=name != "column") for name in ("column", "before", "after", "change")]
_PRESENT = [Column(name=name, wraps=name != "column") for name in ("column", "before", "after", "added", "removed")]
#: So many values are listed one by one.
_LISTED = 6


def compare_versions(
    name: TableName,
    before: Annotated[str, typer.Argument(metavar="VERSION", help=f"{_VERSION}.")],
    after: Annotated[
        str,
        typer.Argument(
            metavar="[VERSION]", help="The version to compare it with; default: latest.", show_default=False
        ),
    ] = LATEST,
    *,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Compare two versions of a table: rows added and removed, sums, batches. Does not start a JVM.

    A version is a run id or the beginning of one, a batch, a snapshot id, or latest. Rows are compared by all columns.
    """
    pin = pin_at(name, project, profile)
    versions = history(pin.metadata)
    old, new = (find_version(pin.table, versions, wanted) for wanted in (before, after))
    graph = graph_at(project, profile)
    found = compare(pin, old, new, batches=() if graph is None else _batches(graph, pin.table))
    if as_json:
        output.json(_as_data(found))
    else:
        _show(found)


def _batches(graph: Graph, table: str) -> list[str]:
    """The parts of paths by which files are taken in that a table is made from."""
    if table not in graph:
        return []
    sources = [graph[name].source for name in (table, *graph.upstream([table]))]
    return [source.batch for source in sources if isinstance(source, Files) and source.batch]


def _as_data(found: Comparison) -> dict[str, Any]:
    sides = {"before": found.before, "after": found.after}
    rows = {"before": found.rows_before, "after": found.rows_after}
    return {
        "table": found.table,
        **{side: _version(version, rows[side]) for side, version in sides.items()},
        "rows": {"added": found.rows_added, "removed": found.rows_removed, "same": found.rows_same},
        "columns": {"added": list(found.columns_added), "removed": list(found.columns_removed)},
        "totals": [{**asdict(total), "change": total.change} for total in found.totals],
        "values": [{**asdict(one), "added": one.added, "removed": one.removed} for one in found.present],
    }


def _version(version: TableVersion, rows: int) -> dict[str, Any]:
    return {
        "run": version.run,
        "batch": version.batch,
        "published_at": version.published_at,
        "snapshot": version.snapshot,
        "rows": rows,
    }


def _show(found: Comparison) -> None:
    output.line(found.table)
    output.table(_SIDES, _sides(found))
    output.heading("Rows")
    output.table(_ROWS, [[Count(count) for count in (found.rows_added, found.rows_removed, found.rows_same)]])
    for change, columns in (("added", found.columns_added), ("removed", found.columns_removed)):
        if columns:
            output.sentence(f"{plural(len(columns), 'column')} {change}: {', '.join(columns)}")
    if found.totals:
        output.heading("Totals")
        shown = [(one.column, *map(_amount, (one.before, one.after)), _growth(one.change)) for one in found.totals]
        output.table(_TOTALS, shown)
    if found.present:
        output.heading("Batches and periods")
        output.table(_PRESENT, [_values(one) for one in found.present])


def _sides(found: Comparison) -> list[list[Any]]:
    sides = (found.before, found.after)
    shown: dict[str, list[Any]] = {
        "run": [version.run for version in sides],
        "batch": [version.batch for version in sides],
        "published (UTC)": [moment(version.published_at) for version in sides],
        "snapshot": [version.snapshot for version in sides],
        "rows": [Count(found.rows_before), Count(found.rows_after)],
    }
    return [[name, *values] for name, values in shown.items() if name == "rows" or any(values)]


def _amount(value: float | Decimal | None) -> str:
    """A sum as people read it; of binary fractions two decimals, for the last digits depend on the order of rows."""
    match value:
        case None:
            return ""
        case float():
            return f"{value:,.2f}"
        case int():
            return f"{value:,}"
        case _:
            return f"{value:,f}"


def _growth(value: float | Decimal | None) -> str:
    told = _amount(value)
    return f"+{told}" if value is not None and value > 0 else told


def _values(found: Present) -> list[str]:
    """Both versions listed alike, so that they can be compared at a glance."""
    each = max(len(found.before), len(found.after)) <= _LISTED
    changes = (found.added, found.removed)
    return [
        found.column,
        *(_listed(values, each=each) for values in (found.before, found.after)),
        *(_listed(values, each=len(values) <= _LISTED) for values in changes),
    ]


def _listed(values: Sequence[str], *, each: bool) -> str:
    if each or len(values) < 2:
        return ", ".join(values)
    return f"{values[0]} to {values[-1]} ({len(values):,})"
