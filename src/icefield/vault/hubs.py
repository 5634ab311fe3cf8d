"""`hub`: one row for each business key, from wherever it was seen first."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from icefield.declare.registry import caller
from icefield.errors import InvalidVault
from icefield.vault.declared import STAMPS, Events, columns_of, declare, ghost_rows, ghosts_of, hashes_of, keyed
from icefield.vault.hashing import hash_key, is_known

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame


def hub(
    name: str,
    *,
    hk: str,
    key: Sequence[str],
    seen_in: Mapping[str, Sequence[str]],
    record_source: str | Mapping[str, str],
    ghosts: str | None = None,
    load_date: str = "event_time",
    sequence: str = "sequence",
    tags: Sequence[str] = (),
) -> Callable[..., DataFrame]:
    """Declare a hub: every business key that was seen in some tables, with the time at which it was first.

    `key` names its business key; `seen_in={"parsed.orders": ["customer_id"]}` tells which columns of a table hold it.
    """
    names, columns = columns_of("key", key), hashes_of("seen_in", seen_in)
    for table, own in columns.items():
        if len(own) != len(names):
            raise InvalidVault(
                f"hub {name} has the key {', '.join(names)}, but takes {', '.join(own)} from {table}",
                where=str(caller()),
                remedy="name as many columns of each table as the key has, in the same order",
            )
    parameters = {table.replace(".", "_"): table for table in columns}
    sources = {table: record_source if isinstance(record_source, str) else record_source[table] for table in columns}
    events = Events(load_date=load_date, sequence=sequence)

    def build(**frames: DataFrame) -> DataFrame:
        seed = frames.pop("ghosts", None)
        seen = [
            frames[parameter]
            .where(is_known(*columns[table]))
            .select(
                F.expr(hash_key(*columns[table])).alias(hk),
                *(F.col(column).alias(name) for name, column in zip(names, columns[table], strict=True)),
                *events.stamps(sources[table]),
            )
            for parameter, table in parameters.items()
        ]
        rows = reduce(lambda a, b: a.unionByName(b), seen)
        if seed is not None:
            rows = rows.unionByName(ghost_rows(seed, rows, [hk]))
        first = Window.partitionBy(hk).orderBy("load_date", "record_source", "sequence", *names)
        one = rows.withColumn("_nth", F.row_number().over(first)).where("_nth = 1")
        return one.select(hk, *names, *STAMPS)

    inputs = {parameter: keyed(table, [hk], {hk: columns[table]}) for parameter, table in parameters.items()}
    if ghosts is not None:
        inputs["ghosts"] = ghosts_of(ghosts, hk)
    comment = f"Hub: every {', '.join(names)}, where and when it was seen first."
    return declare(name, build, inputs, [hk], once=[hk], comment=comment, tags=tags)
