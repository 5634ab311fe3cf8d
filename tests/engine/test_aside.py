"""Rejected rows: gathered by the driver where they are few, by Spark's tasks where they are many; always the same."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icefield.engine import limits
from icefield.engine.checks import rejects as aside
from icefield.engine.checks import split as quality
from icefield.engine.intake.files import raw
from icefield.engine.limits import Limits
from projects import TinyProject, tiny

pytestmark = pytest.mark.spark

TABLES = """
from icefield import append, expect, files, frames, not_null, table, unique

SCHEMA = "id BIGINT, shop STRING, weight DOUBLE, amount DECIMAL(10,2), at TIMESTAMP"
CHECKS = [
    not_null("shop"),
    expect("amount is positive", "amount > 0"),
    expect("amount is small", "amount < 900", otherwise="drop"),
    unique("id"),
    unique("shop", "weight", otherwise="drop"),
]


def given(rows):
    return rows


def numbers(rows):
    return rows.select("id", "amount")


def made():
    return [(1, "a"), (1, "b"), ("x", "c"), (2, None)]


def of(name, source, function=given, checks=CHECKS):
    table(name, source=source, refresh=append(), checks=checks, otherwise="quarantine")(function)


of("bronze.csv", files("landing/csv/*.csv*", schema=SCHEMA))
of("bronze.latin", files("landing/latin/*.csv", schema=SCHEMA, encoding="latin-1"))
of("bronze.json", files("landing/json/*.jsonl", schema=SCHEMA))
of("bronze.parquet", files("landing/parquet/*.parquet", schema=SCHEMA))
of("bronze.unknown", files("landing/csv/*.csv", schema=SCHEMA), numbers, CHECKS[1:2])

@table("silver.heavy", refresh=append(), checks=[expect("it is heavy", "weight > 1")], otherwise="quarantine")
def heavy(csv):
    return csv.select("id", "weight")
"""
#: The driver has made these rows, so it has their bytes.
MADE = """

