"""The same events in any order, some of them twice, are the same rows: random shops, against plain Python.

ICEFIELD_ORDER_EXAMPLES=200 ICEFIELD_EXACT_SEED=7 pytest tests/cdc/test_order_free.py      # make soak
"""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from captured import EVENTS, events_of
from icefield import cdc
from shop_messages import KEYS, Shop, told
from shop_recompute import TYPES, current, history, parse

pytestmark = pytest.mark.spark

EXAMPLES = int(os.environ.get("ICEFIELD_ORDER_EXAMPLES", "4"))
SEED = int(os.environ["ICEFIELD_EXACT_SEED"])  # drawn by tests/conftest.py where nobody has chosen one
SCHEMAS = {
    "customers": "id BIGINT, email STRING, name STRING, city STRING, notes STRING",
    "order_lines": "order_id BIGINT, line_no INT, product_id BIGINT, quantity INT, unit_price DECIMAL(12,2)",
}


def shop(number: int, partitions: int, steps: int) -> Shop:
    made = Shop(number, partitions)
    made.begin()
    for part in range(3):
        made.step(steps)
        for name in SCHEMAS:
            made.send_again(name, 4)
        if part == 1:
            made.truncate(*made.chance.choice([["customers"], ["order_lines"], ["customers", "order_lines"]]))
    return made


def multiset(rows: Any, columns: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_plain(row[column]) for column in columns) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):  # pyspark gives local time
        return int(value.timestamp()) * 1_000_000 + value.microsecond
    return tuple(value) if isinstance(value, list) else value


def test_events_in_any_order_and_sent_again_give_the_same_rows(spark: Any) -> None:
    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(number=st.integers(0, 10**9), partitions=st.sampled_from([1, 1, 3]), steps=st.integers(2, 40))
    def compare(number: int, partitions: int, steps: int) -> None:
        made = shop(number, partitions, steps)
        for name, schema in SCHEMAS.items():
            require_same(spark, made, name, schema, random.Random(number))

    compare()


def require_same(spark: Any, made: Shop, name: str, schema: str, chance: random.Random) -> None:
    events = events_of(told(message, name) for message in made.messages[name])
    again = chance.sample(events, len(events) // 3)
    shuffled = chance.sample([*events, *again], len(events) + len(again))
    frame = spark.createDataFrame(shuffled, EVENTS)
    wanted = list(parse(name, made.messages[name]))
    columns = [*TYPES[name], *cdc.ENVELOPE]
    parsed = spark.createDataFrame(cdc.parse(frame, schema, KEYS[name], truncates=frame).toArrow())
    assert multiset(parsed.collect(), columns) == multiset(wanted, columns), made.seed
    now = cdc.latest(parsed, KEYS[name], "sequence")
    assert multiset(now.collect(), list(TYPES[name])) == multiset(current(name, wanted), list(TYPES[name])), made.seed
    states = cdc.history(parsed, KEYS[name], "sequence", "event_time")
    spans = [*TYPES[name], "sequence", "valid_from", "valid_to", "is_current"]
    assert multiset(states.collect(), spans) == multiset(history(name, wanted), spans), made.seed
