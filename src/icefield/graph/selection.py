"""dbt's selector grammar: `name`, `+name`, `name+2`, `@name`, `tag:x`, wildcards; space unites, comma intersects."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from icefield.declare.suggest import did_you_mean
from icefield.errors import UnknownSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from icefield.graph.nodes import Graph

# The expression of dbt itself, so that what works there works here.
_TERM = re.compile(
    r"(?P<at>@)?(?:(?P<parents>(?P<parents_depth>\d*)\+))?(?:(?P<method>[\w.]+):)?(?P<value>.*?)"
    r"(?P<children>\+(?P<children_depth>\d*))?"
)


def select(
    graph: Graph, expression: str | Sequence[str] | None = None, *, exclude: str | Sequence[str] | None = None
) -> tuple[str, ...]:
    """The tables that an expression means, without the excluded ones, in the order of the graph."""
    chosen = _union(graph, expression) if _words(expression) else set(graph.order)
    if _words(exclude):
        chosen -= _union(graph, exclude)
    return tuple(name for name in graph.order if name in chosen)


def _words(expression: str | Sequence[str] | None) -> list[str]:
    texts = [expression] if isinstance(expression, str) else list(expression or ())
    return [word for text in texts for word in text.split()]


def _union(graph: Graph, expression: str | Sequence[str] | None) -> set[str]:
    found: set[str] = set()
    for word in _words(expression):
        terms = [_term(graph, term) for term in word.split(",") if term]
        if not terms:
            raise _unknown(word, "is empty", graph.order)
        found |= set.intersection(*terms)
    return found


def _term(graph: Graph, term: str) -> set[str]:
    match = _TERM.fullmatch(term)
    if match is None or not match["value"]:
        raise _unknown(term, "is not valid", graph.order)
    if match["at"] and match["children"]:
        raise UnknownSelector(
            f"selector `{term}` has both a leading @ and a trailing +",
            remedy="drop the +: @ already selects everything downstream",
        )
    found = _matching(graph, match["method"], match["value"], term)
    result = set(found)
    if match["at"]:
        result |= set(graph.downstream(found))
        result |= set(graph.upstream(result))
    if match["parents"]:
        result |= set(graph.upstream(found, _depth(match["parents_depth"])))
    if match["children"]:
        result |= set(graph.downstream(found, _depth(match["children_depth"])))
    return result


def _depth(digits: str | None) -> int | None:
    return int(digits) if digits else None


def _matching(graph: Graph, method: str | None, value: str, term: str) -> set[str]:
    if method == "tag":
        tags = sorted({tag for node in graph.nodes.values() for tag in node.tags})
        found = {name for name, node in graph.nodes.items() if any(fnmatchcase(tag, value) for tag in node.tags)}
        if not found:
            raise _unknown(term, "matches no tag", tags, "tags")
        return found
    if method not in (None, "fqn"):
        raise _unknown(term, f"uses the unknown method `{method}:`", ["tag:", "fqn:"], "methods")
    found = _by_name(graph, value, term)
    if not found:
        raise _unknown(term, "matches no table", graph.order)
    return found


def _by_name(graph: Graph, value: str, term: str) -> set[str]:
    """A full name; a unique last part; a schema, as a folder in dbt; or a wildcard over name or last part."""
    last = {name: name.partition(".")[2] for name in graph.order}
    if any(sign in value for sign in "*?["):
        return {name for name in graph.order if fnmatchcase(name, value) or fnmatchcase(last[name], value)}
    if value in graph:
        return {value}
    named = [name for name in graph.order if last[name] == value]
    if len(named) > 1:
        raise UnknownSelector(
            f"selector `{term}` is ambiguous: {', '.join(named)}", remedy=f"write {named[0]}, or *.{value} for all"
        )
    return set(named) or {name for name in graph.order if name.partition(".")[0] == value}


def _unknown(term: str, why: str, known: Iterable[str], all_of_them: str = "tables") -> UnknownSelector:
    word = term.strip("+@0123456789").partition(":")[2] or term.strip("+@0123456789")
    return UnknownSelector(f"selector `{term}` {why}", remedy=did_you_mean(word, known, all_of_them=all_of_them))