of(
    "bronze.made",
    frames(made, schema="id BIGINT, shop STRING"),
    checks=[unique("id"), not_null("shop")],
)
"""
AT = "2026-08-01 10:00:00"
#: id, shop, weight, amount
FIRST: list[tuple[Any, ...]] = [
    (1, "a", "1.5", "5.00"), (2, "b", "2.5", "6.00"), (1, "c", "3.5", "7.00"), (3, "a", "1.5", "8.00"),
    (4, "d", "0.0", "1.00"), (5, "d", "-0.0", "1.00"), (6, "e", "NaN", "1.00"), (7, "e", "NaN", "2.00"),
    (8, "", "1.0", "-1.00"), (8, "f", "1.0", "-1.00"), (9, "g", "1.0", "950.00"), ("", "h", "1.0", "1.00"),
    ("", "i", "1.0", "1.00"), (10, "", "1.0", "950.00"), (11, "j", "1.0", "1,0"), (12, "k", "", "1.00"),
    (13, "k", "", "2.00"), ("z", "l", "1.0", "1.00"), (8, "ü", "4.0", "3.00"),
]  # fmt: skip
SECOND: list[tuple[Any, ...]] = [
    (1, "n", "1.5", "5.00"), (14, "o", "1.5", "5.00"), (14, "p", "1.5", "5.00"), (15, "e", "NaN", "5.00"),
    (16, "ü", "1.5", "no"), (17, "q", "1.5", "-2.00"),
]  # fmt: skip


def csv(rows: list[tuple[Any, ...]]) -> str:
    lines = [",".join(map(str, (*row, AT))) for row in rows]
    return "".join(f"{line}\n" for line in ("id,shop,weight,amount,at", *lines))


def json_lines(rows: list[tuple[Any, ...]]) -> str:
    texts = ("id", "shop", "weight", "amount")
    lines = ["{" + ", ".join(f'"{n}": {_json(v)}' for n, v in zip(texts, row, strict=True)) + "}" for row in rows]
    return "".join(f"{line}\n" for line in [*lines, "no json"])


def _json(value: Any) -> str:
    return "null" if value == "" else f'"{value}"'


def parquet(root: Path, name: str, rows: list[tuple[Any, ...]]) -> None:
    columns = [[None if value == "" else str(value) for value in column] for column in zip(*rows, strict=True)]
    place = root / "landing/parquet" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    names = ["id", "shop", "weight", "amount"]
    table = pa.table([pa.array(column, pa.string()) for column in columns], names=names)
    pq.write_table(table.append_column("at", pa.array([AT] * len(rows))), place, row_group_size=4)


def land(project: TinyProject, name: str, rows: list[tuple[Any, ...]]) -> None:
    project.land(f"{name}.csv", csv(rows), "csv")
    project.land(f"{name}-packed.csv.gz", gzip.compress(csv(rows[1:5]).encode(), mtime=0), "csv")
    project.land(f"{name}.csv", csv(rows).encode("latin-1"), "latin")
    project.land(f"{name}.jsonl", json_lines(rows), "json")
    parquet(project.root, f"{name}.parquet", rows)


def history(root: Path) -> dict[str, Any]:
    """Two runs; what each left in the tables and quarantines, and what it told of its checks."""
    project, told = tiny(root, TABLES + MADE), {}
    for name, rows in (("1", FIRST), ("2", SECOND)):
        land(project, name, rows)
        result = project.run()
        assert result.status == "published", result.error
        counts = sorted((one.table, one.rows_added, one.rows_quarantined, one.rows_dropped) for one in result.tables)
        told[name] = (project.everything(), counts)
    checks = 'SELECT "table", "check", status, failed_rows, count(*) FROM ops.checks GROUP BY ALL'
    return {**told, "checks": Counter(project.ask(checks))}


@pytest.fixture(scope="module")
def by_driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return history(tmp_path_factory.mktemp("driver") / "p")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(Limits(driver_rejects=0), marks=pytest.mark.thorough),
        pytest.param(Limits(driver_rejects=5), marks=pytest.mark.thorough),
        pytest.param(Limits(driver_rejects=0, driver_bytes=-1), marks=pytest.mark.thorough),
        Limits(driver_rejects=0, driver_bytes=-1, split_bytes=100),
    ],
    ids=["many", "many of some tables", "read by tasks", "read by tasks in splits"],
)
def test_what_the_driver_sets_aside_tasks_set_aside_as_well(
    by_driver: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Limits
) -> None:
    monkeypatch.setattr(limits, "LIMITS", given)
    assert history(tmp_path / "p") == by_driver


def test_every_kind_of_file_has_rejected_rows_of_every_kind(by_driver: dict[str, Any]) -> None:
    for name in ("csv", "latin", "json", "parquet"):
        failed = Counter()
        for table, check, _, rows, _ in by_driver["checks"]:
            failed[check] += rows if table == f"bronze.{name}" else 0
        for check in ("every line can be read", "shop is not null", "amount is positive", "amount is small"):
            assert failed[check] >= 1, (name, check, failed)
        assert failed["id is unique"] >= 3, (name, failed)
        assert failed["shop, weight is unique"] >= 1, (name, failed)


def test_many_rejected_rows_do_not_come_to_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the driver was to hold rejected rows")

    monkeypatch.setattr(limits, "LIMITS", Limits(driver_rejects=0, driver_bytes=-1))
    project = tiny(tmp_path, TABLES)
    land(project, "1", FIRST)
    for module, name in ((aside, "_with_bytes"), (aside, "_malformed"), (quality, "late")):
        monkeypatch.setattr(module, name, never)
    assert project.run().ok


def test_a_file_that_is_cut_while_tasks_fetch_bytes_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIMITS", Limits(driver_rejects=0))
    project = tiny(tmp_path, TABLES)
    land(project, "1", FIRST)
    fetching = aside._adding

    def cut(read: raw.RawRows) -> Any:
        for file in (tmp_path / "landing/csv").iterdir():
            file.write_bytes(file.read_bytes()[:30])
        return fetching(read)

    monkeypatch.setattr(aside, "_adding", cut)
    result = project.run()
    assert not result.ok
    assert "changed while it was being read" in result.error
