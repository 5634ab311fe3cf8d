"""Whatever lies in a landing folder: taken in exactly, set aside with its bytes, or refused by name; never guessed."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefield.declare import files
from icefield.engine import limits
from icefield.engine.intake.files import classify, splits
from icefield.engine.intake.files import parquet as parquet_files
from icefield.engine.intake.files.heads import read_head
from icefield.engine.limits import Limits
from icefield.engine.refresh import stage
from icefield.errors import FileChanged, IcefieldError, LandingMissing, WrongHeader
from icefield.graph.news import LandedFile
from projects import TinyProject, tiny

pytestmark = pytest.mark.spark

HEADER = "id,name,amount,at"
AT = "2026-08-01 10:00:00"
TABLES = """
from pyspark.sql import functions as F
from icefield import append, files, table, unique


@table(
    "bronze.orders",
    source=files("landing/orders/*.csv", schema="id BIGINT, name STRING, amount DECIMAL(10,2), at TIMESTAMP"),
    refresh=append(), checks=[unique("id")], otherwise="quarantine",
)
def orders(rows):
    return rows.withColumn("source_line", F.col("source_line"))
"""
ODD_NAMES = [
    "with space.csv", "100%.csv", "a%20b.csv", "a+b.csv", "é.csv", "日本.csv", "[1].csv", "{2}.csv", "a,b.csv",
    "a'b.csv", "a:b.csv",
    "a#b.csv", "a&b=c.csv", "a;b.csv", "tilde~.csv", "caret^.csv", "back\\slash.csv", "(c).csv", "q?.csv",
]  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """What became of each file's lines: (line, id, name, amount) kept, and (line, reason, bytes) set aside."""

    kept: dict[str, list[tuple[Any, ...]]]
    aside: dict[str, list[tuple[Any, ...]]]
    files: dict[str, int]


def look(project: TinyProject) -> Taken:
    kept, aside = defaultdict(list), defaultdict(list)
    query = "SELECT source_file, source_line, id, name, CAST(amount AS VARCHAR) FROM bronze.orders ORDER BY ALL"
    for file, *row in project.ask(query):
        kept[file.removeprefix("landing/orders/")].append(tuple(row))
    if "bronze.orders__quarantine" in project.lake.pointers():
        query = "SELECT source_file, line, reasons[1], raw FROM bronze.orders__quarantine ORDER BY ALL"
        for file, *row in project.ask(query):
            aside[file.removeprefix("landing/orders/")].append(tuple(row))
    told = project.ask("SELECT path, rows FROM ops.files")
    return Taken(kept, aside, {path.removeprefix("landing/orders/"): rows for path, rows in told})


def lines(*rows: str, end: str = "\n") -> bytes:
    return end.join([HEADER, *rows, ""]).encode()


def row(number: int, name: str = "x", amount: str = "1.00", at: str = AT) -> str:
    return f"{number},{name},{amount},{at}"


