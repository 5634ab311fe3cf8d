"""Rows as checks see them: a frame for Spark, and columns in memory where they fit there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, DateType, IntegralType, StringType

from icefield.lake.rows import different

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

    `read` gives columns of them without a query, if it can; `search` those of some values that a column does not have.
    """

    frame: DataFrame
    count: int | None = None
    read: Callable[[list[str]], pa.Table | None] | None = None
    amounts: Amounts | None = None
    version: Version | None = None
    moves: Moves | None = None
    search: Callable[[str, pa.Array], pa.Array | None] | None = None

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

    def can_search(self, name: str) -> bool:
        """Whether values of a column can be looked for without a query, as far as its type tells."""
        return self.search is not None and are_plain(self.frame.schema, [name])

    def lacking(self, name: str, values: pa.ChunkedArray) -> pa.Array | None:
        """The different ones of some values that a column does not have; None where only Spark can tell."""
        if self.search is None or not self.can_search(name):
            return None
        return self.search(name, different(values))


@dataclass(frozen=True, slots=True)
class Moves:
    """What became of a table's rows since a version: rows that came, among them all new ones, and rows that went."""

    since: Version
    came: Seen
    #: Gives columns of the rows that went; None: none did.
    went: Callable[[list[str]], pa.Table] | None = None
    #: Rows were only appended, and `came` has no others.
    appended: bool = False


def are_plain(schema: StructType, names: Sequence[str]) -> bool:
    """Whether two values of these columns are the same if, and only if, their bytes are."""
    return all(isinstance(schema[name].dataType, IntegralType | DateType | StringType | BooleanType) for name in names)
