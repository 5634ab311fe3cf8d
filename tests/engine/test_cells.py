"""What is decided without Spark is what `parse` would have decided: the same value, or the same words about a line."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefield.declare import files
from icefield.engine.intake.files import undecided
from icefield.engine.intake.files.cells import form_of, is_plain, values_of
from icefield.engine.intake.files.reading import Undecided
from icefield.engine.intake.sheets import Sheets
from icefield.engine.origin import ARRIVAL, LINE, PROBLEM, ROW
from icefield.engine.session.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SEED = 20261116
KINDS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
    "DECIMAL(12,2)", "DECIMAL(5,0)", "DECIMAL(38,10)", "DECIMAL(3,3)", "STRING",
)  # fmt: skip
TEXTS = (
    "0", "-0", "+0", "007", "1", "-1", "+1", "12", "123", "127", "128", "-128", "-129", "32768", "99999", "123456",
    "2147483648", "999999999", "9223372036854775807", "9223372036854775808", "0x10", "0X1f", "1_000", "1,5", "٣",
    "1.0", "1.", ".5", "-.5", "1.5", "1.50", "1.999", "1.990", "-1.005", "99999999.99", "9999999999.99",
    "9999999999.995", "10000000000.00", "0.000000001", "1e2", "1E5", "1e400", "1.5e-3", "1d", "1f", "NaN", "nan",
    "Infinity", "-inf", "inf", "true", "false", "True", "TRUE", "t", "f", "yes", "no", "y", "n", "1 ", " 1", "\t1",
    "null", "NULL", "abc", "--1", "1-", "-", "+", ".", "e", "0.1", "0.30000000000000004", "123456789.123456789",
    "3.4028235e38", "16777217", "2026-08-01", "2026-8-1", "2026-02-29", "2028-02-29", "2026-02-30", "2026-04-31",
    "2026-12-31", "2026-13-01", "2026-00-10", "1899-12-31", "0001-01-01", "9999-12-31", "10000-01-01", "20260801",
    "2026", "2026-08", "2026-08-01 10:00:00", "2026-08-01T10:00:00", "2026-08-01 10:00:00.5",
    "2026-08-01 10:00:00.123456", "2026-08-01 10:00:00.1234567", "2026-08-01T10:00:00Z", "2026-08-01 10:00:00+02:00",
    "2026-08-01 10:00:00 UTC", "2026-08-01 10:00", "2026-08-01 10", "2026-08-01 24:00:00", "2026-08-01 23:59:60",
    "2026-08-01 1:02:03", "2026-08-01  10:00:00", "2026-08-01t10:00:00", "10:00:00", "now", "today", "tomorrow",
    "yesterday", "epoch", "1700-01-01 00:00:00", "2100-01-01 00:00:00", "2026-02-29 10:00:00", "2026-08-01 10:00:00.",
)  # fmt: skip


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    return start_session(app="tests", conf={}, log=tmp_path_factory.mktemp("plain") / "spark.log")


def texts() -> list[str]:
    """The list above, and texts that differ from it in a character or two."""
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    found = list(TEXTS)
    for text in chance.choices(TEXTS, k=1500):
        signs = list(text)
        for _ in range(chance.choice([1, 1, 2])):
            at = chance.randrange(len(signs) + 1)
            signs[at : at + chance.choice([0, 1])] = chance.choice("0123456789-+.: TeEdx")
        if signs:
            found.append("".join(signs))
    return sorted({text for text in found if text.strip()})


def decided_by_parse(spark: SparkSession, folder: Path, kind: str, cells: list[str]) -> list[tuple[Any, str | None]]:
    """Each cell as `parse` reads it from a line of a CSV file: its value and what is wrong with it."""
    source: Any = files("landing/*.csv", schema=f"x {kind}", sep="|")
    place = folder / kind / "lines.parquet"
    place.parent.mkdir()
    columns = {
        "value": pa.array([cell.encode() for cell in cells]),
        "source_file": pa.array(["f"] * len(cells)),
        "ingested_at": pa.array([0] * len(cells), pa.timestamp("us", "UTC")),
        ARRIVAL: pa.array([0] * len(cells), pa.int64()),
        ROW: pa.array(range(len(cells)), pa.int64()),
        LINE: pa.array(range(len(cells)), pa.int64()),
    }
    pq.write_table(pa.table(columns), place)
    left = Undecided(format="csv", header=("x",), sheets=Sheets(place.parent, (place.name,)))
    value = {"DATE": "unix_date(x)", "TIMESTAMP": "unix_micros(x)", "TIMESTAMP_NTZ": "unix_micros(timestamp(x))"}
    found = undecided.lines(spark, source, left).selectExpr(f"{value.get(kind, 'x')} AS x", ROW, PROBLEM)
    return [(row["x"], row[PROBLEM]) for row in found.orderBy(ROW).collect()]


def as_numbers(column: pa.Array) -> list[Any]:
    """Days and times as numbers: Python's do not reach as far."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return list(column.to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_decided_here_parse_decides_the_same(session: SparkSession, tmp_path: Path, kind: str) -> None:
    cells = texts()
    expected = decided_by_parse(session, tmp_path, kind, cells)
    if not is_plain(kind):
        assert kind == "DECIMAL(3,3)"
        return
    seen = 0
    for size in (1, 7, len(cells)):  # all at once, and in parts, some of which have nothing odd in them
        for begin in range(0, len(cells), size):
            part = pa.array(cells[begin : begin + size], pa.string())
            found = values_of(part, kind)
            values = as_numbers(found.column)
            for at in range(len(part)):
                value, problem = expected[begin + at]
                if at in found.wrong:
                    assert problem == f"malformed: x is not a valid {kind}", cells[begin + at]
                elif at not in found.unsure:
                    assert problem is None, cells[begin + at]
                    assert repr(values[at]) == repr(value), cells[begin + at]
                    seen += 1
    assert seen > 3, "this test looks at something"


