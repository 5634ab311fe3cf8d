"""What a refresh kind promises of a function, as far as Spark's analysis of it over empty frames can tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DatetimeType, VariantType

from icefield.engine.author import line_of, told
from icefield.engine.difference import NESTED
from icefield.engine.frames import empty_frame
from icefield.engine.keyed import key_of
from icefield.engine.lineage import (
    expressions,
    hands_through,
    has_subquery,
    has_unsorted_list,
    keeps_any,
    leaves,
    steps_of,
    walk,
)
from icefield.engine.quality import SPLITTING
from icefield.errors import BadFunction, KeyUnknown, NotExact, PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from icefield.graph import Edge, Node


def require_keys(node: Node, inputs: Mapping[str, DataFrame], schemas: Mapping[str, StructType]) -> None:
    """Every input of a keyed table tells the key of its rows, or is a lookup; and so does the table itself."""
    for key in node.keys:
        if key not in schemas[node.name].names:
            raise KeyUnknown(
                f"{node.name} is refreshed by {key}, which its function does not return",
                where=str(node.location),
                remedy=f"let it return a column {key}, or name another key",
            )
        kind = schemas[node.name][key].dataType
        if isinstance(kind, (*NESTED, VariantType)):  # no values to group by, for Arrow or for Spark
            raise KeyUnknown(
                f"{node.name} is refreshed by {key}, which is {kind.simpleString().upper()}: a key is a plain value",
                where=str(node.location),
                remedy="name a column for each of its parts as key, or make a text of it: to_json(...)",
            )
    for edge in node.edges:
        if edge.lookup:
            _require_carried(node, edge, schemas)
        else:
            _require_key(node, edge, inputs[edge.parameter], schemas[node.name])


def _require_key(node: Node, edge: Edge, rows: DataFrame, own: StructType) -> None:
    told = key_of(node, edge, rows.columns)
    missing = [key for key, text in told.items() if not text]
    if not missing:
        try:
            kinds = dict(zip(told, [field.dataType for field in rows.selectExpr(*told.values()).schema], strict=True))
        except PySparkException as error:
            missing, told = list(told), {key: f"{text}: {str(error).splitlines()[0]}" for key, text in told.items()}
        else:
            _require_same_kind(node, edge, told, kinds, own)
            return
    key = missing[0]
    seen = f" ({told[key]})" if told[key] else ""
    raise KeyUnknown(
        f"{node.name} is refreshed by {key}, which the rows of its input {edge.table} do not tell{seen}",
        where=str(node.location),
        remedy=f'say where it is, inputs={{"{edge.parameter}": ref("{edge.table}", {key}="...")}}, or that all of it is'
        f' passed to every key: lookup("{edge.table}")',
    )


def _require_same_kind(
    node: Node, edge: Edge, told: Mapping[str, str], kinds: Mapping[str, DataType], own: StructType
) -> None:
    """A day is no moment: of one and the other, none would be the same."""
    for key, kind in kinds.items():
        times = isinstance(kind, DatetimeType) or isinstance(own[key].dataType, DatetimeType)
        if times and kind != own[key].dataType:
            raise KeyUnknown(
                f"{node.name} is refreshed by {key}, which is {told[key]} in the rows of {edge.table} and of type"
                f" {kind.simpleString().upper()}, but its function gives {own[key].dataType.simpleString().upper()}",
                where=str(node.location),
                remedy="let the function and the declaration make the key in the same way",
            )


def _require_carried(node: Node, edge: Edge, schemas: Mapping[str, StructType]) -> None:
    keyed = [other.table for other in node.edges if not other.lookup and other.table is not None]
    for column in edge.on:
        assert edge.table is not None
        if column not in schemas[edge.table].names or not any(column in schemas[t].names for t in keyed):
            raise KeyUnknown(
                f'lookup("{edge.table}", on="{column}") of {node.name}: both {edge.table} and an input with the key'
                f" must have the column {column}",
                where=str(node.location),
                remedy="name a column that both have, or leave `on` out: then a change of it rebuilds the table",
            )
    if not any(set(edge.on) <= set(schemas[table].names) for table in keyed):
        raise KeyUnknown(
            f'lookup("{edge.table}", on={list(edge.on)}) of {node.name}: one input with the key must have all of them',
            where=str(node.location),
            remedy="join the inputs in a table of its own first, or leave `on` out: then a change of it rebuilds the"
            " table",
        )


#: Steps whose rows depend on one another, in the words of an author.
_TOGETHER = {
    "Aggregate": "groups rows",
    "Distinct": "leaves out repeated rows",
    "Deduplicate": "leaves out repeated rows",
    "Window": "uses a window over other rows",
    "GlobalLimit": "takes only so many rows",
    "Offset": "passes over so many rows",
    "Tail": "takes only so many rows",
    "Sample": "takes a sample of the rows",
    "Except": "takes away rows of another frame",
    "Intersect": "compares with rows of another frame",
}
#: Those that choose among all rows.
CHOOSING = ("GlobalLimit", "Offset", "Tail", "Sample")
#: Steps that work on each row for itself, or on a part of the rows that is handed to a function of Python.
_ALONE = frozenset(
    [
        "Project",
        "Filter",
        "SubqueryAlias",
        "View",
        "Union",
        "Generate",
        "Expand",
        "Unpivot",
        "ResolvedHint",
        "Sort",
        "LocalLimit",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "CollectMetrics",
        "EventTimeWatermark",
        "WithCTE",
        "CTERelationDef",
        "MapInPandas",
        "MapInArrow",
        "PythonMapInArrow",
    ]
)
#: Expressions that give another value in each run.
CHANGING = {
    "CurrentTimestamp": "current_timestamp()",
    "Now": "now()",
    "LocalTimestamp": "localtimestamp()",
    "CurrentDate": "current_date()",
    "CurrentTime": "current_time()",
    "Uuid": "uuid()",
    "Rand": "rand()",
    "Randn": "randn()",
    "MonotonicallyIncreasingID": "monotonically_increasing_id()",
}
#: What a predicate that calls one of them surely holds.
_CLOCK = re.compile(r"current|now|localtimestamp|curdate|unix_timestamp|uuid|rand|monotonic", re.IGNORECASE)
#: Aggregates whose value depends on the order of rows, which nothing keeps.
_UNORDERED = {"First": "first()", "Last": "last()", "AnyValue": "any_value()", "CollectList": "collect_list()"}


def require_unasked(node: Node, inputs: Mapping[str, DataFrame], asked: Sequence[tuple[str, DataFrame]]) -> None:
    """No function of some rows knows what all rows would give; what is passed whole may be asked."""
    some = union(leaves(inputs[edge.parameter]) for edge in node.edges if not edge.lookup)
    for method, frame in asked:
        if not some.isdisjoint(leaves(frame)):
            raise PromiseBroken(
                f"the function of {node.name} asks Spark for a result by {method} while it is called: refreshed by"
                f" {node.refresh.kind}, it would be that of some rows only",
                where=str(node.location),
                remedy="let it only return a DataFrame; what it asks for can be a table of its own that is passed as"
                " lookup(...); or declare it full()",
            )


def require_rows_alone(node: Node, inputs: Mapping[str, DataFrame], output: DataFrame) -> None:
    """In an appending table each row stands alone: new rows can be added without a look at the others."""
    whole = lookups(node, inputs)
    for step, below in walk(output):
        if union(below) <= whole:
            continue
        if told := _TOGETHER.get(step):
            raise _not_alone(node, told)
        if below and step not in _ALONE and not step.startswith("Join"):  # nothing would show later that it was wrong
            raise _not_alone(node, f"is not known to work on each row for itself ({step})")
    if told := _meeting(output, whole):
        raise _not_alone(node, told)


def require_keys_alone(node: Node, inputs: Mapping[str, DataFrame], output: DataFrame) -> None:
    """The rows of a key depend on that key's rows alone: not on how many others there are."""
    whole = lookups(node, inputs)
    for step, below in walk(output):
        if step in CHOOSING and not union(below) <= whole:
            raise PromiseBroken(
                f"{node.name} is refreshed by key, but its function {_TOGETHER[step]}, of whichever key they are: from"
                " the second run on it would see the rows of some keys only",
                where=str(node.location),
                remedy="choose among the rows of each key by a window: row_number() over (partition by the key ...);"
                " or declare it full()",
            )


