"""Rows as checks see them: a frame for Spark, and columns in memory where they fit there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, DateType, IntegralType, StringType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from icefield.engine.amounts import Amounts
    from icefield.graph.state import Version

#: Of more rows than this no column is read into memory.
IN_MEMORY = 20_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """Some rows; `count` of them, if that is known.

    `read` gives columns of them without a query, if it can, and `read_values` the different values of one.
    """

    frame: DataFrame
    count: int | None = None
    read: Callable[[list[str]], pa.Table | None] | None = None
    amounts: Amounts | None = None
    version: Version | None = None
    moves: Moves | None = None
    read_values: Callable[[str, int], pa.ChunkedArray | None] | None = None

    @property
    def fit(self) -> bool:
        """Whether they are few enough for columns in memory."""
        return self.count is not None and self.count <= IN_MEMORY

    def amount(self, expression: str) -> object:
        """An aggregate over all of them."""
        if self.amounts is not None:
            return self.amounts.value(expression)
        found = self.frame.selectExpr(f"{expression} AS value").first()
        return None if found is None else found["value"]

    def columns(self, names: Sequence[str]) -> pa.Table | None:
        """Columns in memory; None where they do not fit, or are compared in Spark's own way (NaN, nested values)."""
        if self.read is None or not self.fit or not are_plain(self.frame.schema, names):
            return None
        return self.read(list(names))

    def values(self, name: str) -> pa.ChunkedArray | None:
        """The values of a column, each at least once, in memory: of more rows than fit there, too, if they are few."""
        if self.fit or self.read_values is None or not are_plain(self.frame.schema, [name]):
            found = self.columns([name])
            return None if found is None else found[name]
        return self.read_values(name, IN_MEMORY)


@dataclass(frozen=True, slots=True)
class Moves:
    """What became of a table's rows since a version: rows that came, among them all new ones, and rows that went."""

    since: Version
    came: Seen
    #: Gives columns of the rows that went; None: none did.
    went: Callable[[list[str]], pa.Table] | None = None


def are_plain(schema: StructType, names: Sequence[str]) -> bool:
    """Whether two values of these columns are the same if, and only if, their bytes are."""
    return all(isinstance(schema[name].dataType, IntegralType | DateType | StringType | BooleanType) for name in names)