LANDED: dict[str, bytes] = {
    "empty.csv": b"",
    "header.csv": lines(),
    "header-unended.csv": HEADER.encode(),
    "unended.csv": lines(row(1)).rstrip(b"\n"),
    "permuted.csv": f"amount,at,id,name\n2.00,{AT},10,ten\n".encode(),
    "capital.csv": f"ID,Name,AMOUNT,At\n11,eleven,3.00,{AT}\n".encode(),
    "repeated.csv": lines(row(20), HEADER, row(21)),
    "only-repeated.csv": lines(HEADER),
    "bom.csv": b"\xef\xbb\xbf" + lines(row(30)),
    "crlf.csv": lines(row(31), row(32, ""), end="\r\n"),
    "blank.csv": lines("", row(40), "", "", row(41), ""),
    "quoted.csv": lines(
        row(50, '"a,b"'), row(51, '"say ""hi"""'), row(52, '""'), f'"53","all","1.50","{AT}"', row(54, '" padded "')
    ),
    "misquoted.csv": lines(row(60, '"never closed'), row(61, 'in "the" middle'), row(62, '"closed"early'), row(63)),
    "broken.csv": lines('64,"two', 'lines",1.00,' + AT, row(65)),
    "bytes.csv": b"\n".join([HEADER.encode(), row(70).encode(), b"71,\xff\xfe,1.00,x", row(72).encode(), b""]),
    "decimals.csv": lines(
        row(80, amount="1.999"), row(81, amount="1.990"), row(82, amount="99999999.99"), row(83, amount="100000000.00"),
        row(84, amount="1e2"), row(85, amount="-0.01"), row(86, amount=".5"), row(87, amount="1,5"),
        row(88, amount="NaN"),
    ),
    "numbers.csv": lines(
        row(9223372036854775807), "9223372036854775808,x,1.00," + AT, "1.5,x,1.00," + AT, "0x10,x,1.00," + AT,
        " 90,x,1.00," + AT, "+91,x,1.00," + AT, "٩٢,x,1.00," + AT, "1_000,x,1.00," + AT,
    ),
    "times.csv": lines(
        row(100, at="2026-02-30 10:00:00"), row(101, at="2026"), row(102, at="12:30"),
        row(103, at="2026-08-01 24:00:00"),
        row(104, at="2028-02-29 23:59:59"), row(105, at="2026-08-01 10:00:00.1234567"), row(106, at="now"),
    ),
    "fields.csv": lines("110,too few", row(111) + ",too many", ",,,", row(113)),
    "nulls.csv": lines(row(120), f",no key,1.00,{AT}", f",no key,1.00,{AT}"),
    "z-again.csv": lines(row(120, "later"), "120,malformed and a repeat", row(121), row(121, "second")),
}  # fmt: skip


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """All these files, taken in by one run."""
    return take_all(tmp_path_factory.mktemp("odd") / "p")


def take_all(root: Path) -> Taken:
    project = tiny(root, TABLES)
    for name, content in LANDED.items():
        project.land(name, content)
    for number, name in enumerate(ODD_NAMES):
        project.land(name, lines(row(1000 + number, "odd")))
    result = project.run()
    assert result.status == "published", result.error
    return look(project)


def test_what_is_decided_at_once_is_what_spark_would_decide(
    taken: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classify, "is_plain", lambda kind: False)
    assert take_all(tmp_path) == taken


def reasons(taken: Taken, name: str) -> dict[int, str]:
    return {line: reason for line, reason, _ in taken.aside.get(name, [])}


@pytest.mark.parametrize("name", ["empty.csv", "header.csv", "header-unended.csv"])
def test_a_file_without_rows_is_taken_with_0_rows(taken: Taken, name: str) -> None:
    assert taken.files[name] == 0
    assert name not in taken.kept
    assert name not in taken.aside


@pytest.mark.parametrize("splits_of", [32 << 20, 40])
def test_what_threads_take_in_tasks_take_in_as_well(
    taken: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splits_of: int
) -> None:
    monkeypatch.setattr(limits, "LIMITS", Limits(driver_bytes=-1, split_bytes=splits_of))
    assert take_all(tmp_path) == taken


def test_the_last_line_needs_no_end(taken: Taken) -> None:
    assert taken.kept["unended.csv"] == [(2, 1, "x", "1.00")]


def test_a_permuted_header_is_read_by_name_and_capitals_do_not_matter(taken: Taken) -> None:
    assert taken.kept["permuted.csv"] == [(2, 10, "ten", "2.00")]
    assert taken.kept["capital.csv"] == [(2, 11, "eleven", "3.00")]


def test_the_header_again_in_the_middle_is_set_aside_and_counted(taken: Taken) -> None:
    assert [line for line, *_ in taken.kept["repeated.csv"]] == [2, 4]
    assert reasons(taken, "repeated.csv") == {3: "malformed: repeated header line"}
    assert reasons(taken, "only-repeated.csv") == {2: "malformed: repeated header line"}
    assert (taken.files["repeated.csv"], taken.files["only-repeated.csv"]) == (3, 1)


def test_a_byte_order_mark_is_no_part_of_the_header(taken: Taken) -> None:
    assert taken.kept["bom.csv"] == [(2, 30, "x", "1.00")]
    assert "bom.csv" not in taken.aside
    assert taken.files["bom.csv"] == 1


def test_lines_may_end_as_on_windows(taken: Taken) -> None:
    assert taken.kept["crlf.csv"] == [(2, 31, "x", "1.00"), (3, 32, None, "1.00")]
    assert "crlf.csv" not in taken.aside


