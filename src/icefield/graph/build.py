"""Declared tables -> a graph: wired, ordered, every check's outcome decided, or refused with file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from icefield.declare import Check, Otherwise, RowCheck, Table, Unique
from icefield.declare.checks import Reconciles, References
from icefield.graph.columns import refuse_unknown_columns
from icefield.graph.nodes import Edge, Graph, Node, owner_of
from icefield.graph.wiring import Names, topological, wire

Fingerprints = Callable[[Table, tuple[Edge, ...], tuple[Check, ...]], tuple[str, str]]


def no_fingerprints(_table: Table, _edges: tuple[Edge, ...], _checks: tuple[Check, ...]) -> tuple[str, str]:
    """For graphs that are only looked at."""
    return "", ""


def build_graph(tables: Iterable[Table], fingerprints: Fingerprints = no_fingerprints) -> Graph:
    """The graph of all declared tables; `fingerprints` gives code and checks fingerprint of each."""
    names = Names(tables)
    edges = {name: wire(table, names) for name, table in names.tables.items()}
    inputs = {
        name: tuple(dict.fromkeys(owner_of(edge.table) for edge in found if edge.table is not None))
        for name, found in edges.items()
    }
    order = topological(inputs, names.tables)
    nodes = {}
    for name, table in names.tables.items():
        refuse_unknown_columns(table, edges[name])
        checks = tuple(_resolved(check, table, names) for check in table.checks)
        nodes[name] = _node(table, edges[name], checks, *fingerprints(table, edges[name], checks))
    return Graph(nodes=nodes, order=order)


def _node(
    table: Table, edges: tuple[Edge, ...], checks: tuple[Check, ...], fingerprint: str, checks_fingerprint: str
) -> Node:
    return Node(
        name=table.name,
        edges=tuple(replace(edge, source=edge.source.plain) if edge.source else edge for edge in edges),
        refresh=table.refresh.plain,
        row_checks=tuple(check for check in checks if isinstance(check, RowCheck)),
        table_checks=tuple(check for check in checks if not isinstance(check, RowCheck)),
        columns=table.columns,
        partitioned_by=table.partitioned_by,
        volatile=table.volatile,
        tags=table.tags,
        owners=table.owners,
        max_rejected=table.max_rejected,
        renamed=table.renamed,
        comments=table.comments,
        comment=table.comment,
        location=table.location,
        fingerprint=fingerprint,
        checks_fingerprint=checks_fingerprint,
    )


def _resolved(check: Check, table: Table, names: Names) -> Check:
    """The check with its outcome decided and the tables it names by their full names."""
    outcome = check.otherwise or _default(check, table)
    if isinstance(check, References):
        to = names.must_be_declared(check.to, f"check `{check.name}`", table)
        of = None if check.of is None else names.must_be_declared(check.of, f"check `{check.name}`", table)
        return replace(check, otherwise=outcome, to=to, of=None if of == table.name else of)
    if isinstance(check, Reconciles):
        what = f"check `{check.name}`"
        amounts = {names.must_be_declared(name, what, table): text for name, text in check.amounts.items()}
        return replace(check, otherwise=outcome, amounts=amounts)
    return replace(check, otherwise=outcome)


def _default(check: Check, table: Table) -> Otherwise:
    """The table's outcome, where it can apply: a check of a whole table has no row to set aside, so it fails."""
    if isinstance(check, RowCheck | Unique) or table.otherwise in check.outcomes:
        return table.otherwise
    return "fail"
