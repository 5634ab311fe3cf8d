"""With which read a row was taken in, told by its value of the cursor column; done by Spark's tasks, in their order.

Rows that have the last value may have come before or after it was read: those that came before are known by digest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icefield.engine.intake.relations.values import Value, typed
from icefield.engine.origin import ARRIVAL

if TYPE_CHECKING:
    from icefield.graph.news import RelationRead

#: When a row was taken in, in milliseconds. Of rows that were taken in before, and of those that came late at the last
#: value, the digest over the columns that were read then.
TAKEN, KNOWN, LATE = "_icefield_taken", "_icefield_known", "_icefield_late"
ADDED = {ARRIVAL: pa.int64(), TAKEN: pa.int64(), KNOWN: pa.int64(), LATE: pa.int64()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The reads that a table's rows are from, to be looked up by value and digest."""

    arrivals: tuple[int, ...]
    taken_ms: tuple[int, ...]
    ends: tuple[Value, ...]
    #: Rows that came late, by their digests: the place of their read.
    late: Mapping[int, int]

    @classmethod
    def of(cls, reads: Sequence[RelationRead], kind: str, zone: str) -> Reads:
        """The reads, in the order of arrival."""
        return cls(
            arrivals=tuple(read.arrival for read in reads),
            taken_ms=tuple(read.taken_ms for read in reads),
            ends=tuple(typed(read.upto, kind, zone) for read in reads),
            late={digest: place for place, read in enumerate(reads) for digest in read.late},
        )

    def place(self, value: Value | None, digest: int) -> int:
        """Which read a row came with; the first one, where that cannot be told."""
        found = self.late.get(digest)
        if found is not None:
            return found
        last = len(self.ends) - 1
        return 0 if value is None else min(bisect_left(self.ends, value), last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """What a task does: it adds to rows with which read they came; `everything`: also to those of earlier reads.

    Otherwise rows that were taken in before are left out.
    """

    #: The column with the value of the cursor, and the one with the digest over the columns that were read before.
    value: str
    digest: str
    last: Value
    #: The digests of the rows that were taken in with the last value; None: they were too many to be remembered.
    ties: tuple[int, ...] | None
    reads: Reads
    arrival: int
    taken_ms: int
    everything: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of a partition, equal ones one after the other."""
        left = None if self.ties is None else Counter(self.ties)
        for batch in batches:
            values, digests = batch.column(self.value).to_pylist(), batch.column(self.digest).to_pylist()
            told = [self._told(value, digest, left) for value, digest in zip(values, digests, strict=True)]
            rows = pa.Table.from_batches([batch])
            for number, (name, kind) in enumerate(ADDED.items()):
                rows = rows.append_column(name, pa.array([one[number] for one in told], kind))
            if not self.everything:
                rows = rows.filter(pa.array([one[2] is None for one in told], pa.bool_()))
            yield from rows.to_batches()

    def _told(self, value: Any, digest: int, left: Counter[int] | None) -> tuple[int, int, int | None, int | None]:
        """Arrival, time, and the digest of a row that is known, or late."""
        is_last = value == self.last
        is_known = self.everything and (value is None or value < self.last)
        if is_last and left is None:
            is_known = True
        elif is_last and left is not None and left[digest]:
            left[digest] -= 1
            is_known = True
        if not is_known:
            return self.arrival, self.taken_ms, None, digest if is_last else None
        place = self.reads.place(value, digest)
        return self.reads.arrivals[place], self.reads.taken_ms[place], digest, None
