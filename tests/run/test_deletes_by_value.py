"""Tables from which another engine deleted rows by value, as Flink does: PyIceberg cannot read these, Spark can."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefield import Lake
from icefield.engine.session.spark import start_session
from icefield.lake.catalog import LAKE
from projects import TinyProject, order, tiny

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

CONF = {"spark.sql.shuffle.partitions": "2"}
TABLES = """
from pyspark.sql import Window, functions as F
from icefield import append, by_key, files, table, unique

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"
UNIQUE = unique("id", otherwise="quarantine")


@table("bronze.orders", source=files("landing/orders/*.csv", schema=ORDERS), refresh=append(), checks=[UNIQUE])
def orders(rows):
    return rows
"""
RANKED = """
@table("gold.ranked", refresh=by_key("customer"))
def ranked(orders):
    order = Window.partitionBy("customer").orderBy("id")
    return orders.select("customer", "id", F.row_number().over(order).alias("rank"))
"""


def delete_by_value(project: TinyProject, table: str, column: str, value: str) -> None:
    """Writes a file that says: all rows of this value are gone."""
    lake = project.lake
    spark = start_session(app="icefield tiny", conf=CONF, log=project.root / "spark.log")
    java: Any = spark._jvm
    iceberg = java.org.apache.iceberg
    where = {"uri": f"jdbc:sqlite:{lake.catalog.path}", "warehouse": str(lake.warehouse), "jdbc.schema-version": "V1"}
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    catalog = iceberg.CatalogUtil.loadCatalog("org.apache.iceberg.jdbc.JdbcCatalog", LAKE, where, hadoop)
    found = catalog.loadTable(iceberg.catalog.TableIdentifier.parse(table))
    field = found.schema().findField(column).fieldId()
    path = lake.warehouse / f"gone-{uuid4()}.parquet"
    schema = pa.schema([pa.field(column, pa.string(), metadata={"PARQUET:field_id": str(field)})])
    pq.write_table(pa.table({column: [value]}, schema=schema), path)
    fields = spark.sparkContext._gateway.new_array(java.int, 1)
    fields[0] = field
    gone = iceberg.FileMetadata.deleteFileBuilder(found.spec()).ofEqualityDeletes(fields).withPath(str(path))
    gone = gone.withFormat("parquet").withFileSizeInBytes(path.stat().st_size).withRecordCount(1).build()
    found.newRowDelta().addDeletes(gone).commit()
    catalog.close()


def built(root: Path, source: str) -> TinyProject:
    project = tiny(root, source)
    project.land("1.csv", [order(1), order(2, "bob"), order(3, "carl"), order(4, "dora")])
    assert project.run().status == "published"
    return project


def require_exact(project: TinyProject, table: str) -> None:
    assert [(one.status, one.examples) for one in Lake(project.root).verify(table)] == [("exact", ())]


def test_what_arrives_is_compared_with_the_rows_that_are_left(tmp_path: Path) -> None:
    project = built(tmp_path, TABLES)
    delete_by_value(project, "bronze.orders", "customer", "bob")
    assert project.run(accept=("bronze.orders",)).status == "published"
    project.land("2.csv", [order(2, "eve"), order(3, "eve"), order(5)])
    result = project.run()
    assert result.status == "published", result.error
    rows = project.ask("SELECT id, customer FROM bronze.orders ORDER BY id")
    assert rows == [(1, "ann"), (2, "eve"), (3, "carl"), (4, "dora"), (5, "ann")]


def test_a_promise_is_tried_on_the_rows_that_are_left(tmp_path: Path) -> None:
    project = built(tmp_path, TABLES)
    delete_by_value(project, "bronze.orders", "customer", "bob")
    project.declare(TABLES + RANKED)
    result = project.run(accept=("bronze.orders",))
    assert result.status == "published", result.error
    require_exact(project, "gold.ranked")


def test_keys_are_counted_without_those_that_are_gone(tmp_path: Path) -> None:
    project = built(tmp_path, TABLES + RANKED)
    delete_by_value(project, "gold.ranked", "customer", "bob")
    assert project.run(accept=("gold.ranked",)).status == "published"
    project.land("2.csv", [order(6)])
    result = project.run()
    assert result.status == "published", result.error
    (outcome,) = [one for one in result.tables if one.table == "gold.ranked"]
    assert (outcome.action, outcome.keys_touched) == ("update", 1)
