"""`icefield ls`: the tables of a project, as a list or as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icefield.cli import output
from icefield.cli.guard import guarded
from icefield.cli.manifest import manifest
from icefield.cli.opening import lake_of, undeclared
from icefield.cli.options import HERE, SELECTORS, Exclude, Json, ProfileName, ProjectDir, words
from icefield.cli.output import Column, Count
from icefield.cli.plan import promise_of
from icefield.errors import WrongUsage
from icefield.graph import Graph, owner_of, select
from icefield.graph.svg import draw
from icefield.lake.embedded import now_ms
from icefield.plan import has_newer_inputs
from icefield.project import open_project
from icefield.words import ago, from_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icefield.graph import Node
    from icefield.graph.state import TableState

_COLUMNS = (
    "table",
    "refresh",
    Column(name="inputs", wraps=True, optional=True),
    Column(name="checks", right=True, optional=True),
    Column(name="rows", right=True),
    Column(name="state", wraps=True),
)


def register(app: typer.Typer) -> None:
    app.command("ls")(guarded(ls))


def ls(
    selector: Annotated[list[str] | None, typer.Argument(metavar="[SELECT]...", help=SELECTORS)] = None,
    *,
    as_json: Json = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the graph to a file as SVG; - is stdout.")
    ] = None,
    batches: Annotated[
        bool, typer.Option("--batches", help="List the batches of sources: taken in, new or changed, and gaps.")
    ] = False,
    as_manifest: Annotated[
        bool, typer.Option("--manifest", help="Print the declared tables and the files they are read from as JSON.")
    ] = False,
    exclude: Exclude = None,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """List the declared tables with their inputs and their state in the lake."""
    given = {"--svg": svg is not None, "--batches": batches, "--manifest": as_manifest}
    if sum(given.values()) > 1:
        both = " and ".join(option for option, used in given.items() if used)
        raise WrongUsage(f"{both} cannot be combined", remedy="use only one of them")
    opened = open_project(project, profile)
    chosen = select(opened.graph, words(selector), exclude=words(exclude))
    if svg is not None:
        return _draw(opened.graph, chosen, svg)
    if as_manifest:
        return output.json(manifest(opened, chosen))
    if batches:
        from icefield.cli.batches import list_batches  # noqa: PLC0415 - it imports what a run does

        return list_batches(opened, chosen, as_json=as_json)
    states = lake_of(opened).states()
    rows = [_row(opened.graph[name], states) for name in chosen]
    if not selector and not exclude:
        rows += [_undeclared(states[name]) for name in undeclared(opened, sorted(states))]
    if as_json:
        output.json(rows)
    elif rows:
        output.table(_COLUMNS, [_cells(row) for row in rows])
    else:
        output.note("Nothing selected" if len(opened.graph) else "The project declares no tables yet")
    return None


def _draw(graph: Graph, chosen: tuple[str, ...], file: Path) -> None:
    picture = draw(_part(graph, chosen))
    if str(file) == "-":
        output.line(picture.rstrip("\n"))
    else:
        with output.writing(file):
            file.write_text(picture, encoding="utf-8")
        output.note(f"drawn: {file}")


def _part(graph: Graph, chosen: tuple[str, ...]) -> Graph:
    """The chosen tables alone; what they read outside of the choice is left out."""
    nodes = {
        name: replace(
            graph[name], edges=tuple(e for e in graph[name].edges if e.table is None or owner_of(e.table) in chosen)
        )
        for name in chosen
    }
    return Graph(nodes=nodes, order=chosen)


def _row(node: Node, states: Mapping[str, TableState]) -> dict[str, Any]:
    state = states.get(node.name)
    return {
        "table": node.name,
        "declared": True,
        "refresh": node.refresh.kind,
        "promise": promise_of(node, state) or None,
        "source": node.source.name if node.source is not None else None,
        "inputs": list(node.inputs),
        "checks": [check.name for check in (*node.row_checks, *node.table_checks)],
        "tags": list(node.tags),
        "owners": list(node.owners),
        "comment": node.comment,
        "location": str(node.location),
        "code_changed": state is not None and state.fingerprint != node.fingerprint,
        "inputs_newer": state is not None and has_newer_inputs(node, state, states),
        **_standing(state),
    }


def _undeclared(state: TableState) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "refresh": None,
        "promise": None,
        "source": None,
        "inputs": [],
        "checks": [],
        "tags": [],
        "owners": [],
        "comment": "",
    }
    told = {"location": None, "code_changed": False, "inputs_newer": False}
    return {"table": state.name, "declared": False, **nothing, **told, **_standing(state)}


def _standing(state: TableState | None) -> dict[str, Any]:
    if state is None:
        return {"run": None, "rows": None, "published_at": None}
    return {"run": state.run, "rows": state.rows, "published_at": from_ms(state.published_ms)}


def _cells(row: dict[str, Any]) -> list[Any]:
    reads = [row["source"]] if row["source"] else []
    rows = "" if row["rows"] is None else Count(row["rows"])
    return [
        row["table"],
        ", ".join(filter(None, [row["refresh"], row["promise"] if row["promise"] != "full" else None])),
        ", ".join([*reads, *row["inputs"]]),
        len(row["checks"]) or "",
        rows,
        _state(row),
    ]


def _state(row: dict[str, Any]) -> str:
    if row["published_at"] is None:
        return "not built yet"
    told = ago(int(row["published_at"].timestamp() * 1000), now_ms())
    if not row["declared"]:
        return f"undeclared, published {told}"
    since = [what for key, what in _SINCE.items() if row[key]]
    return f"published {told}" + (f", {' and '.join(since)} changed since" if since else "")


_SINCE = {"code_changed": "code", "inputs_newer": "inputs"}
