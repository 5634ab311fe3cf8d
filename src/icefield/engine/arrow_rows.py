"""Rows in memory, compared as Spark compares them: keys of some rows, and what two versions of rows differ by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def key_codes(keys: pa.Table) -> NDArray[np.int64]:
    """A number for each row, the same where all values are; NULL is a value like any other."""
    codes = np.zeros(len(keys), np.int64)
    for values in keys.columns:
        codes = joined_codes(codes, values)
    return codes


def joined_codes(codes: NDArray[np.int64], values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Numbers for keys of one column more: the same where the keys are."""
    found: NDArray[np.int64] = np.unique(codes * (1 << 32) + _codes(values), return_inverse=True)[1]
    return found


def _codes(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """A number for each value, the same for values that Spark takes for the same."""
    kind = values.type
    if pa.types.is_nested(kind):
        values = pa.chunked_array([pa.array([repr(value) for value in values.to_pylist()], pa.string())])
    elif pa.types.is_floating(kind):
        values = pc.add(values, pa.scalar(0.0, kind))  # -0.0 is 0.0
    encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    found: NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
    return found


def can_be_compared(schema: pa.Schema) -> bool:
    """Whether Arrow takes the same rows for equal as Spark does."""
    return all(_is_comparable(field.type) for field in schema)


def _is_comparable(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_exact(kind.field(n).type) for n in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _is_exact(kind.value_type)
    return not pa.types.is_nested(kind)


def _is_exact(kind: pa.DataType) -> bool:
    """Whether a value inside of another is told by how Python writes it: no float, no time beyond Python's years."""
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind) or pa.types.is_map(kind):
        return False
    return _is_comparable(kind)


def distinct_rows(rows: pa.Table) -> pa.Table:
    """Every row once."""
    _, first = np.unique(key_codes(rows), return_index=True)
    return rows.take(pa.array(np.sort(first)))


def difference(before: pa.Table, after: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Which rows of `before` are to go and which of `after` are to come; equal pairs have cancelled."""
    codes = key_codes(pa.concat_tables([before, after]))
    old, new = codes[: len(before)], codes[len(before) :]
    size = int(codes.max()) + 1 if len(codes) else 0
    net = np.bincount(new, minlength=size) - np.bincount(old, minlength=size)
    return pa.array(_nth(old) < -net[old]), pa.array(_nth(new) < net[new])


def _nth(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each row, how many equal ones come before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(codes) else np.array([], np.int64)
    lengths = np.diff(np.r_[begins, len(codes)])
    nth = np.empty(len(codes), np.int64)
    nth[order] = np.arange(len(codes)) - np.repeat(begins, lengths)
    return nth


def truncated(unit: str) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """What `date_trunc` does with times of UTC."""
    return lambda times: pc.floor_temporal(times, unit=unit)


def dated(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The days of times of UTC."""
    return pc.floor_temporal(times, unit="day").cast(pa.date32())
