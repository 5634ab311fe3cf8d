"""What was read, in figures, and where the next read goes on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from icefield.engine.intake.relations.digests import Digest
from icefield.engine.intake.relations.news import TIES
from icefield.engine.intake.relations.placing import KNOWN, LATE
from icefield.engine.origin import LINE, PROBLEM
from icefield.graph.news import RelationCursor

if TYPE_CHECKING:
    import pyarrow as pa

    from icefield.engine.folders import Folder
    from icefield.engine.intake.relations.intake import ReceivedRelation

#: Whether a row has the highest value that is taken in.
TIE = "_icefield_tie"
_LOW = (1 << 30) - 1


@dataclass(slots=True)
class Totals:
    """Digests of the rows that were read: of all, of those that were known, of those at the highest value, and late."""

    rows: Digest = field(default_factory=Digest)
    known: Digest = field(default_factory=Digest)
    tied: Digest = field(default_factory=Digest)
    ties: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    malformed: int = 0

    @classmethod
    def of(cls, stored: Folder) -> Totals:
        """Counts rows where they lie."""
        found = cls()
        for part in stored.batches([LINE, TIE, KNOWN, LATE, PROBLEM]):
            tied = part.filter(part[TIE])[LINE]
            found.rows = found.rows.plus(_sum(part[LINE]))
            found.known = found.known.plus(_sum(part[KNOWN]))
            found.tied = found.tied.plus(_sum(tied))
            found.late += part[LATE].drop_null().to_pylist()
            found.malformed += part.num_rows - part[PROBLEM].null_count
            if len(found.ties) <= TIES:
                found.ties += tied.to_pylist()
        return found


def _sum(column: pa.ChunkedArray) -> Digest:
    """Of numbers whose sum may have more than 64 bits."""
    values = column.drop_null().to_numpy().astype(np.int64)
    return Digest(len(values), (int((values >> 30).sum()) << 30) + int((values & _LOW).sum()))


@dataclass(frozen=True, slots=True)
class Reached:
    """Where a table stands once it has taken in what was read, and what the lake is to remember of the read."""

    cursor: RelationCursor
    after: str = ""
    late: tuple[int, ...] = ()
    ties: tuple[int, ...] = ()


def reached(received: ReceivedRelation, found: Totals, upto: str) -> Reached:
    """What follows from the figures of a read."""
    known, names = received.known, received.names
    if received.source.cursor is None:
        return Reached(RelationCursor(count=found.rows.count, digest=found.rows.text, columns=names))
    cursor = replace(known, value=upto, arrivals=known.arrivals + 1)
    if not received.everything and upto == known.value:
        return _late_only(received, cursor, found)
    ties = tuple(found.ties) if found.tied.count <= TIES else ()
    total, lost = found.rows, ""
    if known.follows and not received.everything:
        total = Digest.of_cursor(known).plus(total)
        lost = known.lost or ("" if known.columns == names else _other_columns(received))
    cursor = replace(
        cursor,
        count=total.count,
        digest=total.text,
        columns=names,
        tied=found.tied.count,
        tied_digest=found.tied.text,
        lost=lost,
    )
    return Reached(cursor, known.value, tuple(found.late), ties)


def _late_only(received: ReceivedRelation, cursor: RelationCursor, found: Totals) -> Reached:
    """Only rows at the last value have come: they are known by the columns that were read before."""
    late = Digest.of(found.late)
    before = received.reads[-1].ties if received.reads else ()
    total, tied = Digest.of_cursor(cursor).plus(late), Digest.of_ties(cursor).plus(late)
    cursor = replace(cursor, count=total.count, digest=total.text, tied=tied.count, tied_digest=tied.text)
    return Reached(cursor, received.known.value, tuple(found.late), (*before, *found.late))


def _other_columns(received: ReceivedRelation) -> str:
    known = received.known
    return (
        f"the rows of {received.source.relation} with {known.column} up to {known.value} were taken in with other"
        " columns, so that they cannot be compared with those that the database has"
    )