def test_blank_lines_are_no_rows_but_they_count_as_lines(taken: Taken) -> None:
    assert [(line, number) for line, number, *_ in taken.kept["blank.csv"]] == [(3, 40), (6, 41)]
    assert "blank.csv" not in taken.aside
    assert taken.files["blank.csv"] == 2


def test_quoted_fields_may_hold_separators_and_doubled_quotes(taken: Taken) -> None:
    assert [row[2] for row in taken.kept["quoted.csv"]] == ["a,b", 'say "hi"', None, "all", " padded "]


def test_a_quote_in_the_wrong_place_makes_its_line_malformed(taken: Taken) -> None:
    assert [row[1] for row in taken.kept["misquoted.csv"]] == [63]
    assert set(reasons(taken, "misquoted.csv")) == {2, 3, 4}


def test_a_quoted_field_ends_on_its_line(taken: Taken) -> None:
    assert [row[1] for row in taken.kept["broken.csv"]] == [65]
    assert [raw for *_, raw in taken.aside["broken.csv"]] == [b'64,"two', b'lines",1.00,' + AT.encode()]


def test_bytes_that_are_not_utf_8_are_kept_as_they_are(taken: Taken) -> None:
    assert taken.aside["bytes.csv"] == [(3, "malformed: the line is not UTF-8", b"71,\xff\xfe,1.00,x")]
    assert [row[1] for row in taken.kept["bytes.csv"]] == [70, 72]


def test_a_decimal_must_fit_its_type_exactly(taken: Taken) -> None:
    kept = {number: amount for _, number, _, amount in taken.kept["decimals.csv"]}
    assert kept.items() >= {81: "1.99", 82: "99999999.99", 85: "-0.01", 86: "0.50"}.items()
    assert not kept.keys() & {80, 83, 88}
    assert len(taken.kept["decimals.csv"]) + len(taken.aside["decimals.csv"]) == 9


def test_an_integer_is_digits_and_nothing_else(taken: Taken) -> None:
    assert [number for _, number, *_ in taken.kept["numbers.csv"]] == [9223372036854775807, 91]
    assert set(reasons(taken, "numbers.csv")) == {3, 4, 5, 6, 8, 9}


def test_a_time_is_a_day_that_exists_and_loses_nothing(taken: Taken) -> None:
    assert [number for _, number, *_ in taken.kept["times.csv"]] == [104]


def test_too_few_and_too_many_fields_are_told_and_empty_ones_are_null(taken: Taken) -> None:
    assert [number for _, number, *_ in taken.kept["fields.csv"]] == [None, 113]
    assert "fields" in reasons(taken, "fields.csv")[2]
    assert "fields" in reasons(taken, "fields.csv")[3]


def test_rows_without_a_key_repeat_nothing(taken: Taken) -> None:
    assert [number for _, number, *_ in taken.kept["nulls.csv"]] == [120, None, None]


def test_the_first_arrival_of_a_key_stays_and_a_malformed_one_takes_no_key(taken: Taken) -> None:
    assert [(line, number) for line, number, *_ in taken.kept["z-again.csv"]] == [(4, 121)]
    found = reasons(taken, "z-again.csv")
    assert (found[2], found[5]) == ("id is unique", "id is unique")
    assert found[3].startswith("malformed")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_file_may_have_any_name(taken: Taken, name: str) -> None:
    assert [(line, kind) for line, _, kind, _ in taken.kept[name]] == [(2, "odd")]


