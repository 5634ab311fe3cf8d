"""The four readers of a lake, each by its own means, all giving Arrow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from icefield.lake.duckdb_scan import connect, scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icefield.lake.embedded import EmbeddedLake


def by_duckdb(location: str) -> pa.Table:
    with connect() as db:
        return db.execute(f"SELECT * FROM {scan(location)}").to_arrow_table()


def by_pyiceberg(location: str) -> pa.Table:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(location).scan().to_arrow()


def by_polars(location: str) -> pa.Table:
    import polars as pl

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Polars tells which of its two planners it takes
        return pl.scan_iceberg(location).collect().to_arrow()


def by_spark(spark: SparkSession, lake: EmbeddedLake) -> Callable[[str], pa.Table]:
    """Spark goes through the catalog, as a job of someone else would."""
    from icefield.engine.session.spark import add_catalog

    add_catalog(spark, "lake", uri=str(lake.catalog.path), warehouse=str(lake.warehouse))
    return lambda table: spark.table(f"lake.{table}").toArrow()


def differing(frames: Mapping[str, pa.Table]) -> dict[str, int]:
    """For every reader after the first: rows (as multisets) that it and the first do not have in common."""
    first, *others = frames
    db = connect()
    for name, frame in frames.items():
        db.register(name, frame)
    columns = ", ".join(f'"{column}"' for column in frames[first].column_names)
    found = {}
    for other in others:
        assert sorted(frames[other].column_names) == sorted(frames[first].column_names), other
        one, two = f"SELECT {columns} FROM {first}", f"SELECT {columns} FROM {other}"
        query = f"(({one}) EXCEPT ALL ({two})) UNION ALL (({two}) EXCEPT ALL ({one}))"
        found[other] = db.execute(f"SELECT count(*) FROM ({query})").fetchone()[0]
    db.close()
    return found
