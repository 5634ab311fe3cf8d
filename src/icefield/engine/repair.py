"""What people decided about rows in quarantine, applied: columns set anew and checked again, or rows let go.

Conditions and values are Spark SQL over the columns that quarantine shows, so what was seen there can be typed here.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from icefield.engine.origin import FATE, MALFORMED, REASONS, ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from icefield.graph.state import Repair

_ORIGINAL, _HIT = "_icefield_original", "_icefield_hit"


def mend(waiting: DataFrame, repairs: Sequence[Repair], all_hold: str) -> tuple[DataFrame, DataFrame]:
    """The rows that pass after their repair, and those that still wait, as they were."""
    columns = waiting.columns
    frame = waiting.withColumns({_ORIGINAL: F.struct(*(f"`{name}`" for name in columns)), _HIT: F.lit(False)})  # noqa: FBT003
    frame = _shown(frame)
    for repair in repairs:
        if repair.kind != "replay":
            continue
        # A line that could not be read has no values to repair: the file is to be mended.
        readable = ~F.col(REASONS)[0].startswith(MALFORMED)
        hit = readable & F.coalesce(F.expr(repair.where), F.lit(False))  # noqa: FBT003
        kinds = {name: waiting.schema[name].dataType for name, _ in repair.assign}
        values = {n: F.when(hit, F.expr(value).cast(kinds[n])).otherwise(F.col(f"`{n}`")) for n, value in repair.assign}
        frame = frame.withColumns({**values, _HIT: F.col(_HIT) | hit})
    passes = F.col(_HIT) & F.coalesce(F.expr(all_hold), F.lit(False))  # noqa: FBT003
    mended = frame.where(passes).select(*(f"`{name}`" for name in columns))
    return mended, frame.where(~passes).select(f"{_ORIGINAL}.*")


def discard(bad: DataFrame, repairs: Sequence[Repair]) -> DataFrame:
    """Marks the rows that a person let go."""
    conditions = [F.coalesce(F.expr(r.where), F.lit(False)) for r in repairs if r.kind == "discard"]  # noqa: FBT003
    if not conditions:
        return bad
    let_go = reduce(lambda a, b: a | b, conditions)
    shown = _shown(bad).withColumn(FATE, F.when(let_go, F.lit("discard")).otherwise(F.col(FATE)))
    return shown.select(*(f"`{name}`" for name in bad.columns))


def _shown(frame: DataFrame) -> DataFrame:
    """Adds `reasons` and `line` under the names that quarantine shows them by."""
    own = {"reasons": REASONS, "line": ROW}
    return frame.withColumns({n: F.col(c) for n, c in own.items() if n not in frame.columns and c in frame.columns})
