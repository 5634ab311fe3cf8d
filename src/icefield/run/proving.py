"""Finds refresh kinds that hold: which of several declarations of a table Spark's plan proves. Builds nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from icefield.declare import Append, ByKey, Refresh
from icefield.errors import DeclarationError
from icefield.project import load_functions
from icefield.run.checking import log_of
from icefield.run.schedule import Later

if TYPE_CHECKING:
    from icefield.engine.promises.analyse import Analysis, Derived
    from icefield.graph import Edge, Node
    from icefield.project import Project

#: How many ways are tried in which the inputs of a table could have its key.
TRIES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The refresh kind that is proven, with the inputs as it needs them; or None and why not."""

    refresh: Refresh | None
    edges: tuple[Edge, ...] = field(default=())
    reason: str = ""


def prove_refresh(project: Project, wanted: Mapping[str, Refresh]) -> dict[str, Verdict]:
    """For each table, whether it can be refreshed as wanted, and with which inputs; starts Spark."""
    return Later(lambda: _prove(project, wanted)).result() if wanted else {}


def _prove(project: Project, wanted: Mapping[str, Refresh]) -> dict[str, Verdict]:
    from icefield.engine.promises.analyse import Analysis  # noqa: PLC0415 - pyspark
    from icefield.engine.session.spark import start_session  # noqa: PLC0415

    functions = load_functions(project)
    name, scope = f"icefield {project.name}", str(project.profile.lake)
    spark = start_session(app=name, conf=project.profile.spark, log=log_of(project), scope=scope)
    analysis = Analysis(
        spark=spark,
        root=project.root,
        graph=project.graph,
        functions=functions,
        finishes=functions.finishes,
        stored=_never,
        settled=dict.fromkeys(project.graph.order, "proven"),
    )
    derived = analysis.derive(project.graph.order)
    return {name: _verdict(analysis, derived, project.graph[name], refresh) for name, refresh in wanted.items()}


def _verdict(analysis: Analysis, derived: Derived, node: Node, refresh: Refresh) -> Verdict:
    """The first way that is proven; where none is, why the most natural one is not."""
    reason = _keyless(derived, node, refresh)
    for number, edges in enumerate(_ways(derived, node, refresh)):
        if (told := _refused(analysis, derived, replace(node, refresh=refresh, edges=edges))) is None:
            return Verdict(refresh=refresh, edges=edges)
        if number == 0:
            reason = told
    return Verdict(refresh=None, reason=reason)


def _keyless(derived: Derived, node: Node, refresh: Refresh) -> str:
    """Why there is no way to try: the table or its inputs do not have the key."""
    if isinstance(refresh, ByKey) and (missing := set(refresh.keys) - set(derived.schemas[node.name].names)):
        return f"its result has no column {', '.join(sorted(missing))}"
    return "no input has rows of its key"


def _refused(analysis: Analysis, derived: Derived, node: Node) -> str | None:
    graph = replace(analysis.graph, nodes={**analysis.graph.nodes, node.name: node})
    tried = replace(analysis, graph=graph, settled={}, stored=lambda table: derived.schemas[table])
    try:
        tried.derive([node.name])
    except DeclarationError as refusal:
        return refusal.what
    return None


def _ways(derived: Derived, node: Node, refresh: Refresh) -> Iterator[tuple[Edge, ...]]:
    """How the inputs could have the key: by its name, by another column of its type, or not, as lookups."""
    if isinstance(refresh, Append):
        yield node.edges
        return
    assert isinstance(refresh, ByKey)
    given = derived.schemas[node.name]
    if not set(refresh.keys) <= set(given.names):
        return
    kinds = {key: given[key].dataType for key in refresh.keys}
    options = [list(_options(edge, derived.schemas[str(edge.table)], kinds)) for edge in node.edges]
    ways = (way for way in itertools.product(*options) if not all(edge.lookup for edge in way))
    few = list(itertools.islice(ways, TRIES * TRIES))
    yield from sorted(few, key=_effort)[:TRIES]


def _options(edge: Edge, schema: Any, kinds: Mapping[str, Any]) -> Iterator[Edge]:
    columns: Sequence[Sequence[str]] = [
        [key] if key in schema.names else [one.name for one in schema if one.dataType == kind]
        for key, kind in kinds.items()
    ]
    for chosen in itertools.product(*columns):
        other = {key: name for key, name in zip(kinds, chosen, strict=True) if key != name}
        yield replace(edge, key=other, lookup=False, on=())
    yield replace(edge, key={}, lookup=True, on=())


def _effort(way: Sequence[Edge]) -> tuple[int, int]:
    """Lookups are passed whole, and a table is rebuilt when one changes: the fewer the better; then plain names."""
    return sum(edge.lookup for edge in way), sum(len(edge.key) for edge in way)


def _never(table: str) -> Any:
    raise AssertionError(f"{table} is derived with all others")
