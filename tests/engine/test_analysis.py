"""What a run refuses of a declared table before it reads a file: all of it is told by calling its function once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from declared import derive
from icefield import accumulate, append, by_key, expect, ref, references, unique
from icefield.errors import (
    BadFunction,
    ContractBroken,
    InvalidName,
    KeyUnknown,
    NotExact,
    PromiseBroken,
    UnknownColumn,
)

pytestmark = pytest.mark.spark

COUNTED = "orders.groupBy('customer').agg(F.count('*').alias('n'))"
#: The error, what it says, how the table is declared, and its function.
REFUSED: dict[str, tuple[type[Exception], str, dict[str, Any], str]] = {
    "rows that were computed already": (
        PromiseBroken, "calls the Spark action localCheckpoint()", {"refresh": append()},
        "orders.dropDuplicates(['id']).localCheckpoint()",
    ),
    "a result of Spark's": (
        PromiseBroken, "calls the Spark action count()", {"refresh": by_key("id")},
        "orders.withColumn('n', F.lit(orders.count()))",
    ),
    "a correlation": (
        PromiseBroken, "calls the Spark action corr()", {"refresh": by_key("id")},
        "orders.withColumn('c', F.lit(orders.selectExpr('id a', '-id b').corr('a', 'b')))",
    ),
    "a count of another kind": (
        PromiseBroken, "calls the Spark action rdd", {"refresh": by_key("id")},
        "orders.withColumn('n', F.lit(orders.rdd.getNumPartitions()))",
    ),
    "a clock": (
        NotExact, "current_timestamp()", {"refresh": append()}, "orders.withColumn('now', F.current_timestamp())",
    ),
    "a number of its own": (
        NotExact, "derive the id from the row's values", {"refresh": by_key("id")},
        "orders.withColumn('u', F.monotonically_increasing_id())",
    ),
    "a uuid": (NotExact, "uuid()", {"refresh": by_key("id")}, "orders.withColumn('u', F.expr('uuid()'))"),
    "a partition of Spark's": (
        NotExact, "spark_partition_id()", {"refresh": append()}, "orders.withColumn('p', F.spark_partition_id())",
    ),
    "a function of Python's that depends on chance": (
        NotExact, "the nondeterministic function", {"refresh": append()},
        "orders.withColumn('c', F.udf(lambda x: x).asNondeterministic()('id'))",
    ),
    "a sum of DOUBLE": (
        NotExact, "DOUBLE", {"refresh": accumulate("customer", s="sum")},
        "orders.groupBy('customer').agg(F.sum(F.col('amount').cast('double')).alias('s'))",
    ),
    "a sum of texts": (
        PromiseBroken, "sums n, which is STRING", {"refresh": accumulate("customer", n="sum")},
        COUNTED + ".withColumn('n', F.col('n').cast('string'))",
    ),
    "a column that is no measure": (
        PromiseBroken, "n is neither key nor measure", {"refresh": accumulate("customer", s="sum")},
        "orders.groupBy('customer').agg(F.sum('amount').alias('s'), F.count('*').alias('n'))",
    ),
    "a clock in finish": (
        NotExact, "current_date()",
        {"refresh": accumulate("customer", n="count", finish=lambda m: m.withColumn("today", F.current_date()))},
        COUNTED,
    ),
    "a column twice": (
        BadFunction, "more than one column named id", {"refresh": append()}, "orders.select('id', 'amount', 'ID')",
    ),
    "a dot in a name": (
        InvalidName, "dots and backticks are not allowed in column names", {"refresh": append()},
        "orders.withColumnRenamed('id', 'a.id')",
    ),
    "a collation": (
        ContractBroken, "UTF8_LCASE", {"refresh": append()},
        "orders.withColumn('c', F.collate('customer', 'UTF8_LCASE'))",
    ),
    "a struct as key": (
        KeyUnknown, "keys must be plain values",
        {"refresh": by_key("k"), "inputs": {"orders": ref("bronze.orders", k="struct(id)")}},
        "orders.withColumn('k', F.struct('id'))",
    ),
    "a key of another type": (
        KeyUnknown, "of type TIMESTAMP, but its function returns DATE",
        {"refresh": by_key(d="date_trunc('month', at)")},
        "orders.groupBy(F.to_date('at').alias('d')).count()",
    ),
    "a key that the input does not have": (
        KeyUnknown, "cannot be determined for rows of its input bronze.orders", {"refresh": by_key("d")},
        "orders.withColumn('d', F.to_date('at'))",
    ),
    "a key that the function does not return": (
        KeyUnknown, "does not return", {"refresh": by_key("id")}, "orders.drop('id')",
    ),
    "a check of no column": (
        UnknownColumn, "which the table does not have", {"refresh": append(), "checks": [unique("idd")]}, "orders",
    ),
    "a check in another spelling": (
        UnknownColumn, "but the table spells it `id`", {"refresh": append(), "checks": [unique("ID")]}, "orders",
    ),
    "a reference in another spelling": (
        UnknownColumn, "but the table spells it `id`",
        {"refresh": append(), "checks": [references("Id", to="bronze.orders")]}, "orders",
    ),
    "a volatile column in another spelling": (
        UnknownColumn, "but the table spells it `now`", {"refresh": append(), "volatile": ["Now"]},
        "orders.withColumn('now', F.current_timestamp())",
    ),
    "a check that sets rows aside by the clock": (
        NotExact, "the check `not in the future` of gold.t calls current_timestamp()",
        {
            "refresh": append(),
            "checks": [expect("not in the future", "at <= current_timestamp()", otherwise="quarantine")],
        },
        "orders",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_right_is_refused(spark: SparkSession, case: str) -> None:
    error, told, options, body = REFUSED[case]

    def function(orders: Any) -> Any:
        return eval(body, {"F": F}, {"orders": orders})

    with pytest.raises(error, match=re.escape(told)):
        derive(spark, function, **options)
