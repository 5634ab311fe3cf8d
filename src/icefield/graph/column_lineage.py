"""Where the columns of a table come from, as plain data; `engine.promises.column_lineage` finds it in Spark's plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How a value of an input becomes a part of a value, or decides on values and rows without being a part of them. These
#: are the words of OpenLineage: the former are DIRECT, the latter INDIRECT.
Direct = Literal["IDENTITY", "TRANSFORMATION", "AGGREGATION"]
Indirect = Literal["CONDITIONAL", "WINDOW", "FILTER", "JOIN", "GROUP_BY", "SORT"]
DIRECT: tuple[Direct, ...] = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A column of an input, by the parameter of the table's function, and what it is used for.

    `masked`: nothing but a hash of the value gets through.
    """

    parameter: str
    column: str
    use: Direct | Indirect
    masked: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether the value itself is a part of the result."""
        return self.use in DIRECT


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLineage:
    """The origins of each column of a table, and those that decide which rows it has."""

    columns: Mapping[str, tuple[Origin, ...]]
    rows: tuple[Origin, ...] = ()
