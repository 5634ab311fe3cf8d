"""How much a run's queries read: the size of the files they opened, as Iceberg told Spark when it planned them.

Of a file only the wanted columns are read, so that this is the most it can have been. What is read without a query does
not show.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from icefield.engine.lineage import items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIZES = re.compile(r",(\d+),v2Custom_org\.apache\.iceberg\.spark\.source\.metrics\.Total(?:Data|Delete)FileSize\)")
_VALUES = re.compile(r"(\d+) -> ([\d,]+)")


def bytes_read(spark: SparkSession, since_ms: int) -> int:
    """Bytes of the files that queries opened since a time, each file as often as it was opened."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # what was read is told in the background
    store = spark._jsparkSession.sharedState().statusStore()
    total = 0
    for execution in items(store.executionsList()):
        if execution.submissionTime() < since_ms:
            continue
        wanted = set(_SIZES.findall(execution.metrics().toString()))
        if wanted:
            told = store.executionMetrics(execution.executionId()).toString()
            total += sum(int(number.replace(",", "")) for key, number in _VALUES.findall(told) if key in wanted)
    return total
