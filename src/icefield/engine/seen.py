"""Rows as checks see them: a frame for Spark, and columns in memory where they fit there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from icefield.engine.amounts import Amounts


def _nothing(_names: list[str]) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Seen:
    """Some rows; `read` gives columns of them without a query, or None where there are too many for that."""

    frame: DataFrame
    read: Callable[[list[str]], pa.Table | None] = _nothing
    amounts: Amounts | None = None

    def amount(self, expression: str) -> object:
        """An aggregate over all of them."""
        if self.amounts is not None:
            return self.amounts.value(expression)
        found = self.frame.selectExpr(f"{expression} AS value").first()
        return None if found is None else found["value"]

    def columns(self, names: Sequence[str]) -> pa.Table | None:
        """Columns in memory; None where they do not fit, or are compared in Spark's own way (NaN, nested values)."""
        found = self.read(list(names))
        return found if found is not None and all(is_plain(kind) for kind in found.schema.types) else None


def is_plain(kind: pa.DataType) -> bool:
    """Whether two values of a type are the same if, and only if, their bytes are."""
    known = (pa.types.is_integer, pa.types.is_date, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean)
    return any(is_known(kind) for is_known in known)
