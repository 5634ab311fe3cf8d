"""`pit`: which rows of some satellites were valid at each moment at which one of them changed."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from icefield.declare.registry import caller
from icefield.errors import InvalidVault
from icefield.vault.declared import declare
from icefield.vault.hashing import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

#: When the row of a key begins that a satellite knows nothing of: the load date of ghost rows.
BEGINNING = "1900-01-01 00:00:00"


def pit(
    name: str,
    hub: str,
    *,
    hk: str,
    satellites: Mapping[str, str],
    tags: Sequence[str] = (),
) -> Callable[..., DataFrame]:
    """Declare a point-in-time table: for each hash key and each moment at which something changed (`as_of`, until
    `until`), the load date and sequence of the row that every satellite had then.

    Of two changes at one moment, the later counts. Before its first row, a satellite is told by its ghost row.
    """
    if not satellites or {"hub", hk, "as_of", "until"} & set(satellites):
        raise InvalidVault(
            f"satellites={dict(satellites)!r} of {name} does not map names to satellites",
            where=str(caller()),
            remedy='write satellites={"details": "vault.sat_customer"}; the names begin the columns',
        )
    names = list(satellites)
    row = "struct<load_date: timestamp, sequence: bigint>"

    def build(**frames: DataFrame) -> DataFrame:
        def points(rows: DataFrame, of: str) -> DataFrame:
            own = F.struct("load_date", "sequence").cast(row)
            told = [(own if one == of else F.lit(None).cast(row)).alias(one) for one in names]
            return rows.select(hk, F.col("load_date").alias("as_of"), *told)

        every = [points(frames["hub"], ""), *(points(frames[one], one) for one in names)]
        at = Window.partitionBy(hk).orderBy("as_of")  # all rows of a moment together
        met = reduce(lambda a, b: a.unionByName(b), every)
        so_far = met.select(hk, "as_of", *(F.max(one).over(at).alias(one) for one in names)).distinct()
        ended = so_far.withColumn("until", F.lead("as_of").over(at))
        return ended.select(hk, "as_of", "until", *(column for one in names for column in _pointer(one, hk)))

    inputs = {"hub": hub, **satellites}
    comment = f"Point in time: which rows of {', '.join(satellites.values())} were valid when."
    return declare(name, build, inputs, [hk], once=[hk, "as_of"], comment=comment, tags=tags)


def _pointer(satellite: str, hk: str) -> list[Column]:
    known, ghost = F.col(satellite).isNotNull(), F.expr(f"TIMESTAMP '{BEGINNING}Z'")
    return [
        F.when(known, F.col(hk)).otherwise(UNKNOWN).alias(f"{satellite}_hk"),
        F.coalesce(F.col(f"{satellite}.load_date"), ghost).alias(f"{satellite}_load_date"),
        F.coalesce(F.col(f"{satellite}.sequence"), F.lit(0)).alias(f"{satellite}_sequence"),
    ]
