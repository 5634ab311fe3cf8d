"""The port of sources: what a run asks of each kind, whatever it is.

News are found without Spark, for plans and for whoever waits for them. What a step takes in is received in the
background, as far as that needs no Spark, while Spark starts; then it is landed: rows, and rows that cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from icefield.graph import Node
    from icefield.graph.news import Cursor
    from icefield.plan import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What intakes of one run work with."""

    root: Path
    started_ms: int
    #: The zone of times that tell none.
    zone: str
    scratch: Path
    pool: ThreadPoolExecutor
    #: Whether Spark's workers see a folder of the driver's; what they do not see, the driver reads.
    workers_see: Callable[[Path], bool]
    #: Up to so many bytes are read by the driver itself, while Spark starts.
    driver_bytes: int
    #: How much of a file a worker reads at a time.
    split_bytes: int
    #: Up to so many messages, with so many bytes, are read by the driver itself.
    driver_messages: int
    driver_message_bytes: int
    #: How many messages a worker reads at a time.
    split_messages: int
    #: So many rows, of so many bytes in all, travel to Spark inside of a query; more by a file.
    local_rows: int
    local_bytes: int
    #: Gives the functions of the author that make rows, by their table.
    functions: Callable[[], Mapping[str, Callable[[], Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Whole numbers of a column that reading saw: those that occur more than once, and spans that have all of them."""

    repeated: NDArray[np.int64]
    spans: tuple[tuple[int, int], ...]
    values: Callable[[], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class InSpark:
    """What is asked of `Landed` where rejected rows are many: the unreadable ones, and the bytes of others.

    `raw` does what `Landed.raw` does, and is sent to Spark's tasks, so it holds nothing that only the driver has.
    """

    unreadable: DataFrame
    raw: Callable[[pa.Table], pa.Array]


class Landed(Protocol):
    """What a step took in."""

    @property
    def rows(self) -> DataFrame:
        """What the author's function receives, and where each row came from (`origin.TRAVELLING`)."""

    @property
    def provenance(self) -> tuple[str, ...]:
        """Columns by which the source itself tells where a row came from."""

    @property
    def on_driver(self) -> bool:
        """Whether the driver itself read them, because they are few."""

    @property
    def count(self) -> int:
        """How many rows there are, unreadable ones included."""

    @property
    def malformed(self) -> int:
        """How many of them cannot be read."""

    def unreadable(self) -> Iterator[pa.Table]:
        """Rows that cannot be read, in batches: where they come from, their bytes, what is wrong with them."""

    def raw(self, wanted: pa.Table) -> pa.Array:
        """The bytes of rows, by their identities; NULL where a row has none."""

    def in_spark(self) -> InSpark | None:
        """The same for Spark's tasks; None where the driver alone has the rows."""

    @property
    def cursor(self) -> Cursor | None:
        """What the table is to remember, where only reading tells it; None: what was planned."""

    def known(self, column: str, /) -> Known | None:
        """What reading saw of a column of whole numbers, if it saw all of its values."""

    def records(self, run: str, /) -> list[dict[str, Any]]:
        """What `ops.files`, `ops.offsets` or `ops.reads` is to remember."""

    def require_unchanged(self) -> None:
        """Refuses what is no longer as it was when it was read."""


class Received(Protocol):
    """What a step takes in, received as far as that needs no Spark."""

    def land(self, spark: SparkSession) -> Landed:
        """Has Spark do the rest."""

    def noted(self, run: str, /) -> list[dict[str, Any]]:
        """What `ops.files` or `ops.offsets` is to remember where nothing is read."""


class Intake(Protocol):
    """One kind of source."""

    def receive(self, node: Node, step: Step) -> Received:
        """Begins to take in what a step is about."""


@dataclass(frozen=True, slots=True)
class Intakes:
    """The intakes of one run, by kind of source."""

    kinds: Mapping[str, Intake]

    def receive(self, node: Node, step: Step) -> Received | None:
        """Begins to take in what a step is about; None if its table has no source."""
        if node.source is None or step.news is None:
            return None
        return self.kinds[node.source.kind].receive(node, step)
