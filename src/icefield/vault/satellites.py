"""`satellite` and `status_satellite`: what is known of a hash key over time, and whether its row is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from icefield.declare.registry import caller
from icefield.errors import InvalidVault
from icefield.vault.declared import (
    STAMPS,
    Events,
    columns_of,
    declare,
    ghost_rows,
    ghosts_of,
    hashed,
    hashes_of,
    keyed,
)
from icefield.vault.hashing import hashdiff, is_known

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame


def satellite(
    name: str,
    source: str,
    *,
    hk: str,
    key: Sequence[str],
    payload: Sequence[str],
    record_source: str,
    hubs: Mapping[str, Sequence[str]] | None = None,
    ghosts: str | None = None,
    load_date: str = "event_time",
    sequence: str = "sequence",
    deleted: str = "is_deleted",
    tags: Sequence[str] = (),
) -> Callable[..., DataFrame]:
    """Declare a satellite: a row for each change of the payload of a hash key, which is made of the columns `key`.

    `hubs` are further hash keys to keep on each row, such as those that a link's satellite is looked up by.
    """
    own, values = columns_of("key", key), columns_of("payload", payload)
    hashes = {hk: own, **hashes_of("hubs", hubs or {})}
    events = Events(load_date=load_date, sequence=sequence, deleted=deleted)

    def build(rows: DataFrame, ghosts: DataFrame | None = None) -> DataFrame:
        there = rows.where(is_known(*own)).where(~F.expr(events.deleted))
        told = there.select(
            *hashed(hashes),
            *(F.col(column) for column in values),
            F.expr(hashdiff(*values)).alias("hashdiff"),
            *events.stamps(record_source),
        )
        order = Window.partitionBy(hk).orderBy("load_date", "sequence", "hashdiff")
        before = told.withColumn("_before", F.lag("hashdiff").over(order))
        changes = before.where("NOT (hashdiff <=> _before)").drop("_before")
        if ghosts is not None:
            changes = changes.unionByName(ghost_rows(ghosts, changes, [*hashes]))
        return changes.select(*hashes, *values, "hashdiff", *STAMPS)

    inputs = {"rows": keyed(source, [hk], hashes)}
    if ghosts is not None:
        inputs["ghosts"] = ghosts_of(ghosts, hk)
    comment = f"Satellite: every change of {', '.join(values)}."
    return declare(name, build, inputs, [hk], once=[hk, "load_date", "sequence"], comment=comment, tags=tags)


def status_satellite(
    name: str,
    source: str,
    *,
    hk: str,
    key: Sequence[str],
    record_source: str,
    by: Sequence[str] = (),
    hubs: Mapping[str, Sequence[str]] | None = None,
    load_date: str = "event_time",
    sequence: str = "sequence",
    deleted: str = "is_deleted",
    tags: Sequence[str] = (),
) -> Callable[..., DataFrame]:
    """Declare a status satellite: a row whenever a hash key appears or disappears, with `is_active`.

    `by` is the driving key, columns of the source: where it moves to another hash key, the one before is inactive.
    """
    own, drivers = columns_of("key", key), list(by) or [hk]
    hashes = {hk: own, **hashes_of("hubs", hubs or {})}
    if clash := [one for one in by if one in hashes]:
        raise InvalidVault(
            f"{name} is driven by {clash[0]}, which is a hash key",
            where=str(caller()),
            remedy="name columns of the source that identify a row there",
        )
    events = Events(load_date=load_date, sequence=sequence, deleted=deleted)

    def build(rows: DataFrame) -> DataFrame:
        driving = [F.col(column) for column in by]
        alive = (~F.expr(events.deleted)).alias("is_active")
        told = rows.where(is_known(*own)).select(*hashed(hashes), *driving, alive, *events.stamps(record_source))
        changes = _moves(told, hk, [*hashes], [*by]) if by else _appearances(told, hk)
        return changes.select(*hashes, *by, "is_active", *STAMPS)

    comment = f"Status satellite: when {hk} appeared and when it was gone."
    once = [*dict.fromkeys([hk, *drivers]), "load_date", "sequence"]
    inputs = {"rows": keyed(source, drivers, hashes)}
    return declare(name, build, inputs, drivers, once=once, comment=comment, tags=tags)


def _appearances(rows: DataFrame, hk: str) -> DataFrame:
    """The rows at which a hash key becomes active or inactive."""
    order = Window.partitionBy(hk).orderBy("load_date", "sequence", "is_active")
    return rows.withColumn("_before", F.lag("is_active").over(order)).where("NOT (is_active <=> _before)")


def _moves(rows: DataFrame, hk: str, hashes: list[str], by: list[str]) -> DataFrame:
    """The same for keys that a driving key moves between: leaving one is a row as well."""
    order = Window.partitionBy(*by).orderBy("load_date", "sequence", hk)
    state = F.struct(*hashes, "is_active")
    marked = rows.withColumns({"_state": state, "_before": F.lag(state).over(order)})
    moved = (F.col(f"_before.{hk}") != F.col(hk)) & F.col("_before.is_active")
    left = F.struct(*(F.col(f"_before.{one}").alias(one) for one in hashes), F.lit(False).alias("is_active"))  # noqa: FBT003
    same = F.coalesce(F.col("_state") == F.col("_before"), F.lit(False))  # noqa: FBT003
    both = F.array_compact(F.array(F.when(moved, left), F.when(~same, F.col("_state"))))
    return marked.select(*by, F.explode(both).alias("_change"), *STAMPS).select(*by, "_change.*", *STAMPS)
