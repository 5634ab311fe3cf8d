"""Whole numbers in large arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

#: Numbers lie close together if this many times as many would fill the span between the least and the greatest.
_SPREAD = 8


def numbers_of(values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Arrow's whole numbers, of which none is NULL; wide ones, for differences of narrow ones would overflow."""
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every value once, in order: by sorting, for numpy's own way by a hash table takes a hundred times as long."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def repeated(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The values that occur more than once in all parts together, each once, in order.

    The list is empty afterwards: of many numbers there are no more copies at a time than needed.
    """
    ordered = np.concatenate(parts)
    parts.clear()
    ordered.sort()
    return distinct(ordered[1:][ordered[1:] == ordered[:-1]])


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
