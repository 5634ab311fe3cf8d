"""Tries a refresh kind's promise on the user's own data: some keys are computed the incremental way and compared.

`by_key("id")` over orders(id) and customers(id) would otherwise be silently wrong, from the second run on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from icefield.declare import Accumulate
from icefield.engine.analyse import visible
from icefield.engine.keyed import KeySet
from icefield.engine.quality import kept
from icefield.engine.renewal import in_halves
from icefield.engine.rows import plain
from icefield.engine.scratch import store
from icefield.engine.tables import quoted
from icefield.errors import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType

    from icefield.engine.renewal import Renewal
    from icefield.graph import Node

#: How many keys are computed twice.
KEYS_TRIED = 20


def try_promise(
    renewal: Renewal,
    built: DataFrame,
    measures: StructType | None,
    finish: Callable[..., Any] | None,
    scratch: Path,
) -> None:
    """Fails where the rows that were built differ from those that the incremental way gives for some of the keys."""
    node = renewal.node
    keys, wanted = _some(node, built, scratch / "tried")
    if isinstance(node.refresh, Accumulate):
        assert measures is not None
        merged = in_halves(renewal, keys, measures)
        again = finish(merged) if finish else merged
    else:
        again = renewal.again(keys)
    given = _fixed(kept(node, visible(again)).select(*(quoted(c) for c in built.columns)), node).collect()
    if Counter(map(plain, given)) != Counter(map(plain, wanted)):
        raise _broken(node, wanted, given)


def _some(node: Node, built: DataFrame, place: Path) -> tuple[KeySet, list[Row]]:
    """Some keys, and the rows that were built of them."""
    one_each = isinstance(node.refresh, Accumulate)
    rows = built if one_each else built.select(*(quoted(key) for key in node.keys))
    chosen = store(rows.limit(KEYS_TRIED), place)
    keys = KeySet(node.keys, chosen, KEYS_TRIED)
    return keys, _fixed(chosen.frame if one_each else keys.restrict(built), node).collect()


def _fixed(rows: DataFrame, node: Node) -> DataFrame:
    return comparable(rows.select(*(quoted(column) for column in rows.columns if column not in node.volatile)))


def comparable(rows: DataFrame) -> DataFrame:
    """The rows with DOUBLEs cut to the digits that do not depend on the order of a sum."""
    inexact = {field.name for field in rows.schema if isinstance(field.dataType, DoubleType | FloatType)}
    columns = [
        F.col(quoted(name)).cast("float").alias(name) if name in inexact else quoted(name) for name in rows.columns
    ]
    return rows.select(*columns)


def _broken(node: Node, wanted: list[Row], given: list[Row]) -> PromiseBroken:
    odd = [row for row in wanted if plain(row) not in set(map(plain, given))] or wanted
    key = [odd[0][name] for name in node.keys] if odd else None
    others = [row.asDict() for row in given if [row[name] for name in node.keys] == key]
    shown = [str(rows[0]) if rows else "no row" for rows in ([row.asDict() for row in odd], others)]
    told = f"built from everything {shown[0]}, from the rows of its key {shown[1]}"
    keys = ", ".join(map(repr, node.keys))
    if isinstance(node.refresh, Accumulate):
        remedy = f"inputs are united, not joined, and each measure merges as it says; else declare it by_key({keys})"
    else:
        first = next((e for e in node.edges[1:] if not e.lookup), node.edges[0])
        remedy = (
            "the rows of a key may depend on that key's rows alone: where an input has the key under another name write"
            f' inputs={{"{first.parameter}": ref("{first.table}", {node.keys[0]}="...")}}, where rows of other keys are'
            f' needed lookup("{first.table}"), or declare it full()'
        )
    return PromiseBroken(
        f"{node.name} does not keep the promise of {node.refresh.kind}({keys}): {told}",
        where=str(node.location),
        remedy=remedy,
    )
