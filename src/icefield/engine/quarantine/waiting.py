"""Rows that wait in quarantine, before a replay or discard and after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from icefield.engine.batch import evaluate
from icefield.engine.origin import ARRIVAL, LINE, REASONS, short_reason
from icefield.engine.quarantine.repair import is_malformed, with_columns
from icefield.errors import OriginLost
from icefield.graph import quarantine_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from icefield.engine.tables import Tables
    from icefield.graph import Node
    from icefield.graph.state import Repair
    from icefield.lake.metadata import Metadata

_UNREADABLE = "unreadable"
#: What identifies a row in quarantine.
PLACE = (ARRIVAL, LINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Waiting rows that a replay or discard is about, by file and line; `unreadable` have no values to set."""

    rows: pa.Table
    unreadable: int = 0

    @property
    def matched(self) -> int:
        """How many waiting rows match, whether anything can be done about them or not."""
        return len(self.rows) + self.unreadable


def waiting(tables: Tables, node: Node, schema: StructType, repair: Repair | None, scratch: Path) -> Waiting:
    """The rows that wait as of what is published, and match; without a repair: all of them."""
    quarantine = _read(tables, node.name, tables.branch.base_metadata(quarantine_of(node.name)))
    if quarantine is None:
        return Waiting(rows=pa.table({name: pa.array([], pa.int64()) for name in PLACE}))
    matching = quarantine if repair is None else with_columns(quarantine, schema).where(repair.where)
    unreadable = is_malformed(_own(quarantine, "reasons")).alias(_UNREADABLE)
    found = evaluate(matching.select(*_origin(quarantine), unreadable), scratch / "matching").arrow()
    settable = found if repair is None or repair.kind == "discard" else found.filter(pc.invert(found[_UNREADABLE]))
    rows = settable.select(list(PLACE))
    if repair is not None:
        _require_origin(node, rows)
    return Waiting(rows=rows, unreadable=found.num_rows - rows.num_rows)


def still_waiting(tables: Tables, table: str, before: Waiting) -> tuple[int, dict[str, int]]:
    """How many of these rows wait as of what was staged, and by which reasons."""
    quarantine = _read(tables, table, tables.branch.staged_metadata(quarantine_of(table)))
    if quarantine is None:
        return 0, {}
    now = quarantine.select(*_origin(quarantine), F.col(_own(quarantine, "reasons")).alias(REASONS)).toArrow()
    known = set(zip(*(before.rows[name].to_pylist() for name in PLACE), strict=True))
    rows = zip(*(now[name].to_pylist() for name in (*PLACE, REASONS)), strict=True)
    still = [reasons for *origin, reasons in rows if tuple(origin) in known]
    told = Counter(short_reason(reason) for reasons in still for reason in reasons or ())
    return min(len(still), len(before.rows)), dict(told)  # rows without an origin all look alike


def _read(tables: Tables, table: str, metadata: Metadata | None) -> DataFrame | None:
    snapshot = None if metadata is None else metadata.get("current-snapshot-id")
    return None if snapshot in (None, -1) else tables.read(quarantine_of(table), snapshot)


def _own(quarantine: DataFrame, name: str) -> str:
    """How the quarantine calls a column of its own: the author's keep their names where both would have the same."""
    return f"quarantine_{name}" if f"quarantine_{name}" in quarantine.columns else name


def _origin(quarantine: DataFrame) -> list[Expression]:
    return [F.col(_own(quarantine, "arrival")).alias(ARRIVAL), F.col(_own(quarantine, "line")).alias(LINE)]


def _require_origin(node: Node, rows: pa.Table) -> None:
    """A decision that cannot say which rows it is about would be about whatever comes to wait later."""
    unknown = rows[ARRIVAL].null_count
    if not unknown:
        return
    keep = "keep the source's columns: use withColumn and drop instead of select, or select('*', ...)"
    upstream = "fix the rows in the upstream table, or change the function or its checks"
    raise OriginLost(
        f"{unknown} of the quarantined rows of {node.name} have no file and line, so they cannot be distinguished from"
        " rows that are quarantined later",
        where=str(node.location),
        remedy=upstream if node.source is None else keep,
    )
