"""Partition transforms as Iceberg and Spark write them: `days(ts)`, `bucket(16, id)`, a plain column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from icefield.declare.registry import caller
from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidSchema

Transform = Literal["identity", "years", "months", "days", "hours", "bucket", "truncate"]
COUNTED = ("bucket", "truncate")
_CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(-?\d+)\s*,\s*)?(`[^`]+`|[\w.]+)\s*\)\s*")
_PLAIN = re.compile(r"\s*(`[^`]+`|[A-Za-z_][\w.]*)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One part of a table's partitioning; str() is Spark SQL for PARTITIONED BY."""

    transform: Transform
    column: str
    count: int | None = None

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.count}, ' if self.count is not None else ''}{self.column})"


def parse_partition(text: str) -> Partition:
    """Read one partition transform, or say how it is written."""
    plain = _PLAIN.fullmatch(text)
    if plain:
        return Partition(transform="identity", column=plain[1].strip("`"))
    call = _CALL.fullmatch(text)
    if call is None:
        raise _error(f"`{text}` is neither a column nor a partition transform")
    word, count, column = call[1].lower(), call[2], call[3].strip("`")
    transforms: dict[str, Transform] = {t: t for t in get_args(Transform)}
    if word not in transforms or word == "identity":
        raise _error(f"`{word}` in `{text}` is not a partition transform: {did_you_mean(word, transforms)}")
    if word in COUNTED and (count is None or int(count) < 1):
        raise _error(f"`{text}` needs a positive number as its first argument, as in `{word}(16, {column})`")
    if word not in COUNTED and count is not None:
        raise _error(f"`{text}` takes only a column, as in `{word}({column})`")
    return Partition(transform=transforms[word], column=column, count=None if count is None else int(count))


def _error(what: str) -> InvalidSchema:
    return InvalidSchema(
        what,
        where=str(caller()),
        remedy="write a column, days(ts), months(ts), years(ts), hours(ts), bucket(16, id) or truncate(4, text)",
    )
