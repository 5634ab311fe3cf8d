"""`link`: which business keys belong together, and how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from icefield.declare.registry import caller
from icefield.errors import InvalidVault
from icefield.vault.declared import STAMPS, Events, columns_of, declare, hashed, hashes_of, keyed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame


def link(
    name: str,
    source: str,
    *,
    hk: str,
    hubs: Mapping[str, Sequence[str]],
    by: str | Sequence[str],
    record_source: str,
    also: Sequence[str] = (),
    load_date: str = "event_time",
    sequence: str = "sequence",
    deleted: str = "is_deleted",
    tags: Sequence[str] = (),
) -> Callable[..., DataFrame]:
    """Declare a link: a row for each time that business keys belonged together, until `end_date`.

    `by` is the driving key, among `hubs` and `also`: it has one link at a time, and moving to another ends the one
    before. `also` are columns of the source that tell links between the same hubs apart, such as a line number.
    """
    hashes, drivers, extra = hashes_of("hubs", hubs), columns_of("by", by), list(also)
    if unknown := [one for one in drivers if one not in hashes and one not in extra]:
        raise InvalidVault(
            f"link {name} is driven by {unknown[0]}, which is neither in hubs= nor in also=",
            where=str(caller()),
            remedy=f"choose among {', '.join([*hashes, *extra])}",
        )
    whole = {hk: [*(column for columns in hashes.values() for column in columns), *extra]}
    events = Events(load_date=load_date, sequence=sequence, deleted=deleted)

    def build(rows: DataFrame) -> DataFrame:
        told = [F.col(column) for column in extra]
        gone = F.expr(events.deleted).alias("_gone")
        seen = rows.select(*hashed({**whole, **hashes}), *told, gone, *events.stamps(record_source))
        order = Window.partitionBy(*drivers).orderBy("load_date", "sequence", hk)
        state = F.when(~F.col("_gone"), F.col(hk))
        marked = seen.withColumns(
            {"_state": state, "_before": F.lag(state).over(order), "_nth": F.row_number().over(order)}
        )
        changes = marked.where("_nth = 1 OR NOT (_state <=> _before)")
        ended = changes.withColumn("end_date", F.lead("load_date").over(order)).where("_state IS NOT NULL")
        return ended.select(hk, *hashes, *extra, *STAMPS, "end_date")

    comment = f"Link: {' and '.join(hashes)}; a new one of {', '.join(drivers)} ends the one before."
    inputs = {"rows": keyed(source, drivers, hashes)}
    once = [*drivers, "load_date", "sequence"]
    return declare(name, build, inputs, drivers, once=once, comment=comment, tags=tags)
