"""The columns by which icefield knows where a row came from and what is wrong with it; authors never see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.engine.sql import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a row came with, by its place in the order of arrival, and the row's own place in it: of a line its offset, of a
#: row of a Parquet file its index. They identify it and order as rows arrived. The line's number is for people.
ARRIVAL, ROW, LINE = "_icefield_arrival", "_icefield_row", "_icefield_line"
IDENTITY = (ARRIVAL, ROW)
#: These travel with a row through the author's function.
TRAVELLING = (*IDENTITY, LINE)
ORIGIN = ", ".join(f"{name} BIGINT" for name in TRAVELLING)
#: A line's bytes, and what is wrong with it: NULL for a good one.
RAW, PROBLEM = "_icefield_raw", "_icefield_problem"
#: Columns of rows that were set aside: why, and what becomes of them.
REASONS, FATE = "_icefield_reasons", "_icefield_fate"
#: How the reason of a line that could not be read begins.
MALFORMED = "malformed"


def visible(frame: DataFrame) -> DataFrame:
    """A frame without icefield's own columns."""
    return columns_of(frame, [column for column in frame.columns if not column.startswith("_icefield")])


def short_reason(reason: str) -> str:
    """A reason as it is counted: what exactly is wrong with a line is for its row to say."""
    return MALFORMED if reason.startswith(f"{MALFORMED}: ") else reason
