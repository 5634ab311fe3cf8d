"""Unique keys that a correction frees or takes: rows that waited for a key come in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from icefield.engine import limits
from icefield.engine.batch import Batch
from icefield.engine.checks.split import Split, splitting
from icefield.engine.origin import ARRIVAL, REASONS
from icefield.engine.refresh.difference import ADDED, CHANGE, REMOVED
from icefield.engine.sql import quoted
from icefield.engine.versions import Published
from icefield.graph.news import FilesNews

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame

    from icefield.declare import Unique
    from icefield.engine.refresh.correction import Correction

#: When more than this share of a table's rows leave, computing everything is cheaper.
_REBUILD_SHARE = 0.5
#: So many rows that leave quarantine are listed in one condition; where more are repaired, the table is rebuilt.
_LISTED = 2_000


@dataclass(frozen=True, slots=True)
class FreedKeys:
    """What a correction means for keys that must be unique."""

    correction: Correction

    def taken_by_later_rows(self, split: Split, old: Published | None, orders: Mapping[str, int]) -> str:
        """Why a rebuild would decide otherwise: a corrected row has the key of a row that arrived later."""
        _, unique = splitting(self.correction.node)
        if not unique or split.bad is None or old is None:
            return ""
        for check in unique:
            late = self.late(check, split.bad)
            if late.num_rows > limits.LIMITS.driver_rejects:
                return f"{late.num_rows:,} corrected rows repeat a key"
            if late.num_rows and self.arrived_later(check, late, old, orders):
                return f"a corrected row has the {', '.join(check.columns)} of a row that arrived later"
        return ""

    def late(self, check: Unique, bad: Batch) -> pa.Table:
        """Rows of corrected files that were set aside because they repeat a key: these keys, and their arrival."""
        names, corrected = [*check.columns, ARRIVAL], pa.array(sorted(self.corrected), pa.int64())
        found = []
        for rows in bad.batches([*names, REASONS]):
            first = pc.list_element(rows[REASONS].combine_chunks(), 0)
            of_check = pc.and_(pc.is_in(rows[ARRIVAL], value_set=corrected), pc.equal(first, check.name))
            found.append(rows.filter(of_check).select(names))
        return pa.concat_tables(found)

    @property
    def corrected(self) -> list[int]:
        assert isinstance(self.correction.step.news, FilesNews)
        paths = {file.path for file in self.correction.step.news.changed}
        return [file.order for file in self.correction.step.news.taken if file.path in paths]

    def arrived_later(self, check: Unique, late: pa.Table, old: Published, orders: Mapping[str, int]) -> bool:
        names = list(check.columns)
        keys = self.correction.keys(check, late)
        known = keys.restrict(old.rows.select(*map(quoted, names), "source_file")).toArrow().to_pylist()
        latest: dict[tuple[object, ...], int] = {}
        for row in known:
            key = tuple(row[name] for name in names)
            latest[key] = max(latest.get(key, -1), orders.get(row["source_file"], 0))
        return any(latest.get(tuple(row[n] for n in names), -1) > row[ARRIVAL] for row in late.to_pylist())

    def freed(self, change: Batch, gone: Collection[int]) -> pa.Table | str | None:
        """Rows that wait because of a key that leaves: the first of each comes in its place."""
        _, unique = splitting(self.correction.node)
        quarantine, found = self.correction.quarantine(), None
        for check in unique:
            free, moved = _left_keys(change, check)
            if not (free.num_rows or moved.num_rows):
                continue
            if check.otherwise == "drop" or self.has_discards:
                return f"{self.correction.step.reason}, and a row that is gone may have a key that leaves"
            if quarantine is None:
                continue
            if self.waiting_for(check, moved, quarantine, gone).num_rows:
                return (
                    f"{self.correction.step.reason}, and a row waits that arrived before the one that has its key now"
                )
            waiting = self.waiting_for(check, free, quarantine, gone)
            if waiting.num_rows and (len(unique) > 1 or found is not None):
                return f"{self.correction.step.reason}, and rows wait for several keys"
            found = waiting if waiting.num_rows else found
        return found

    @property
    def has_discards(self) -> bool:
        decided = self.correction.stage.decided.get(self.correction.name)
        return decided is not None and bool(decided.of("discard"))

    def waiting_for(self, check: Unique, left: pa.Table, quarantine: DataFrame, gone: Collection[int]) -> pa.Table:
        """The first of the rows that wait for each of these keys."""
        names, own = list(check.columns), self.correction.own()
        if not left.num_rows:
            return left
        keys = self.correction.keys(check, left)
        waiting = quarantine.where(F.array_contains(own["reasons"], check.name))
        if gone:
            waiting = waiting.where(~F.col(own["arrival"]).isin(sorted(gone)))
        rows = keys.restrict(waiting).toArrow()
        order = rows.sort_by([(own["arrival"], "ascending"), (own["line"], "ascending")])
        seen: set[tuple[object, ...]] = set()
        first = []
        for at, row in enumerate(order.select(names).to_pylist()):
            if tuple(row.values()) not in seen:
                seen.add(tuple(row.values()))
                first.append(at)
        return order.take(pa.array(first, pa.int64()))


def _left_keys(change: Batch, check: Unique) -> tuple[pa.Table, pa.Table]:
    """Keys that no row has any more, and keys that a row of another file has now: one that waits may be older."""
    names = list(check.columns)
    told = change.arrow(list(dict.fromkeys([CHANGE, *names, "source_file"])))
    left, came = (told.filter(pc.equal(told[CHANGE], side)) for side in (REMOVED, ADDED))
    now = {tuple(row[name] for name in names): row["source_file"] for row in came.to_pylist()}
    places: dict[bool, list[int]] = {True: [], False: []}
    for at, row in enumerate(left.to_pylist()):
        key = tuple(row[name] for name in names)
        if key not in now or now[key] != row["source_file"]:
            places[key not in now].append(at)
    keys = left.select(names)
    return keys.take(pa.array(places[True], pa.int64())), keys.take(pa.array(places[False], pa.int64()))
