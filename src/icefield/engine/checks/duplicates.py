"""Rows that repeat the key of another: looked for by hash, which needs no shuffle, and then compared one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from icefield.engine import limits
from icefield.engine.arrow_rows import joined_codes, key_codes
from icefield.engine.folders import Folder
from icefield.engine.origin import ARRIVAL, IDENTITY, ROW
from icefield.engine.sql import quoted
from icefield.lake.int_sets import distinct, repeated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

_HASH, _KNOWN = "_icefield_hash", "_icefield_known"
#: Up to so many rows a side of a join is sent to everyone, and up to so many values are listed in a condition.
SMALL, _LISTED = 1_000_000, 2_000
#: The same of whole rows.
_SENT = 200_000


def _no_numbers() -> NDArray[np.int64]:
    return np.array([], np.int64)


@dataclass(frozen=True, slots=True)
class Hashes:
    """Hashes of keys: in memory where they are few, else in folders that Spark reads, with how many lie there."""

    values: NDArray[np.int64] = field(default_factory=_no_numbers)
    folders: tuple[Path, ...] = ()
    count: int = 0

    def __len__(self) -> int:
        return len(self.values) + self.count

    def plus(self, other: Hashes) -> Hashes:
        """All hashes of both, each once in memory."""
        values = distinct(np.concatenate([self.values, other.values]))
        return Hashes(values, (*self.folders, *other.folders), self.count + other.count)

    @classmethod
    def found(cls, place: Path) -> Hashes:
        """What Spark has written to a folder."""
        count = Folder(place).count()
        if count > limits.LIMITS.driver_rejects:
            return cls(folders=(place,), count=count)
        return cls(pq.read_table(place)[_HASH].to_numpy())

    def frame(self, spark: SparkSession, place: Path) -> DataFrame:
        """All of them for Spark; what is in memory is written to a file."""
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({_HASH: self.values}), place)
        told = spark.read.schema(f"{_HASH} BIGINT").parquet(str(place), *map(str, self.folders))
        return told.distinct() if self.folders else told


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

    def repeated(self, *, in_memory: bool) -> tuple[int, Hashes]:
        """How many rows have a key, and the hashes that more than one of them has; in memory, if they fit there."""
        place = self._folder / "hashes"
        hashes = self._rows.select(self.hash.alias(_HASH))
        hashes.write.mode("overwrite").option("compression", "none").option(
            "parquet.enable.dictionary", "false"
        ).parquet(str(place))
        count = sum(pq.read_metadata(file).num_rows for file in place.glob("*.parquet"))
        fit = in_memory and count <= limits.compared_rows()  # the driver needs 16 bytes for each
        return count, Hashes(self._in_memory(place)) if fit else self._by_spark(place)

    def known(self, old: DataFrame, count: int) -> Path:
        """Where the keys are that other rows have, too, with their hashes."""
        fresh = self._rows.select(*self._names).distinct()
        found = old.select(*self._names).join(small(fresh, count), list(self.columns), "left_semi").distinct()
        place = self._folder / "known"
        found.select(*self._names, self.hash.alias(_HASH)).write.mode("overwrite").parquet(str(place))
        return place

    def _in_memory(self, place: Path) -> NDArray[np.int64]:
        return repeated(pq.read_table(place)[_HASH].to_numpy())

    def _by_spark(self, place: Path) -> Hashes:
        counted = self._rows.sparkSession.read.schema(f"{_HASH} BIGINT").parquet(str(place)).groupBy(_HASH).count()
        counted.where("`count` > 1").select(_HASH).write.mode("overwrite").parquet(str(self._folder / "repeated"))
        return Hashes.found(self._folder / "repeated")


def flagged(rows: DataFrame, value: Column, wanted: Hashes, flag: str, place: Path) -> DataFrame:
    """The rows with a flag that says whether the value is one of the wanted ones."""
    if len(wanted) <= _LISTED and not wanted.folders:
        listed = ", ".join(map(str, wanted.values.tolist())) or "NULL"
        return rows.withColumn(_HASH, value).withColumn(flag, F.expr(f"{_HASH} IN ({listed})")).drop(_HASH)
    hashes = wanted.frame(rows.sparkSession, place).withColumn(flag, F.lit(True))  # noqa: FBT003
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


def marked_late(
    rows: DataFrame, alive: Column, columns: Sequence[str], known: DataFrame | None, flag: str
) -> DataFrame:
    """What `late` does, by Spark: all rows, with a flag on those that are alive and late."""
    names = [quoted(column) for column in columns]
    present = alive & F.expr(" AND ".join(f"{name} IS NOT NULL" for name in names))
    # The others stand alone, whatever their keys: many of them may have the same, such as NULL.
    alone = F.when(~present, F.xxhash64(*IDENTITY))
    place = F.row_number().over(Window.partitionBy(*names, alone).orderBy(*IDENTITY))
    repeats = place > 1
    told = rows.columns
    if known is not None:
        rows = rows.join(known.withColumn(_KNOWN, F.lit(True)), list(columns), "left")  # noqa: FBT003
        repeats = repeats | F.col(_KNOWN).isNotNull()
    return rows.withColumn(flag, present & repeats).select(*map(quoted, told), flag)


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
        codes = joined_codes(codes, values)
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