def test_no_line_is_lost_whatever_it_is(taken: Taken) -> None:
    for name, content in LANDED.items():
        written = [line for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")[1:] if line.strip(b"\r")]
        found = len(taken.kept.get(name, [])) + len(taken.aside.get(name, []))
        assert found == len(written) == taken.files[name], name


def test_a_name_that_spark_could_not_read_is_read(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES.replace("*.csv", "*"))
    pq.write_table(pa.table({"id": [1], "name": ["x"], "amount": ["1.00"], "at": [AT]}), tmp_path / "a:b.parquet")
    project.land("a:b.parquet", (tmp_path / "a:b.parquet").read_bytes())
    assert project.run().ok
    assert look(project).kept["a:b.parquet"] == [(1, 1, "x", "1.00")]


def test_a_whole_number_may_be_written_with_zeros_behind_a_point(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES)
    project.land("a.csv", lines("1.0,x,1.00," + AT, "2.000,x,1.00," + AT, "2.5,x,1.00," + AT, ".0,x,1.00," + AT))
    assert project.run().ok
    found = look(project)
    assert [number for _, number, *_ in found.kept["a.csv"]] == [1, 2]
    assert set(reasons(found, "a.csv")) == {4, 5}


def test_a_function_that_hands_its_rows_through_keeps_file_line_and_time(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES.replace('.withColumn("source_line", F.col("source_line"))', ""))
    project.land("a.csv", lines(row(1), row(2)))
    assert project.run().status == "published"
    assert sorted(project.ask("SELECT source_file, source_line FROM bronze.orders")) == [
        ("landing/orders/a.csv", 2), ("landing/orders/a.csv", 3),
    ]  # fmt: skip


def test_line_numbers_are_exact_in_a_file_of_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMITS", Limits(split_bytes=8192))
    monkeypatch.setattr(splits, "CHUNK", 1000)
    project = tiny(tmp_path, TABLES)
    content, expected, broken = [HEADER], {}, []
    for line in range(2, 3002):
        if line % 97 == 0:
            content.append("")
        elif line % 101 == 0:
            content.append(f"{line},broken at {line}")
            broken.append(line)
        else:
            content.append(row(line, "x" * (line % 50)))
            expected[line] = line
    project.land("large.csv", "\n".join(content).encode())
    project.land("small.csv", lines(row(5001), "no row", row(5002)))
    assert (tmp_path / "landing/orders/large.csv").stat().st_size > 10 * 8192
    assert project.run().status == "published"
    found = look(project)
    assert {line: number for line, number, *_ in found.kept["large.csv"]} == expected
    assert [(line, raw) for line, _, raw in found.aside["large.csv"]] == [
        (line, f"{line},broken at {line}".encode()) for line in broken
    ]
    assert [line for line, *_ in found.aside["small.csv"]] == [3]


EVERY_TYPE = """
from icefield import append, files, table

SCHEMA = (
    "b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(38,10), day DATE, at TIMESTAMP,"
    " local TIMESTAMP_NTZ, x STRING, raw_ BINARY"
)


@table("bronze.orders", source=files("landing/orders/*.csv", schema=SCHEMA), refresh=append())
def orders(rows):
    return rows.drop("raw_")
"""


@pytest.mark.parametrize("binary", [True, False], ids=["by Spark", "at once"])
def test_every_type_arrives_as_it_is(tmp_path: Path, binary: bool) -> None:
    project = tiny(tmp_path, EVERY_TYPE if binary else EVERY_TYPE.replace(", raw_ BINARY", ""))
    numbers, days = "true,-5,300,70000,-9000000000,0.5,0.1,-12345.0000000001", "2026-08-01,2026-08-01 10:00:00.25"
    values = f"{numbers},{days},1999-12-31T23:59:59,ä"
    names = "b,t,s,i,l,f,d,n,day,at,local,x"
    tail = (",raw_", ",x") if binary else ("", "")
    project.land("a.csv", f"{names}{tail[0]}\n{values}{tail[1]}\n{',' * (11 + binary)}\n".encode())
    result = project.run()
    assert result.status == "published", result.error
    asked = names.replace(",at,", ',epoch_us("at"),')
    kept = project.ask(f"SELECT {asked} FROM bronze.orders ORDER BY source_line")
    assert kept == [
        (
            True, -5, 300, 70000, -9000000000, 0.5, 0.1, Decimal("-12345.0000000001"), dt.date(2026, 8, 1),
            1785578400250000, dt.datetime(1999, 12, 31, 23, 59, 59), "ä",
        ),
        (None,) * 12,
    ]  # fmt: skip


def test_later_arrivals_are_compared_with_what_is_there(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES)
    project.land("b.csv", lines(row(1, "first"), row(2)))
    assert project.run().status == "published"
    project.land("a.csv", lines(row(1, "sorts before and came after"), f",nobody,1.00,{AT}", row(3)))
    assert project.run().status == "published"
    found = look(project)
    assert [row[1:3] for row in found.kept["b.csv"]] == [(1, "first"), (2, "x")]
    assert reasons(found, "a.csv") == {2: "id is unique"}
    before = project.everything()
    assert project.run(full_refresh=True).status == "published"
    assert project.everything() == before, "a rebuild keeps the order of arrival"


@pytest.mark.thorough
def test_a_line_of_200_mb_is_set_aside_with_its_length_and_hash(tmp_path: Path) -> None:
    import hashlib

    project = tiny(tmp_path, TABLES)
    line = b"1," + b"x" * 200_000_000
    project.land("long.csv", b"\n".join([HEADER.encode(), row(7).encode(), line, row(8).encode(), b""]))
    begun = time.monotonic()
    ended = project.spawn().end()  # if it takes the JVM down, then not that of the other tests
    assert ended.result["status"] == "published", ended.output
    ((number, reason, raw),) = look(project).aside["long.csv"]
    assert number == 3
    assert str(len(line)) in reason
    assert hashlib.sha256(line).hexdigest() in reason
    assert raw == line[: len(raw)]
    assert len(raw) == 1 << 20
    assert [number for _, number, *_ in look(project).kept["long.csv"]] == [7, 8]
    print(f"{time.monotonic() - begun:.1f} s")


# -- what stops a run: by name, and with the lake as it was


SOURCE: Any = files("landing/*.csv", schema="id BIGINT, name STRING")


@pytest.mark.parametrize(
    ("first_line", "told"),
    [
        (b"id\n", "missing columns: name"),
        (b"id,name,more\n", "unknown columns: more"),
        (b"id,id,name\n", "duplicate columns: id"),
        (b"1,one\n", "unknown columns: 1, one"),
        (b"\n1,one\n", "first line is blank"),
        (b"id,na\xffme\n", "not UTF-8"),
        (b"id;name\n", "unknown columns: id;name"),
        (b"x" * (2 << 20), "cannot be split into column names"),
    ],
)
def test_a_wrong_header_is_told_with_the_file_and_the_names(tmp_path: Path, first_line: bytes, told: str) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/f.csv").write_bytes(first_line)
    file = LandedFile(path="landing/f.csv", size=len(first_line), modified_ns=0)
    with pytest.raises(WrongHeader, match=told) as caught:
        read_head(tmp_path, file, SOURCE)
    assert "landing/f.csv:1" in str(caught.value)
    assert "id,name" in caught.value.remedy
    assert len(str(caught.value)) < 2000, "one paragraph, whatever the line"


def refused(project: TinyProject) -> str:
    """The message of a run that may not publish; the lake is as it was."""
    before = {t: at for t, at in project.lake.pointers().items() if not t.startswith("ops.")}
    try:
        result = project.run()
    except IcefieldError as error:
        told = str(error)
    else:
        assert result.status == "failed"
        told = result.error
    assert {t: at for t, at in project.lake.pointers().items() if not t.startswith("ops.")} == before
    return told


def test_a_missing_landing_folder_is_named(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES)
    told = refused(project)
    assert told.startswith(LandingMissing.code)
    assert "landing/orders" in told
    assert not project.lake.exists, "and nothing was made"


def test_a_run_with_a_wrong_header_takes_nothing_in(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES)
    project.land("a.csv", lines(row(1)))
    project.land("b.csv", b"id,nome,amount,at\n")
    told = refused(project)
    assert told.startswith(WrongHeader.code)
    assert "landing/orders/b.csv" in told
    assert "nome" in told
    (tmp_path / "landing/orders/b.csv").unlink()
    assert project.run().status == "published"


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(row(99).encode())


def _replace(path: Path) -> None:
    content = path.read_bytes()
    other = path.with_name(".other")
    other.write_bytes(content.replace(b"1.00", b"2.00"))
    other.rename(path)


@pytest.mark.parametrize("change", [_grow, _replace, Path.unlink], ids=["grows", "is replaced", "vanishes"])
def test_a_file_that_changes_while_it_is_read_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    project = tiny(tmp_path, TABLES)
    path = project.land("a.csv", lines(row(1)))

    def hook(name: str, table: str = "") -> None:
        if name == "stage.landed":
            change(path)

    monkeypatch.setattr(stage, "failpoint", hook)
    told = refused(project)
    assert "a.csv" in told
    assert told.startswith(("ICE-403", "ICE-405")), told
    monkeypatch.undo()
    project.land("a.csv", lines(row(1)))
    assert project.run().status == "published"
    assert look(project).kept["a.csv"] == [(2, 1, "x", "1.00")]


def test_a_taken_file_with_other_content_stops_the_run_and_a_touched_one_does_not(tmp_path: Path) -> None:
    project = tiny(tmp_path, TABLES)
    path = project.land("a.csv", lines(row(1)))
    assert project.run().status == "published"
    os.utime(path, ns=(1, 1))
    assert project.run().status == "published", "noted"
    assert project.run().status == "nothing new"
    os.utime(path, ns=(2, 2))
    assert project.run(full_refresh=True).status == "published"
    assert project.ask("SELECT status FROM ops.files ORDER BY sequence") == [("taken",), ("touched",), ("touched",)]
    assert look(project).kept["a.csv"] == [(2, 1, "x", "1.00")]
    project.land("a.csv", lines(row(2)))
    told = refused(project)
    assert told.startswith(FileChanged.code)
    assert "landing/orders/a.csv" in told


def test_a_disk_that_fills_up_stops_the_run_and_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    """A limit on the size of any one file stands in for the full disk: the write fails half-way, in Spark."""
    project = tiny(tmp_path, TABLES)
    project.land("a.csv", lines(row(1)))
    assert project.run().status == "published"
    before = project.everything()
    noise = (os.urandom(20).hex() for _ in range(20_000))
    project.land("b.csv", lines(*(row(10 + n, name) for n, name in enumerate(noise))))
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"
    ended = project.spawn(script=limit).end()
    assert ended.result["status"] in ("failed", "raised"), ended.output
    assert len(ended.result["error"]) < 1500
    assert project.everything() == before
    assert project.run().status == "published"
    assert project.ask("SELECT count(*) FROM bronze.orders") == [(20_001,)]


NESTED = """
from icefield import append, files, table

SCHEMA = "id BIGINT, place STRUCT<x:INT,at:STRUCT<y:DECIMAL(5,2)>>, marks ARRAY<INT>, more MAP<STRING,INT>"


@table("bronze.csv", source=files("landing/orders/*.csv", schema=SCHEMA, sep=";", quote="'"), refresh=append())
def csv_places(rows):
    return rows


@table("bronze.json", source=files("landing/orders/*.jsonl", schema=SCHEMA), refresh=append())
def json_places(rows):
    return rows
"""
PLACE = "place is not a valid STRUCT<x:INT,at:STRUCT<y:DECIMAL(5,2)>>"
#: Cells of place, marks and more, and what is wrong with them.
CELLS = [
    ('{"x":1,"at":{"y":1.25}}', "[1,2]", '{"a":1}', ""),
    ("{}", "[]", "{}", ""),
    ("", "", "", ""),
    ('{"x":null}', "[null]", '{"a":null}', ""),
    ("no object", "[1]", "{}", PLACE),
    ("[1]", "[1]", "{}", PLACE),
    ("5", "[1]", "{}", PLACE),
    ('{"x":1', "[1]", "{}", PLACE),
    ('{"x":"one"}', "[1]", "{}", PLACE),
    ('{"at":{"y":"one"}}', "[1]", "{}", PLACE),
    ('{"x":1}}2', "[1]", "{}", PLACE),
    ('{"x":1},"y":2', "[1]", "{}", PLACE),
    ("{}", '[1,"x"]', "{}", "marks is not a valid ARRAY<INT>"),
    ("{}", "[1]]", "{}", "marks is not a valid ARRAY<INT>"),
    ("{}", "1", "{}", "marks is not a valid ARRAY<INT>"),
    ("{}", "[1]", "[1]", "more is not a valid MAP<STRING,INT>"),
]


def test_a_cell_that_is_no_value_of_a_nested_type_is_malformed(tmp_path: Path) -> None:
    project = tiny(tmp_path, NESTED)
    cells = [";".join(cell for cell in wanted[:3]) for wanted in CELLS]
    project.land("a.csv", "\n".join(["id;place;marks;more", *(f"{n};{text}" for n, text in enumerate(cells)), ""]))
    texts = ['{"id":0,"place":{"x":1},"marks":[1],"more":{}}', '{"id":1,"place":"north"}', '{"id":2,"place":[1]}']
    project.land("a.jsonl", "\n".join([*texts, '{"id":3} and more', '{"id":4}, {"id":5}', '{"id":6}]', ""]))
    project.run()
    good = [n for n, wanted in enumerate(CELLS) if not wanted[3]]
    assert [n for (n,) in project.ask("SELECT id FROM bronze.csv ORDER BY id")] == good
    assert project.ask("SELECT place.x, place.at.y, marks, more FROM bronze.csv WHERE id = 0") == [
        (1, Decimal("1.25"), [1, 2], {"a": 1})
    ]
    told = project.ask("SELECT line - 2, reasons[1] FROM bronze.csv__quarantine ORDER BY line")
    assert told == [(n, f"malformed: {wanted[3]}") for n, wanted in enumerate(CELLS) if wanted[3]]
    assert project.ask("SELECT id, place.x FROM bronze.json") == [(0, 1)]
    told = project.ask("SELECT line, reasons[1] FROM bronze.json__quarantine ORDER BY line")
    no_object = "malformed: not a JSON object"
    assert told == [(2, f"malformed: {PLACE}"), (3, f"malformed: {PLACE}"), *((n, no_object) for n in (4, 5, 6))]


OPTIONS = """
from icefield import append, files, table


@table("bronze.people", source=files("landing/people/*", {options}), refresh=append())
def people(rows):
    return rows
"""
PEOPLE = 'schema="id INT, name STRING, born DATE, seen TIMESTAMP"'


def people(root: Path, options: str, content: bytes, name: str = "1.csv") -> TinyProject:
    project = tiny(root, OPTIONS.format(options=options))
    project.land(name, content, folder="people")
    assert project.run().ok
    return project


def rejected(project: TinyProject, table: str = "bronze.people") -> list[tuple[Any, ...]]:
    if f"{table}__quarantine" not in project.lake.pointers():
        return []
    return project.ask(f"SELECT line, reasons[1], raw FROM {table}__quarantine ORDER BY line")


def test_days_and_times_as_the_author_says_they_are_written(tmp_path: Path) -> None:
    options = f'{PEOPLE}, date_format="dd.MM.yyyy", timestamp_format="dd.MM.yyyy HH:mm"'
    content = b"id,name,born,seen\n1,a,01.08.2026,02.08.2026 10:30\n2,b,2026-08-01,\n3,c,31.02.2026,\n"
    project = people(tmp_path, options, content)
    assert project.ask("SELECT id, born::VARCHAR, epoch(seen)::BIGINT FROM bronze.people") == [
        (1, "2026-08-01", 1785666600)
    ]
    assert [(line, told) for line, told, _ in rejected(project)] == [
        (3, "malformed: born is not a valid DATE"), (4, "malformed: born is not a valid DATE"),
    ]  # fmt: skip


def test_texts_that_mean_null(tmp_path: Path) -> None:
    content = b'id,name,born,seen\n1,N/A,-,\n2,"N/A",,-\n-,n/a,,\n'
    project = people(tmp_path, f'{PEOPLE}, null_values=["N/A", "-"]', content)
    assert project.ask("SELECT id, name, born, seen FROM bronze.people ORDER BY source_line") == [
        (1, None, None, None), (2, None, None, None), (None, "n/a", None, None),
    ]  # fmt: skip


def test_a_file_without_a_header_has_the_declared_columns(tmp_path: Path) -> None:
    project = people(tmp_path, f"{PEOPLE}, header=False", b"\xef\xbb\xbf1,a,,\n2,b,,\nid,name,born,seen\n")
    assert project.ask("SELECT id, source_line FROM bronze.people ORDER BY ALL") == [(1, 1), (2, 2)]
    assert [line for line, *_ in rejected(project)] == [3]


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_another_encoding(tmp_path: Path, encoding: str) -> None:
    content = "id,name,born,seen\n1,Jürgen,,\nx,Zoë,,\n".encode(encoding)
    project = people(tmp_path, f'{PEOPLE}, encoding="{encoding}"', content)
    assert project.ask("SELECT id, name FROM bronze.people") == [(1, "Jürgen")]
    ((line, told, raw),) = rejected(project)
    assert (line, told) == (3, "malformed: id is not a valid INT")
    assert raw.decode(encoding) == "x,Zoë,,"


def test_files_of_any_kind_are_a_row_each(tmp_path: Path) -> None:
    project = people(tmp_path, 'format="binary"', b"\x00\xff\n", name="scan.png")
    (found,) = project.ask("SELECT source_file, size, sha256, content FROM bronze.people")
    assert found == ("landing/people/scan.png", 3, hashlib.sha256(b"\x00\xff\n").hexdigest(), b"\x00\xff\n")
    project.land("empty.png", b"", folder="people")
    assert project.run().ok
    assert project.ask("SELECT size FROM bronze.people ORDER BY 1") == [(0,), (3,)]


PARQUET = """
from icefield import append, expect, files, table


@table("bronze.trips", source=files("landing/trips/*.parquet", schema="id INT, fare DECIMAL(10,2), at TIMESTAMP"),
       refresh=append(), checks=[expect("fare is not negative", "fare >= 0")], otherwise="quarantine")
def trips(rows):
    return rows
"""


def parquet(root: Path, name: str, columns: dict[str, pa.Array], **options: Any) -> None:
    (root / "landing/trips").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), root / "landing/trips" / name, **options)