def test_times_with_nothing_else_in_their_column(session: SparkSession, tmp_path: Path) -> None:
    cells = ["2026-02-28 23:59:59.9", "2028-02-29 00:00:00", "1999-12-31T23:59:59.000001"]
    expected = decided_by_parse(session, tmp_path, "TIMESTAMP", cells)
    found = values_of(pa.array(cells), "TIMESTAMP")
    assert not len(found.unsure)
    assert [(value, None) for value in as_numbers(found.column)] == expected


def test_every_type_with_a_plain_form_keeps_nulls() -> None:
    for kind in KINDS:
        if is_plain(kind):
            found = values_of(pa.array([None, None], pa.string()), kind)
            assert (found.column.null_count, len(found.unsure), len(found.wrong)) == (2, 0, 0)
    assert form_of("BINARY") is None


REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def spellings() -> list[tuple[str, list[str], list[str]]]:
    """What the reference says of each type: texts that are taken, and texts that are malformed."""
    found = []
    for line in REFERENCE.read_text().splitlines():
        cells = [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] and all(kind in KINDS for kind in cells[0]):
            found += [(kind, *cells[1:]) for kind in cells[0]]
    return found


def test_the_reference_tells_of_every_type() -> None:
    assert {kind.partition("(")[0] for kind, *_ in spellings()} == {kind.partition("(")[0] for kind in KINDS} - {
        "STRING"
    }


@pytest.mark.parametrize(
    ("kind", "taken", "malformed"), spellings(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_texts_are_taken_as_the_reference_says(
    session: SparkSession, tmp_path: Path, kind: str, taken: list[str], malformed: list[str]
) -> None:
    taken = [text for text in taken if text not in KINDS]
    blanks = [f" {taken[0]}", f"{taken[0]} "]
    cells = [*taken, *malformed, *blanks]
    decided = decided_by_parse(session, tmp_path, kind, cells)
    wrong = {cell for cell, (_, problem) in zip(cells, decided, strict=True) if problem is not None}
    assert wrong == {*malformed, *blanks}
    assert all(value is not None for value, _ in decided[: len(taken)])
