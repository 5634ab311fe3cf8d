"""Rows that repeat the key of another: looked for by hash, which needs no shuffle, and then compared one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from icefield.engine.origin import ARRIVAL, ROW
from icefield.engine.sql import quoted
from icefield.lake.numbers import repeated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

_HASH = "_icefield_hash"
#: More rows than this are counted by Spark: the driver would need 16 bytes for each.
_IN_MEMORY = 20_000_000
#: Up to so many rows a side of a join is sent to everyone, and up to so many values are listed in a condition.
SMALL, _LISTED = 1_000_000, 2_000
#: The same of whole rows.
_SENT = 200_000


class Keys:
    """The keys of some rows, of which none has a NULL, as hashes: the same key always has the same hash."""

    def __init__(self, rows: DataFrame, columns: Sequence[str], folder: Path) -> None:
        self.columns = tuple(columns)
        self._names = [quoted(column) for column in columns]
        self._rows = rows.where(" AND ".join(f"{name} IS NOT NULL" for name in self._names))
        self._folder = folder

    @property
    def hash(self) -> Column:
        return F.xxhash64(*self._names)

    def repeated(self, *, in_memory: bool) -> tuple[int, NDArray[np.int64]]:
        """How many rows have a key, and the hashes that more than one of them has; in memory, if they fit there."""
        place = self._folder / "hashes"
        hashes = self._rows.select(self.hash.alias(_HASH))
        hashes.write.option("compression", "none").option("parquet.enable.dictionary", "false").parquet(str(place))
        count = sum(pq.read_metadata(file).num_rows for file in place.glob("*.parquet"))
        fit = in_memory and count <= _IN_MEMORY
        return count, self._in_memory(place) if fit else self._by_spark(place)

    def known(self, old: DataFrame, count: int) -> pa.Table:
        """The keys that other rows have, too."""
        fresh = self._rows.select(*self._names).distinct()
        found = old.select(*self._names).join(small(fresh, count), list(self.columns), "left_semi").distinct()
        place = self._folder / "known"
        found.select(*self._names, self.hash.alias(_HASH)).write.parquet(str(place))
        return pq.read_table(place)

    def _in_memory(self, place: Path) -> NDArray[np.int64]:
        return repeated(pq.read_table(place)[_HASH].to_numpy())

    def _by_spark(self, place: Path) -> NDArray[np.int64]:
        counted = self._rows.sparkSession.read.schema(f"{_HASH} BIGINT").parquet(str(place)).groupBy(_HASH).count()
        counted.where("`count` > 1").select(_HASH).write.parquet(str(self._folder / "repeated"))
        found: NDArray[np.int64] = pq.read_table(self._folder / "repeated")[_HASH].to_numpy()
        return found


def hashes_of(known: pa.Table) -> NDArray[np.int64]:
    """The hashes of known keys."""
    found: NDArray[np.int64] = known[_HASH].to_numpy()
    return found


def flagged(rows: DataFrame, value: Column, wanted: NDArray[np.int64], flag: str, place: Path) -> DataFrame:
    """The rows with a flag that says whether the value is one of the wanted ones."""
    if len(wanted) <= _LISTED:
        listed = ", ".join(map(str, wanted.tolist())) or "NULL"
        return rows.withColumn(_HASH, value).withColumn(flag, F.expr(f"{_HASH} IN ({listed})")).drop(_HASH)
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({_HASH: wanted}), place)
    hashes = rows.sparkSession.read.schema(f"{_HASH} BIGINT").parquet(str(place)).withColumn(flag, F.lit(True))  # noqa: FBT003
    joined = rows.withColumn(_HASH, value).join(small(hashes, len(wanted)), _HASH, "left")
    return joined.withColumn(flag, F.coalesce(flag, F.lit(False))).drop(_HASH)  # noqa: FBT003


def small(frame: DataFrame, count: int) -> DataFrame:
    """A side of a join, with a word to Spark where it is small."""
    return F.broadcast(frame) if count <= SMALL else frame


def sent(rows: DataFrame, count: int) -> DataFrame:
    """The same for whole rows, which are longer than keys."""
    return F.broadcast(rows) if count <= _SENT else rows


def repeated_rows(keys: pa.Table) -> tuple[int, int, tuple[Any, ...]]:
    """How many rows repeat the key of another, how many keys occur more than once, and one of them."""
    at = np.flatnonzero(_present(keys, keys.column_names))
    chosen = keys.take(pa.array(at))
    codes = key_codes(chosen)
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    several = np.flatnonzero(counts > 1)
    example = tuple(chosen.slice(first[several[0]], 1).to_pylist()[0].values()) if len(several) else ()
    return len(at) - len(counts), len(several), example


def late(rows: pa.Table, columns: Sequence[str], known: pa.Table | None) -> NDArray[np.intp]:
    """Indexes of the rows that come later than another with the same key; a key with a NULL repeats nothing.

    Rows with a known key are all late.
    """
    at = np.flatnonzero(_present(rows, columns))
    chosen = rows.select([*columns, ARRIVAL, ROW]).take(pa.array(at))
    before = 0 if known is None else known.num_rows
    codes = np.zeros(before + len(at), np.int64)
    for column in columns:
        earlier = [] if known is None else [known[column].combine_chunks()]
        values = pa.chunked_array([*earlier, chosen[column].combine_chunks()])
        codes = _joined(codes, values)
    ours = codes[before:]
    order = np.lexsort((chosen[ROW].to_numpy(), chosen[ARRIVAL].to_numpy()))
    first = order[np.unique(ours[order], return_index=True)[1]]
    is_late = np.ones(len(at), bool)
    is_late[first] = False
    is_late |= np.isin(ours, codes[:before])
    return at[is_late]


def _present(rows: pa.Table, columns: Sequence[str]) -> NDArray[np.bool_]:
    present = np.ones(rows.num_rows, bool)
    for column in columns:
        present &= rows[column].is_valid().to_numpy()
    return present


def key_codes(keys: pa.Table) -> NDArray[np.int64]:
    """A number for each row, the same where all values are; NULL is a value like any other."""
    codes = np.zeros(len(keys), np.int64)
    for values in keys.columns:
        codes = _joined(codes, values)
    return codes


def _joined(codes: NDArray[np.int64], values: pa.ChunkedArray) -> NDArray[np.int64]:
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