def test_parquet_files_of_different_types_are_one_table(tmp_path: Path) -> None:
    project = tiny(tmp_path, PARQUET)
    naive = pa.array([dt.datetime(2026, 8, 1, 10)] * 3, pa.timestamp("us"))
    parquet(tmp_path, "1.parquet", {"id": pa.array([1, 2, 3]), "FARE": pa.array([1.1, -2.2, 3.333]), "at": naive})
    parquet(tmp_path, "2.parquet", {"id": pa.array([4.0, 5.5]), "fare": pa.nulls(2), "at": pa.nulls(2)})
    assert project.run().ok
    assert project.ask("SELECT id, fare::DOUBLE, source_line FROM bronze.trips ORDER BY id") == [
        (1, 1.1, 1), (4, None, 1),
    ]  # fmt: skip
    waiting = rejected(project, "bronze.trips")
    assert sorted((line, told) for line, told, _ in waiting) == [
        (2, "fare is not negative"), (2, "malformed: id is not a valid INT"),
        (3, "malformed: fare is not a valid DECIMAL(10,2)"),
    ]  # fmt: skip
    assert {raw for _, _, raw in waiting} == {
        b'{"id":2,"FARE":-2.2,"at":"2026-08-01 10:00:00"}', b'{"id":3,"FARE":3.333,"at":"2026-08-01 10:00:00"}',
        b'{"id":5.5,"fare":null,"at":null}',
    }  # fmt: skip


