"""Which keys occur more than once: looked for by hash, which needs no shuffle, so that only few rows are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

_HASH = "_icefield_hash"
#: More rows than this are counted by Spark: the driver would need 16 bytes for each.
_IN_MEMORY = 20_000_000
#: Up to so many rows a side of a join is sent to everyone.
SMALL = 1_000_000


class Repeats:
    """Hashes of the keys of some rows; the same key always has the same hash."""

    def __init__(self, rows: DataFrame, keys: Sequence[str], folder: Path) -> None:
        self._rows, self._keys, self._folder = rows, list(keys), folder
        place = folder / "hashes"
        hashes = rows.select(_hash(self._keys))
        hashes.write.option("compression", "none").option("parquet.enable.dictionary", "false").parquet(str(place))
        self.count = sum(pq.read_metadata(file).num_rows for file in place.glob("*.parquet"))
        self.repeated = self._in_memory(place) if self.count <= _IN_MEMORY else self._by_spark(place)

    def suspects(self, more: NDArray[np.int64] | None = None) -> DataFrame:
        """The rows whose key may occur more than once, or has one of these hashes; all columns."""
        wanted = self.repeated if more is None else np.union1d(self.repeated, more)
        place = self._folder / "suspects.parquet"
        pq.write_table(pa.table({_HASH: wanted}), place)
        hashes = self._rows.sparkSession.read.schema(f"{_HASH} BIGINT").parquet(str(place))
        hashed = self._rows.withColumn(_HASH, _hash(self._keys))
        return hashed.join(small(hashes, len(wanted)), _HASH, "left_semi").drop(_HASH)

    def known(self, old: DataFrame) -> tuple[DataFrame, NDArray[np.int64]]:
        """The keys that other rows have, too, and their hashes."""
        keys = [_name(key) for key in self._keys]
        fresh = self._rows.select(*self._keys).distinct()
        found = old.select(*self._keys).join(small(fresh, self.count), keys, "left_semi").distinct()
        place = str(self._folder / "known")
        found.withColumn(_HASH, _hash(self._keys)).write.parquet(place)
        table = pq.read_table(place, columns=[_HASH])
        return self._rows.sparkSession.read.schema(found.schema).parquet(place), table[_HASH].to_numpy()

    def _in_memory(self, place: Path) -> NDArray[np.int64]:
        ordered = np.sort(pq.read_table(place)[_HASH].to_numpy())
        return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])

    def _by_spark(self, place: Path) -> NDArray[np.int64]:
        counted = self._rows.sparkSession.read.schema(f"{_HASH} BIGINT").parquet(str(place)).groupBy(_HASH).count()
        counted.where("`count` > 1").select(_HASH).write.parquet(str(self._folder / "repeated"))
        found: NDArray[np.int64] = pq.read_table(self._folder / "repeated")[_HASH].to_numpy()
        return found


def small(frame: DataFrame, count: int) -> DataFrame:
    """A side of a join, with a word to Spark where it is small."""
    return F.broadcast(frame) if count <= SMALL else frame


def _hash(keys: Sequence[str]) -> Column:
    return F.xxhash64(*keys).alias(_HASH)


def _name(quoted: str) -> str:
    return quoted[1:-1].replace("``", "`")