def _not_alone(node: Node, told: str) -> PromiseBroken:
    return PromiseBroken(
        f"{node.name} is refreshed by append(), but its function {told}: from the second run on it would see the new"
        " rows only",
        where=str(node.location),
        remedy="declare it by_key(...), accumulate(...) or full(); a table that is passed whole is lookup(...)",
    )


def require_united(node: Node, inputs: Mapping[str, DataFrame], output: DataFrame) -> None:
    """An accumulating table's inputs are united and grouped once: whatever new rows would have to meet old ones for
    cannot be merged, a count of groups as little as a join.
    """
    whole = lookups(node, inputs)
    otherwise = f"declare the table by_key({', '.join(map(repr, node.keys))})"
    if told := _meeting(output, whole):
        raise PromiseBroken(
            f"{node.name} accumulates, but its function {told}: new rows of the one would have to meet old rows of the"
            " other",
            where=str(node.location),
            remedy=f"unite them (unionByName) and group the union, pass the one whole as lookup(...), or {otherwise}",
        )
    together = [_TOGETHER[step] for step, below in walk(output) if step in _TOGETHER and not union(below) <= whole]
    if len(together) > 1 or (together and together[0] != _TOGETHER["Aggregate"]):
        if "PivotFirst" in expressions(output):  # one group of the author's, two of Spark's: that is left to be tried
            return
        told = together[-1] if len(together) == 1 else f"{together[-1]} before it {together[0]}"
        raise PromiseBroken(
            f"{node.name} accumulates, but its function {told}: new rows would have to meet old ones, and what comes of"
            " both cannot be merged from what came of each",
            where=str(node.location),
            remedy=f"group the rows as they are, once; make the first step a table of its own; or {otherwise}",
        )


