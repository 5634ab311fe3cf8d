"""Counts rows whose value another table does not have.

Where no row failed at the versions before, only rows that came since can fail now, as long as no value went from the
other table: the cost follows the change. That no row failed is remembered with the table that has the check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from icefield.engine.lineage import expressions, has_subquery
from icefield.engine.promises import CHANGING
from icefield.engine.scratch import store
from icefield.engine.tables import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from icefield.declare import References
    from icefield.engine.seen import Seen
    from icefield.graph.state import Version

_ROWS = "_icefield_rows"
#: Numbers lie close together if this many times as many would fill the span between the least and the greatest.
_SPREAD = 8


@dataclass(frozen=True, slots=True)
class Held:
    """Checks that no row failed, with the snapshots of both tables: as remembered, and as found by this run."""

    before: Mapping[str, str] = field(default_factory=dict)
    now: dict[str, str] = field(default_factory=dict)


def missing(check: References, rows: Seen, others: Seen, held: Held, scratch: Path) -> tuple[int, object]:
    """How many rows have a value that the others do not have, and one such value."""
    known = others.columns([check.column])
    key = _key(check, rows.frame)
    unsure = _unsure(check, rows, others, known) if key and _held(held.before, key, rows, others) else rows
    count, example = _count(check, unsure, others, known, scratch)
    if key and not count and (now := _snapshots(rows.version, others.version)):
        held.now[key] = now
    return count, example


def _key(check: References, rows: DataFrame) -> str | None:
    """By what it is remembered; None where the rows it is about depend on more than the rows."""
    chosen = rows.where(check.where)
    if has_subquery(chosen) or not expressions(chosen).isdisjoint(CHANGING):
        return None
    zone = rows.sparkSession.conf.get("spark.sql.session.timeZone")
    return f"{check.column} of {check.of or 'it'} where {check.where} to {check.to} in {zone}"


def _held(before: Mapping[str, str], key: str, rows: Seen, others: Seen) -> bool:
    """Whether no row failed at the versions since which it is known what came and went."""
    if rows.moves is None or others.moves is None:
        return False
    at = _snapshots(rows.moves.since, others.moves.since)
    return at is not None and before.get(key) == at


def _snapshots(one: Version | None, other: Version | None) -> str | None:
    # Not the numbers of versions: two runs give the same ones if one of them is not published.
    if one is None or other is None or one.snapshot is None or other.snapshot is None:
        return None
    return f"{one.snapshot} {other.snapshot}"


def _unsure(check: References, rows: Seen, others: Seen, known: pa.Table | None) -> Seen:
    """The rows that may fail, where none did before: those that came, unless the others lost a value."""
    assert rows.moves is not None
    assert others.moves is not None
    if others.moves.went is None:
        return rows.moves.came
    if known is None:
        return rows
    lost = _not_among(others.moves.went([check.column])[check.column], known[check.column])
    return rows if lost is None or lost[0] else rows.moves.came


def _count(check: References, rows: Seen, others: Seen, known: pa.Table | None, scratch: Path) -> tuple[int, object]:
    column = quoted(check.column)
    chosen = rows.frame.where(check.where).where(f"{column} IS NOT NULL")
    if known is not None:
        wanted = rows.columns([check.column]) if check.where == "true" else None
        if wanted is None and rows.fit:
            wanted = store(chosen.select(column), scratch).arrow()
        found = None if wanted is None else _not_among(wanted[check.column], known[check.column])
        if found is not None:
            return found
    # Counted by value before they are compared: few values go through the shuffle, not all rows.
    counted = chosen.groupBy(column).agg(F.count("*").alias(_ROWS))
    absent = counted.join(others.frame.select(column).distinct(), check.column, "left_anti")
    total = absent.agg(F.sum(_ROWS), F.first(column)).first()
    assert total is not None
    return int(total[0] or 0), total[1]


def _not_among(wanted: pa.ChunkedArray, known: pa.ChunkedArray) -> tuple[int, object] | None:
    """How many values are not among others, and one of them; None where the types differ."""
    if pa.types.is_string(wanted.type) and pa.types.is_large_string(known.type):  # by Spark, and by PyIceberg
        wanted = wanted.cast(known.type)
    if wanted.type != known.type:
        return None
    there = _present(wanted, known)
    if there is None:
        there = pc.is_in(wanted, value_set=pc.unique(known))
    absent = wanted.filter(pc.invert(there)).drop_null()
    return len(absent), absent[0].as_py() if len(absent) else None


def _present(wanted: pa.ChunkedArray, known: pa.ChunkedArray) -> pa.Array | None:
    """Which whole numbers are among others that lie close together, as ids do: six times faster than by hash."""
    if not pa.types.is_integer(known.type) or not len(known) or wanted.null_count:
        return None
    least, most = (value.as_py() for value in pc.min_max(known).values())
    if least is None or most - least > _SPREAD * len(known):
        return None
    marks = np.zeros(most - least + 1, np.bool_)
    for chunk in known.chunks:
        marks[_numbers(chunk.drop_null()) - least] = True
    values = _numbers(wanted)
    inside = (values >= least) & (values <= most)
    inside[inside] = marks[values[inside] - least]
    return pa.array(inside)


def _numbers(values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(values.to_numpy(), np.int64)  # differences of narrow ones would overflow
