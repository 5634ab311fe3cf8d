"""The bytes of messages that were read by Spark's tasks, from the files that they wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icefield.engine.origin import ARRIVAL, IDENTITY, RAW, ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Place = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class RawMessages:
    """Gives the bytes of messages; `sheets` are files with the arrival and the offsets that they are about.

    `others` are files that may have messages of any range.
    """

    sheets: tuple[tuple[int, int, int, str], ...]
    others: tuple[str, ...] = ()

    def __call__(self, wanted: pa.Table) -> pa.Array:
        """The bytes of messages, by their identities; NULL where a row has none."""
        places = identities(wanted)
        return found_among(places, (part for path in self._near(places) for part in _parts(path)))

    def _near(self, places: Iterable[Place]) -> list[str]:
        spans: dict[int, tuple[int, int]] = {}
        for arrival, row in places:
            if arrival is not None and row is not None:
                low, high = spans.get(arrival, (row, row))
                spans[arrival] = (min(low, row), max(high, row))
        near = [
            path
            for arrival, start, end, path in self.sheets
            if arrival in spans and start <= spans[arrival][1] and end > spans[arrival][0]
        ]
        return [*near, *self.others]


def _parts(path: str) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as opened:
        for batch in opened.iter_batches(columns=[*IDENTITY, RAW]):
            yield pa.Table.from_batches([batch])


def identities(rows: pa.Table) -> list[Place]:
    """What identifies rows."""
    return list(zip(*(rows[name].to_pylist() for name in IDENTITY), strict=True))


def found_among(places: list[Place], parts: Iterable[pa.Table]) -> pa.Array:
    """The bytes of the rows at these places, looked for in tables with identities and bytes."""
    arrivals = pa.array(sorted({arrival for arrival, _ in places if arrival is not None}), pa.int64())
    offsets = pa.array(sorted({row for _, row in places if row is not None}), pa.int64())
    found: dict[Place, bytes] = {}
    for part in parts:
        near = pc.and_(pc.is_in(part[ARRIVAL], value_set=arrivals), pc.is_in(part[ROW], value_set=offsets))
        chosen = part.filter(near)
        found.update(zip(identities(chosen), chosen[RAW].to_pylist(), strict=True))
    return pa.array([found.get(place) for place in places], pa.binary())
