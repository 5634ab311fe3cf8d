"""Lookups of which a change is followed: how a function has to join them."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icefield import by_key
from icefield.engine.frames import empty_frame
from icefield.engine.joined import require_joined
from icefield.errors import PromiseBroken
from icefield.graph import Edge, Node

pytestmark = pytest.mark.spark

JOINED = {
    "of all its rows": ("joins it otherwise", "orders.crossJoin(known.agg(F.max('name').alias('name')))"),
    "by another column": ("joins it otherwise", "orders.join(known, orders.amount == known.name.cast('int'))"),
    "by a part of it": ("joins it otherwise", "orders.join(known, F.lower(orders.customer) == known.customer)"),
    "besides": ("joins it otherwise", "orders.join(known, (orders.customer == known.customer) | (known.name == 'x'))"),
    "whole": ("that none of the others meet", "orders.join(known.select('customer', 'name'), 'customer', 'right')"),
    "added": ("beside others (Union)", "orders.unionByName(known, allowMissingColumns=True)"),
    "ranked": (
        "values together (Window)",
        "orders.join(known.withColumn('n', F.row_number().over(Window.orderBy('customer'))), 'customer')",
    ),
    "cut": ("takes only some rows", "orders.join(known.limit(3), 'customer')"),
    "renamed": ("", "orders.join(known.select(F.col('customer').alias('c'), 'name'), F.col('c') == orders.customer)"),
    "grouped": ("", "orders.join(F.broadcast(known.groupBy('customer').agg(F.max('name'))), 'customer', 'left')"),
    "of what was grouped": (
        "", "orders.groupBy('id', 'customer').count().join(known.where('name > 1').dropDuplicates(), 'customer')",
    ),
    "twice": ("", "orders.join(known, 'customer').join(known.select('customer', F.lit(1).alias('k')), 'customer')"),
    "in a window": (
        "", "orders.join(known.withColumn('n', F.count('*').over(Window.partitionBy('customer'))), 'customer', 'semi')",
    ),
    "never": ("", "orders"),
}  # fmt: skip


@pytest.mark.parametrize("how", JOINED)
def test_a_lookup_that_is_not_joined_as_declared_is_refused(spark: SparkSession, how: str) -> None:
    told, body = JOINED[how]
    frames = {
        "orders": empty_frame(spark, StructType.fromDDL("id BIGINT, customer STRING, amount INT")),
        "known": empty_frame(spark, StructType.fromDDL("customer STRING, name STRING")),
    }
    edges = (Edge(parameter="orders", table="t.o"), Edge(parameter="known", table="t.k", lookup=True, on=("customer",)))
    node = Node(name="t.t", refresh=by_key("id"), edges=edges)
    output = eval(body, {"F": F, "Window": Window}, frames)
    if not told:
        require_joined(node, frames, output)
        return
    with pytest.raises(PromiseBroken, match=re.escape(told)) as refusal:
        require_joined(node, frames, output)
    assert "leave `on` out" in refusal.value.remedy
