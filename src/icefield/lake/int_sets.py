"""Whole numbers in large arrays."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

#: Numbers lie close together if this many times as many would fill the span between the least and the greatest.
_SPREAD = 8
#: So many gaps tell spans of numbers apart, and of so many numbers they are looked for at a time.
_GAPS, _AT_ONCE = 15, 1_000_000


def numbers_of(values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Arrow's whole numbers, of which none is NULL; wide ones, for differences of narrow ones would overflow."""
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every value once, in order: by sorting, for numpy's own way by a hash table takes a hundred times as long."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


@dataclass(frozen=True, slots=True)
class Arrived:
    """What is to be known of many numbers: those that occur more than once, each once, and where they lie.

    `spans` are a few, from least to greatest, that have all of the numbers between them, apart where the gaps are
    widest: a few old ones among many new do not make them all one.
    """

    repeated: NDArray[np.int64]
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, parts: list[NDArray[np.int64]]) -> Arrived:
        """Of all parts together; the list is empty afterwards, so that there are no more copies than needed."""
        ordered = np.concatenate(parts)
        parts.clear()
        ordered.sort()
        return cls(_repeated(ordered), _spans(ordered))


def repeated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values that occur more than once, each once, in order."""
    return _repeated(np.sort(values))


def _repeated(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    return distinct(ordered[1:][ordered[1:] == ordered[:-1]])


def _spans(ordered: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    if not len(ordered):
        return ()
    gaps: list[tuple[float, int]] = []
    for first in range(0, len(ordered) - 1, _AT_ONCE):
        part = ordered[first : first + _AT_ONCE + 1].astype(float)  # differences of whole numbers would overflow
        widths = part[1:] - part[:-1]
        widest = np.argpartition(widths, -_GAPS)[-_GAPS:] if len(widths) > _GAPS else np.arange(len(widths))
        gaps = nlargest(_GAPS, [*gaps, *((float(widths[at]), first + int(at)) for at in widest)])
    ends = [*sorted(at for _, at in gaps), len(ordered) - 1]
    firsts = [0, *(end + 1 for end in ends[:-1])]
    return tuple((int(ordered[first]), int(ordered[last])) for first, last in zip(firsts, ends, strict=True))


@dataclass(frozen=True, slots=True)
class Marks:
    """Numbers that lie close together, as ids do: one mark for each that could be there, the fastest way to look it up.

    Six times faster than by hash.
    """

    least: int
    marks: NDArray[np.bool_]

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.int64]]) -> Marks | None:
        """The marks of all parts; None where the numbers lie too far apart, or there are none."""
        filled = [part for part in parts if len(part)]
        if not filled:
            return None
        least, most = min(int(part.min()) for part in filled), max(int(part.max()) for part in filled)
        if most - least > _SPREAD * sum(map(len, filled)):
            return None
        marks = np.zeros(most - least + 1, np.bool_)
        for part in filled:
            marks[part - least] = True
        return cls(least, marks)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers, in order."""
        return np.flatnonzero(self.marks) + self.least

    def take_out(self, values: NDArray[np.int64]) -> None:
        """Lets go of some of them."""
        inside = (values >= self.least) & (values < self.least + len(self.marks))
        self.marks[values[inside] - self.least] = False

    def has(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some values are among the numbers."""
        inside = (values >= self.least) & (values < self.least + len(self.marks))
        inside[inside] = self.marks[values[inside] - self.least]
        return inside


@dataclass(frozen=True, slots=True)
class Ordered:
    """Numbers in order, at least one, wherever they lie."""

    values: NDArray[np.int64]

    def has(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some values are among the numbers."""
        at = np.searchsorted(self.values, values)
        at[at == len(self.values)] = 0
        found: NDArray[np.bool_] = self.values[at] == values
        return found
