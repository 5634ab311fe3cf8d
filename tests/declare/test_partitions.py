"""Partition transforms are those of Iceberg, and mistakes in them are found at once."""

from __future__ import annotations

import pytest

from icefield.declare import Partition, parse_partition
from icefield.errors import InvalidSchema


@pytest.mark.parametrize(
    ("text", "transform", "column", "count"),
    [
        ("country", "identity", "country", None),
        ("days(ts)", "days", "ts", None),
        (" MONTHS( ts ) ", "months", "ts", None),
        ("years(ts)", "years", "ts", None),
        ("hours(ts)", "hours", "ts", None),
        ("bucket(16,k)", "bucket", "k", 16),
        ("truncate(4, c)", "truncate", "c", 4),
    ],
)
def test_transforms_are_read_and_written_one_way(text: str, transform: str, column: str, count: int | None) -> None:
    partition = parse_partition(text)
    assert (partition.transform, partition.column, partition.count) == (transform, column, count)
    assert parse_partition(str(partition)) == partition


def test_spark_sql_is_the_text_of_a_partition() -> None:
    assert str(Partition(transform="bucket", column="k", count=16)) == "bucket(16, k)"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("day(ts)", "did you mean `days`"),
        ("bucket(k)", "positive number as its first argument"),
        ("bucket(0, k)", "positive number as its first argument"),
        ("days(3, ts)", "takes only a column"),
        ("days(ts", "neither a column nor a partition transform"),
        ("a + b", "neither a column nor a partition transform"),
    ],
)
def test_a_wrong_transform_is_refused_with_the_right_one(text: str, says: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parse_partition(text)
    assert says in str(refused.value)
    assert "test_partitions.py:" in refused.value.where
