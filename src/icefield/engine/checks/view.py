"""A table version as a check reads it: by query, or as Arrow columns when small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, DateType, IntegralType, StringType, TimestampNTZType, TimestampType

from icefield.engine.limits import compared_rows
from icefield.lake.arrow_scan import different

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from icefield.engine.checks.aggregates import Amounts
    from icefield.graph.state import Version


@dataclass(frozen=True, slots=True)
class TableView:
    """Some rows; `count` of them, if that is known.

    `read` gives columns of them without a query, if it can; `search` those of some values that a column does not have.
    """

    rows: DataFrame | Callable[[], DataFrame]
    count: int | None = None
    read: Callable[[list[str]], pa.Table | None] | None = None
    amounts: Amounts | None = None
    version: Version | None = None
    moves: Moves | None = None
    search: Callable[[str, pa.Array], pa.Array | None] | None = None
    #: Their columns, where these are known without asking Spark.
    known: StructType | None = None
    #: How many of them fail each check of rows that warns or fails, where the query that made them told.
    failing: Mapping[str, int] | None = None

    @property
    def frame(self) -> DataFrame:
        """All of them for Spark: many checks never ask for that."""
        return self.rows() if callable(self.rows) else self.rows

    @property
    def schema(self) -> StructType:
        """Their columns."""
        return self.frame.schema if self.known is None else self.known

    @property
    def fit(self) -> bool:
        """Whether they are few enough for columns in memory."""
        return self.count is not None and self.count <= compared_rows()

    def amount(self, expression: str) -> object:
        """An aggregate over all of them."""
        if self.amounts is not None:
            return self.amounts.value(expression)
        found = self.frame.selectExpr(f"{expression} AS value").first()
        return None if found is None else found["value"]

    def columns(self, names: Sequence[str]) -> pa.Table | None:
        """Columns in memory; None where they do not fit, or are compared in Spark's own way (NaN, nested values)."""
        if self.read is None or not self.fit or not are_plain(self.schema, names, times=True):
            return None
        return self.read(list(names))

    def can_search(self, name: str) -> bool:
        """Whether values of a column can be looked for without a query, as far as its type tells."""
        return self.search is not None and are_plain(self.schema, [name])

    def lacking(self, name: str, values: pa.ChunkedArray) -> pa.Array | None:
        """The different ones of some values that a column does not have; None where only Spark can tell."""
        if self.search is None or not self.can_search(name):
            return None
        return self.search(name, different(values))


@dataclass(frozen=True, slots=True)
class Moves:
    """What became of a table's rows since a version: rows that came, among them all new ones, and rows that went."""

    since: Version
    came: TableView
    #: Gives columns of the rows that went; None: none did.
    went: Callable[[list[str]], pa.Table] | None = None
    #: Rows were only appended, and `came` has no others.
    appended: bool = False


def are_plain(schema: StructType, names: Sequence[str], *, times: bool = False) -> bool:
    """Whether two values of these columns are the same if, and only if, their bytes are.

    `times`: times are, too, for who never makes them Python's, which has no year after 9999.
    """
    kinds = (*_PLAIN, TimestampType, TimestampNTZType) if times else _PLAIN
    return all(isinstance(schema[name].dataType, kinds) for name in names)


_PLAIN = (IntegralType, DateType, StringType, BooleanType)
