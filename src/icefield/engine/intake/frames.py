"""The intake of rows that a function of the author makes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.errors import BadFunction
from icefield.graph.news import FramesCursor, FramesNews

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Frames
    from icefield.engine.intake.port import Known, Surroundings
    from icefield.graph import Node
    from icefield.plan import Step

Row = dict[str, Any]


def frames_news(node: Node, function: Callable[[], Any], known: FramesCursor | None) -> FramesNews:
    """What the function gives now, compared with what was taken in."""
    rows = made(node, function)
    digest = _digest(rows)
    if known is None:
        return FramesNews(total=len(rows), digest=digest)
    same = known.count <= len(rows) and _digest(rows[: known.count]) == known.digest
    return FramesNews(total=len(rows), digest=digest, known=known.count if same else 0, replaced=not same)


def made(node: Node, function: Callable[[], Any]) -> list[Row]:
    """The rows that a function makes, as dictionaries."""
    names = [column.name for column in node.source.schema] if node.source is not None else []
    try:
        found = function()
        rows = found.to_pylist() if hasattr(found, "to_pylist") else list(found)
    except Exception as error:
        raise BadFunction(
            f"the function that makes the rows of {node.name} raised {type(error).__name__}: {error}",
            where=str(node.location),
            remedy="frames() takes a function without arguments that returns rows",
        ) from error
    return [_as_dictionary(node, row, names) for row in rows]


def _as_dictionary(node: Node, row: Any, names: Sequence[str]) -> Row:
    if isinstance(row, dict) and set(row) <= set(names):
        return {name: row.get(name) for name in names}
    if isinstance(row, tuple | list) and len(row) == len(names):
        return dict(zip(names, row, strict=True))
    raise BadFunction(
        f"the function that makes the rows of {node.name} returned {row!r}, which does not have the columns"
        f" {', '.join(names)}",
        where=str(node.location),
        remedy="return tuples with a value for each column, or dictionaries by column",
    )


def _digest(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(as_json(row) + b"\n")
    return digest.hexdigest()


def as_json(row: Row) -> bytes:
    """A row as it is kept where it is rejected."""
    return json.dumps(row, default=_text, ensure_ascii=False, separators=(",", ":")).encode()


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True)
class FramesIntake:
    """Rows made by Python."""

    around: Surroundings

    def receive(self, node: Node, step: Step) -> ReceivedRows:
        """Has the function make its rows; an append takes those that are new."""
        rows = made(node, self.around.functions()[node.name])
        assert isinstance(step.news, FramesNews)
        first = step.news.known if step.action == "append" else 0
        return ReceivedRows(self.around, node, rows[: step.news.total], first)


@dataclass(frozen=True, slots=True)
class ReceivedRows:
    """Rows that a step takes in, from `first` on."""

    around: Surroundings
    node: Node
    rows: list[Row]
    first: int

    def land(self, spark: SparkSession) -> LandedRows:
        """Brings the values to the declared types; what does not fit is malformed."""
        from icefield.engine.intake.made import land  # noqa: PLC0415 - Spark

        return land(spark, self)

    def noted(self, _run: str) -> list[dict[str, Any]]:
        """Nothing: the cursor says it all."""
        return []


@dataclass(frozen=True, slots=True)
class LandedRows:
    """Rows made by Python, as Spark sees them; `bad` are those that do not fit the declared types."""

    rows: DataFrame
    received: ReceivedRows
    bad: pa.Table
    provenance: tuple[str, ...] = ()

    @property
    def source(self) -> Frames:
        source: Frames = self.received.node.source  # type: ignore[assignment]
        return source

    @property
    def on_driver(self) -> bool:
        """They were made here."""
        return True

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.received.rows) - self.received.first

    @property
    def malformed(self) -> int:
        """How many of them do not fit the declared types."""
        return int(self.bad.num_rows)

    def unreadable(self) -> Iterator[pa.Table]:
        """Those that do not fit."""
        yield self.bad

    def raw(self, wanted: pa.Table) -> pa.Array:
        """Rows as JSON."""
        from icefield.engine.intake.made import raw  # noqa: PLC0415 - Spark

        return raw(self.received, wanted)

    def in_spark(self) -> None:
        """They are in the driver's memory anyway."""

    @property
    def cursor(self) -> None:
        """What was planned."""

    def known(self, _column: str) -> Known | None:
        """Nothing was watched."""
        return None

    def records(self, _run: str) -> list[dict[str, Any]]:
        """Nothing: the cursor says it all."""
        return []

    def require_unchanged(self) -> None:
        """Rows in memory do not change."""
