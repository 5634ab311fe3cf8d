"""Each step of a plan as a function of the rows below it; steps that mix rows of different anchors are refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from icefield.engine.promises.anchors import KEY, ROW, Carried, Refusal, Rows, first_anchor
from icefield.engine.promises.joins import SIDES, Join, joined
from icefield.engine.promises.plan_tree import Tree
from icefield.engine.promises.values import column, rewritten, shown, value_of, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from icefield.engine.promises.values import Value

#: Python over groups, with the evaluation type that Spark gives it.
GROUPED_MAPS = {"FlatMapGroupsInPandas": 201, "FlatMapGroupsInArrow": 209}


# -- each row for itself


def _project(step: Tree, below: Sequence[Rows]) -> Rows:
    entries = step.listed("projectList")
    return below[0].through(_columns_by_value(entries), _named(entries))


def _generate(step: Tree, below: Sequence[Rows]) -> Rows:
    rows = below[0]
    generator = step.one("generator")
    if rows.anchors and generator is not None and generator.name == "PythonUDTF":
        raise Refusal(step, "calls a Python user-defined table function", first_anchor([rows]), known=False)
    return replace(rows, columns=(*rows.columns, *_named(step.listed("generatorOutput"))))


def _expand(step: Tree, below: Sequence[Rows]) -> Rows:
    """One row becomes several, by projections (ROLLUP, CUBE, unpivot); a value is known if all of them keep it."""
    rows, entries = below[0], step.listed("output")
    lists = [[*map(value_of, _trees(one))] for one in step.fields.get("projections") or ()]
    columns = tuple((entry.id, entry.fields["name"]) for entry in entries)
    if not lists:  # a plan inside of another one, of which JSON leaves them out
        if rows.anchors:
            raise Refusal(step, "unpivots rows in a subquery", first_anchor([rows]), known=False)
        return Rows(columns)
    known = [_grouped(zip(one, (column(number) for number, _ in columns), strict=True)) for one in lists]
    shared = {value: set.intersection(*(set(forms.get(value, ())) for forms in known)) for value in known[0]}
    return rows.through(shared, columns)


def _in_batches(step: Tree, below: Sequence[Rows]) -> Rows:
    rows = below[0]
    if rows.anchors:
        called = {"MapInPandas": "mapInPandas", "PythonMapInArrow": "mapInArrow"}.get(step.name, "mapInArrow")
        raise Refusal(step, f"calls Python on batches of rows ({called})", first_anchor([rows]), known=False)
    return Rows(_named(step.listed("output")))


# -- rows meet


def _aggregate(step: Tree, below: Sequence[Rows]) -> Rows:
    rows, entries = below[0], step.listed("aggregateExpressions")
    by = step.listed("groupingExpressions")
    if rows.anchors and not by:  # gives a row even where there is none
        raise Refusal(step, "aggregates over all rows", first_anchor([rows]))
    _require_apart(step, rows, by, "groups by {by}")
    grouped = with_fields({value: {value} for value in map(value_of, by)})
    kept = {value: forms for value, forms in _columns_by_value(entries).items() if rewritten(value, grouped)}
    return rows.through(kept, _named(entries))


def _window(step: Tree, below: Sequence[Rows]) -> Rows:
    rows, by = below[0], step.listed("partitionSpec")
    _require_apart(step, rows, by, "uses a window partitioned by {by}" if by else "uses a window over all rows")
    return replace(rows, columns=(*rows.columns, *_named(step.listed("windowExpressions"))))


def _deduplicate(step: Tree, below: Sequence[Rows]) -> Rows:
    rows, by = below[0], step.listed("keys")
    _require_apart(step, rows, by, "removes duplicates by {by}")
    return rows


def _distinct(step: Tree, below: Sequence[Rows]) -> Rows:
    rows = below[0]
    _require_determined(step, rows, "removes duplicate rows")
    return rows


def _grouped_map(step: Tree, below: Sequence[Rows]) -> Rows:
    """Python over the rows of each group. Columns named like the grouping columns hold the group's values, which is
    checked when the function is called.
    """
    rows, by = below[0], step.listed("groupingAttributes")
    entries = step.listed("output")
    _require_apart(step, rows, by, "groups by {by} in Python")
    function = step.one("functionExpr")
    if rows.anchors and (function is None or function.fields.get("evalType") != GROUPED_MAPS[step.name]):
        raise Refusal(step, f"calls Python in a way that icefield cannot analyse ({step.name})", known=False)
    names = {entry.fields["name"]: entry.id for entry in entries}
    same = {column(e.id): {column(names[e.fields["name"]])} for e in by if e.fields["name"] in names}
    return rows.through(same, _named(entries))


def _union(step: Tree, below: Sequence[Rows]) -> Rows:
    if not any(rows.anchors for rows in below):
        return below[0]
    if not all(rows.main for rows in below):
        raise Refusal(step, "adds rows that do not come from a keyed input (union)", first_anchor(below))
    aligned = [_under(rows, below[0].columns) for rows in below]
    anchors = {
        anchor: {part: frozenset.intersection(*(r.anchors[anchor][part] for r in aligned)) for part in parts}
        for anchor, parts in aligned[0].anchors.items()
    }
    return Rows(below[0].columns, anchors, _carried_by_all([rows.carried for rows in aligned]))


def _set_operation(step: Tree, below: Sequence[Rows]) -> Rows:
    """INTERSECT and EXCEPT compare whole rows."""
    left, right = below
    if not left.anchors and not right.anchors:
        return left
    if not left.main:
        raise Refusal(
            step,
            "compares rows of a lookup with another input (INTERSECT or EXCEPT)",
            first_anchor([left, right]),
        )
    other = _under(right, left.columns)
    _require_determined(step, left, "compares whole rows of two inputs (INTERSECT or EXCEPT)")
    if right.main:
        shared = {part: left.anchors[KEY][part] & other.anchors[KEY][part] for part in left.anchors.get(KEY, {})}
        if ROW in left.anchors or not all(shared.values()):
            raise Refusal(step, "compares whole rows of two inputs (INTERSECT or EXCEPT) without the key")
        return replace(left, anchors={**left.anchors, KEY: shared})
    if right.anchors:
        raise Refusal(
            step, "compares whole rows with the rows of a lookup (INTERSECT or EXCEPT)", first_anchor([right])
        )
    return left


def _join(step: Tree, below: Sequence[Rows]) -> Rows:
    left, right = below
    return joined(Join(step, left, right))


# -- what steps have in common


def _under(rows: Rows, columns: tuple[tuple[int, str], ...]) -> Rows:
    """Rows with the columns of another step, by position."""
    known = _grouped((column(old), column(new)) for (old, _), (new, _) in zip(rows.columns, columns, strict=True))
    return rows.through(known, columns)


def _require_apart(step: Tree, rows: Rows, by: Sequence[Tree], what: str) -> None:
    """The grouping columns determine every anchor."""
    known = {value: {value} for value in map(value_of, by)}
    listed = ", ".join(shown(value, rows.names) for value in known)
    known = with_fields(known)
    for anchor, parts in rows.anchors.items():
        if anchor == ROW or not all(any(rewritten(v, known) for v in values) for values in parts.values()):
            raise Refusal(step, what.format(by=listed), anchor)


def _require_determined(step: Tree, rows: Rows, what: str) -> None:
    """All columns together determine every anchor."""
    for anchor, parts in rows.anchors.items():
        if anchor == ROW or not all(parts.values()):
            raise Refusal(step, what, anchor)


def _carried_by_all(sides: Sequence[tuple[Carried, ...]]) -> tuple[Carried, ...]:
    """The lookup columns that the rows of every side have in the same place."""
    found = []
    for some in itertools.islice(itertools.product(*sides), SIDES):
        shared = set.intersection(*(set(one.parts) for one in some)) if some else set()
        parts = {name: frozenset.intersection(*(one.parts[name] for one in some)) for name in shared}
        if parts and all(parts.values()):
            found.append(Carried(parts, optional=any(one.optional for one in some)))
    return tuple(found)


def _columns_by_value(entries: Sequence[Tree]) -> dict[Value, set[Value]]:
    """The output columns of a projection that hold each value it computes."""
    return _grouped((value_of(entry), column(entry.id)) for entry in entries if "exprId" in entry.fields)


def _grouped(pairs: Iterable[tuple[Value, Value]]) -> dict[Value, set[Value]]:
    found: dict[Value, set[Value]] = {}
    for value, form in pairs:
        found.setdefault(value, set()).add(form)
    return with_fields(found)


def _named(entries: Sequence[Tree]) -> tuple[tuple[int, str], ...]:
    """Ids and names of output columns."""
    return tuple((entry.id, str(entry.fields["name"])) for entry in entries if "exprId" in entry.fields)


def outputs(step: Tree, below: Sequence[Rows]) -> tuple[tuple[int, str], ...]:
    """The columns of a step of which nothing else matters."""
    if own := step.listed("output"):
        return _named(own)
    return tuple(pair for rows in below for pair in rows.columns)


def _trees(value: object) -> list[Tree]:
    return [item for item in value if isinstance(item, Tree)] if isinstance(value, list) else []


STEPS: Mapping[str, Callable[[Tree, Sequence[Rows]], Rows]] = {
    "Aggregate": _aggregate,
    "Deduplicate": _deduplicate,
    "Distinct": _distinct,
    "Except": _set_operation,
    "Expand": _expand,
    "FlatMapGroupsInArrow": _grouped_map,
    "FlatMapGroupsInPandas": _grouped_map,
    "Generate": _generate,
    "Intersect": _set_operation,
    "Join": _join,
    "MapInArrow": _in_batches,
    "MapInPandas": _in_batches,
    "Project": _project,
    "PythonMapInArrow": _in_batches,
    "Union": _union,
    "Window": _window,
}
