"""How much a run's queries read: the size of the files they opened, as Iceberg told Spark when it planned them.

Of a file only the wanted columns are read, so that this is the most it can have been. What is read without a query does
not show.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from icefield.engine.promises.spark_plans import items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SIZES = r",(\d+),v2Custom_org\.apache\.iceberg\.spark\.source\.metrics\.Total(?:Data|Delete)FileSize\)"
_VALUES = re.compile(r"(\d+) -> ([\d,]+)")


def bytes_read(spark: SparkSession, since_ms: int) -> int:
    """Bytes of the files that queries opened since a time, each file as often as it was opened; maybe not all."""
    with suppress(Py4JJavaError):  # told in the background, and no reason to fail if that takes too long
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    # Looked for in Java: more than 8 kB of answer come to Python with a delay of 40 ms (TCP waits to fill its packets).
    jvm: Any = spark._jvm
    sizes = jvm.java.util.regex.Pattern.compile(_SIZES)
    store = spark._jsparkSession.sharedState().statusStore()
    total = 0
    for execution in _since(store, since_ms):
        told = jvm.scala.collection.mutable.StringBuilder()
        found = sizes.matcher(execution.metrics().addString(told))
        wanted = set()
        while found.find():
            wanted.add(found.group(1))
        if wanted:
            told = store.executionMetrics(execution.executionId()).toString()
            total += sum(int(number.replace(",", "")) for key, number in _VALUES.findall(told) if key in wanted)
    return total


def _since(store: Any, since_ms: int) -> Iterator[Any]:
    """The queries since a time: from the last one back, since Spark remembers a thousand and each answer takes a while.

    Those of several threads are not quite in the order in which they were submitted.
    """
    end = store.executionsCount()
    while end > 0:
        start = max(0, end - _PAGE)
        some = list(items(store.executionsList(start, end - start)))
        recent = [execution for execution in some if execution.submissionTime() >= since_ms]
        yield from recent
        if not recent:
            return
        end = start


#: So many queries are asked for at a time.
_PAGE = 20