def test_parquet_files_of_many_row_groups_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMITS", Limits(split_bytes=2000))
    monkeypatch.setattr(parquet_files, "_AT_ONCE", 0)
    project = tiny(tmp_path, PARQUET)
    ids = pa.array(range(1000))
    fares = pa.array([-1.0 if n in (7, 777) else n / 4 for n in range(1000)])
    parquet(tmp_path, "1.parquet", {"id": ids, "fare": fares, "at": pa.nulls(1000)}, row_group_size=50)
    assert project.run().ok
    assert project.ask("SELECT count(*)::INT, sum(source_line - id)::INT FROM bronze.trips") == [(998, 998)]
    assert [line for line, *_ in rejected(project, "bronze.trips")] == [8, 778]


def test_parquet_files_that_cannot_be_read_stop_the_run(tmp_path: Path) -> None:
    project = tiny(tmp_path, PARQUET)
    place = tmp_path / "landing/trips/1.parquet"
    parquet(tmp_path, "1.parquet", {"id": pa.array([1]), "fare": pa.array([1.0]), "at": pa.nulls(1)})
    whole = place.read_bytes()
    place.write_bytes(whole[: len(whole) // 2])
    assert "is not a Parquet file" in refused(project)
    place.write_bytes(b"id,fare\n1,1\n")
    assert "is not a Parquet file" in refused(project)
    parquet(tmp_path, "1.parquet", {"id": pa.array([[1]]), "fare": pa.array([1.0]), "at": pa.nulls(1)})
    told = refused(project)
    assert "the column `id` of landing/trips/1.parquet cannot be read as id INT" in told
