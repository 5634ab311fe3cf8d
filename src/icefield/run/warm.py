"""What a process that runs a project again and again keeps between runs: nothing that a new process would not find."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from icefield.declare import format_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping

    from icefield.engine.promises.analyse import Derived
    from icefield.graph import Graph
    from icefield.graph.state import TableState

#: So many analyses are kept: of a few projects, each with a few selections.
_KEPT = 16
_analysed: OrderedDict[Hashable, Derived] = OrderedDict()
_guard = threading.Lock()


def analysed(key: Hashable, analyse: Callable[[], Derived]) -> Derived:
    """What the functions of a project give, found out again only if something that it depends on is another."""
    with _guard:
        if key in _analysed:
            _analysed.move_to_end(key)
            return _analysed[key]
    found = analyse()
    with _guard:
        _analysed[key] = found
        while len(_analysed) > _KEPT:
            _analysed.popitem(last=False)
    return found


def code_of(graph: Graph, tables: Collection[str], states: Mapping[str, TableState]) -> Hashable:
    """What the columns and promises of tables depend on: code, checks, columns of sources and of what is stored."""
    nodes = [(name, node.fingerprint, node.checks_fingerprint) for name, node in graph.nodes.items()]
    sources = [(name, format_columns(node.source.columns)) for name, node in graph.nodes.items() if node.source]
    stored = [(name, state.columns, state.promise) for name, state in states.items()]
    return tuple(nodes), tuple(sources), tuple(sorted(stored)), tuple(sorted(tables))