def _meeting(output: DataFrame, whole: frozenset[int]) -> str:
    """How rows that arrive are made to meet others than those of lookups, "" if they are not."""
    for step, below in walk(output):
        joins = step.startswith("Join") and not union(below) <= whole
        if joins and not keeps_arrivals(step, [side <= whole for side in below]):
            return "joins rows that arrive with rows that may arrive later"
    return "compares rows with a subquery (a lookup is joined instead)" if has_subquery(output) else ""


def lookups(node: Node, inputs: Mapping[str, DataFrame]) -> frozenset[int]:
    """The leaves of what is passed whole."""
    return union(leaves(inputs[edge.parameter]) for edge in node.edges if edge.lookup)


def keeps_arrivals(join: str, is_lookup: list[bool]) -> bool:
    """Whether a join gives, for each row that arrives, rows that depend on it and on lookups alone."""
    if join in ("Join INNER", "Join CROSS"):
        return any(is_lookup)
    if join in ("Join LEFT OUTER", "Join LEFT SEMI", "Join LEFT ANTI"):
        return is_lookup[1]
    return join == "Join RIGHT OUTER" and is_lookup[0]


def union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    """The leaves of several sides."""
    return frozenset(found for some in sets for found in some)


def require_exact(node: Node, output: DataFrame) -> None:
    """An incremental table gives the same rows however often it is computed."""
    found = expressions(output)
    changing = [told for name, told in CHANGING.items() if name in found]
    if changing and not node.volatile:
        raise NotExact(
            f"{node.name} calls {changing[0]}, which gives another value in each run, so that it cannot be told from a"
            " table that is wrong",
            where=str(node.location),
            remedy=f'{_instead(changing[0])}, or name the columns that depend on the run: volatile=["..."]',
        )
    if node.keys and not node.volatile and (told := _undecided(output, found)):
        raise NotExact(
            f"{node.name} calls {told}, whose result depends on the order of rows, which nothing keeps",
            where=str(node.location),
            remedy="say which one, by an order that no two rows of a key share: max(struct(order, value)) for the last,"
            " min for the first, row_number() over a window for whole rows; sort_array(collect_list(...)) for all",
        )


def _instead(changing: str) -> str:
    if changing in ("uuid()", "monotonically_increasing_id()"):
        return "make an id of the row's own values, sha2(concat_ws(...), 256)"
    return "use ingested_at, which sources hand over"


def _undecided(output: DataFrame, found: Collection[str]) -> str:
    """What takes rows in the order in which they happen to come, "" if nothing does."""
    if "Window" not in found:
        for name, told in _UNORDERED.items():
            if name in found and (name != "CollectList" or has_unsorted_list(output)):
                return told
    return "dropDuplicates() by some of the columns" if keeps_any(output) else ""


def require_exact_checks(node: Node, rows: DataFrame) -> None:
    """What decides where a row goes decides the same in every run."""
    for check in node.row_checks:
        if check.otherwise not in SPLITTING or not _CLOCK.search(check.predicate):
            continue
        found = expressions(empty_frame(rows.sparkSession, rows.schema).where(check.predicate))  # of it alone
        if told := [told for name, told in CHANGING.items() if name in found]:
            raise NotExact(
                f"the check `{check.name}` of {node.name} calls {told[0]}, which gives another value in each run, so"
                " that a row that is set aside today would be taken when the table is built again",
                where=str(node.location),
                remedy="compare with ingested_at, which sources hand over, or let the check only tell:"
                ' otherwise="warn"',
            )


def finished(
    spark: SparkSession, root: Path, node: Node, finish: Callable[..., Any], measures: StructType
) -> tuple[DataFrame, bool]:
    """What `finish` makes of the measures, and whether all of them are still there to be read from it."""
    rows = empty_frame(spark, measures)
    try:
        output = finish(rows)
        steps = steps_of(output)
    except Exception as error:
        raise BadFunction(
            f"finish of {node.name} does not fit the measures: {told(error)}",
            where=line_of(error, root) or str(node.location),
            remedy=f"it is handed a DataFrame of {', '.join(measures.names)} and returns the table's columns",
        ) from error
    if other := [step for step in steps if step not in ("Project", "Filter", "SubqueryAlias")]:
        raise PromiseBroken(
            f"finish of {node.name} does more than work on each row for itself: {other[0]}",
            where=str(node.location),
            remedy="let it only compute, rename and drop columns, or leave out rows; the rest belongs to the function",
        )
    through = {name for name in measures.names if hands_through(rows, output, name)}
    if changed := [key for key in node.keys if key not in through]:
        raise PromiseBroken(
            f"finish of {node.name} does not hand over {changed[0]} as it is, by which a key's rows are found again",
            where=str(node.location),
            remedy=f"let the function change {changed[0]} before it groups, and finish leave it as it is",
        )
    if has_subquery(output):
        raise PromiseBroken(
            f"finish of {node.name} compares rows with a subquery, which would see the rows of some keys only",
            where=str(node.location),
            remedy="let it work on each row for itself; the rest belongs to a table that reads this one",
        )
    require_exact(node, output)
    return output, through == set(measures.names) and "Filter" not in steps
