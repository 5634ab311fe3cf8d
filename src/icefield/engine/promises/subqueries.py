"""Subqueries that compare keys: what they return for a row concerns the key of that row alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icefield.engine.promises.anchors import KEY, Rows
from icefield.engine.promises.values import column, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from icefield.engine.promises.anchors import Equality
    from icefield.engine.promises.plan_tree import Tree


def correlated(rows: Rows, outer_rows: Rows, pairs: Sequence[Equality]) -> Rows:
    """The rows of a subquery, without an anchor if it is filtered by the key of the outer row: whatever it does to them
    concerns that key alone.
    """
    if set(rows.anchors) != {KEY}:
        return rows
    outer = outer_rows.anchors.get(KEY, {})
    both = [*pairs, *(replace(pair, left=pair.right, right=pair.left) for pair in pairs)]
    own = rows.anchors[KEY]
    met = all(any(p.left in own[part] and p.right in outer.get(part, ()) for p in both) for part in own)
    return Rows(rows.columns) if met and outer else rows


def is_among(step: Tree, holder: Tree, outer: Rows, inside: Rows) -> bool:
    """Whether a subquery only tests if the key of a row is among the keys that it returns.

    Only as a condition that must hold: elsewhere, or negated, a NULL in any row of the subquery changes the result.
    """
    condition = step.one("condition")
    if step.name != "Filter" or condition is None or set(inside.anchors) != {KEY}:
        return False
    compared = next((one for one in _required(condition) if one.name == "InSubquery" and holder in one.walk()), None)
    if compared is None:
        return False
    values = [value_of(child) for child in compared.children if child is not holder]
    keys, given = inside.anchors[KEY], [column(number) for number, _ in inside.columns]
    places = dict(zip(values, given, strict=False))
    own = outer.anchors.get(KEY, {})
    return all(any(v in own.get(part, ()) and places[v] in keys[part] for v in values) for part in keys)


def _required(condition: Tree) -> Iterator[Tree]:
    """The conjuncts of a condition."""
    if condition.name == "And":
        for side in condition.children:
            yield from _required(side)
    else:
        yield condition
