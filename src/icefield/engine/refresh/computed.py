"""What an incremental refresh has computed, and what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icefield.engine.batch import Batch, InMemory
    from icefield.engine.checks.split import Split
    from icefield.engine.checks.view import Moves
    from icefield.engine.refresh.keys import KeySet


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """What an update did."""

    added: int
    removed: int
    split: Split
    tables: tuple[str, ...]
    keys: int | None
    #: All rows that came, or that the table now has of the keys that were touched, and the rows that went.
    moves: Moves
    #: Rows among those that came that had waited in quarantine.
    freed: int = 0
    #: How many keys the table had, and rows, when they were last counted.
    counted: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MostChanged:
    """Why nothing was done: a rebuild is cheaper."""

    touched: int
    keys: int

    @property
    def told(self) -> str:
        """The reason, in words."""
        return f"{self.touched:,} of {self.keys:,} keys changed" if self.keys else "the table was empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The touched keys, their rows as they are, what the function makes of them now, and the measures behind that."""

    touched: KeySet
    before: DataFrame
    output: DataFrame
    measures: Batch | None = None
    #: Each key surely has one row at most before, so many in all, and one in the output; None: that is not sure.
    known: int | None = None
    counted: tuple[int, int] | None = None
    #: The rows as they are, in memory, where they are small.
    rows_before: InMemory | None = None
    #: What the function makes of them now, in memory, with the checks that each row fails.
    fresh: InMemory | None = None
