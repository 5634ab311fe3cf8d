"""Tries a refresh kind's promise on the user's own data: some keys are computed the incremental way and compared.

`by_key("id")` over orders(id) and customers(id) would otherwise be silently wrong, from the second run on.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from icefield.declare import Accumulate
from icefield.engine.analyse import visible
from icefield.engine.difference import CHANGE, REMOVED, difference
from icefield.engine.keyed import KeySet
from icefield.engine.quality import kept
from icefield.engine.renewal import in_halves
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
    chosen = built.select(*(quoted(key) for key in node.keys)).limit(KEYS_TRIED)
    keys = KeySet(node.keys, store(chosen, scratch / "tried"), KEYS_TRIED)
    if isinstance(node.refresh, Accumulate):
        assert measures is not None
        merged = in_halves(renewal, keys, measures)
        again = finish(merged) if finish else merged
    else:
        again = renewal.again(keys)
    again = kept(node, visible(again)).select(*(quoted(column) for column in built.columns))
    found = difference(comparable(keys.restrict(built)), comparable(again), node.volatile).limit(2).collect()
    if found:
        raise _broken(node, found)


def comparable(rows: DataFrame) -> DataFrame:
    """Rows with DOUBLEs cut to the digits that do not depend on the order of a sum."""
    inexact = [field.name for field in rows.schema if isinstance(field.dataType, DoubleType | FloatType)]
    return reduce(lambda frame, name: frame.withColumn(name, F.col(quoted(name)).cast("float")), inexact, rows)


def _broken(node: Node, found: list[Row]) -> PromiseBroken:
    sides = {row[CHANGE]: {k: v for k, v in row.asDict().items() if k != CHANGE} for row in found}
    built, again = sides.get(REMOVED), next((row for side, row in sides.items() if side != REMOVED), None)
    told = f"built from everything: {built}; from the rows of its key: {again}"
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
