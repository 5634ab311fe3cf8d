"""Two versions of a table differ by what came and went between them, row by row, however files were rewritten."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import LongType, StringType

import batched
from icefield.errors import LakeDamaged
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.history import find_version, history
from icefield.lake.manifests import LiveFiles
from icefield.query import compare as module
from icefield.query.compare import Comparison, Present, Total, compare
from icefield.query.pins import pin_now
from lakes import change, finish, new_lake, open_branch

TABLE = "silver.sales"


@pytest.fixture
def lake(tmp_path: Path) -> EmbeddedLake:
    return new_lake(tmp_path / "lake")


def put(lake: EmbeddedLake, rows: dict[str, Any] | pa.Table, run: str, replacing: str = "", batch: str = "") -> None:
    """Publishes rows of a table."""
    branch = open_branch(lake, run)
    change(branch, TABLE, rows if isinstance(rows, pa.Table) else pa.table(rows), replacing=replacing)
    finish(branch, [TABLE], batch)


def alter(lake: EmbeddedLake, how: Callable[[UpdateSchema], object], rows: dict[str, Any], run: str) -> None:
    """Publishes other columns and rows that have them."""
    branch = open_branch(lake, run)
    branch.prepare(TABLE)
    catalog = branch.pyiceberg()
    found = catalog.load_table(TABLE)
    with found.update_schema() as update:
        how(update)
    found.append(pa.table(rows), snapshot_properties={"icefield.run": run})
    catalog.close()
    finish(branch, [TABLE])


def compared(lake: EmbeddedLake, before: str, after: str = "latest", table: str = TABLE, **options: Any) -> Comparison:
    pin = pin_now(lake)[table]
    old, new = (find_version(table, history(pin.metadata), one) for one in (before, after))
    return compare(pin, old, new, **options)


def rows_of(found: Comparison) -> tuple[int, int, int]:
    return found.rows_added, found.rows_removed, found.rows_same


def test_rows_that_were_appended_are_added(lake: EmbeddedLake) -> None:
    put(lake, {"id": [1, 2], "name": ["a", None]}, "r1")
    put(lake, {"id": [2, 3], "name": [None, "c"]}, "r2")
    found = compared(lake, "r1")
    assert rows_of(found) == (2, 0, 2)
    assert (found.rows_before, found.rows_after) == (2, 4)
    assert rows_of(compared(lake, "r2", "r1")) == (0, 2, 2), "the other way round they are removed"
    assert rows_of(compared(lake, "r2")) == (0, 0, 4)


def test_rows_are_multisets_and_where_they_are_stored_does_not_matter(lake: EmbeddedLake) -> None:
    put(lake, {"id": [1, 1, 1, 2, None], "name": ["a", "a", "a", "b", None]}, "r1")
    put(lake, {"id": [None, 2, 1, 3], "name": [None, "b", "a", "c"]}, "r2", replacing="True")
    assert rows_of(compared(lake, "r1")) == (1, 2, 3)


def test_only_rows_of_files_that_differ_are_looked_at(lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lake, {"id": [1, 2], "part": ["a", "a"]}, "r1")
    put(lake, {"id": [3], "part": ["b"]}, "r2")
    put(lake, {"id": [4, 3], "part": ["b", "b"]}, "r3", replacing="part == 'b'")
    asked: list[str] = []
    row = module._row
    monkeypatch.setattr(module, "_row", lambda db, query: asked.append(query) or row(db, query))
    assert rows_of(compared(lake, "r2")) == (1, 0, 3)
    assert ["NOT IN" in query for query in asked if "surplus" in query] == [True]


def test_where_rows_were_deleted_in_between_every_file_is_looked_at(
    lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(lake, {"id": [1, 2], "part": ["a", "a"]}, "r1")
    put(lake, {"id": [3], "part": ["b"]}, "r2")
    put(lake, {"id": [4, 3], "part": ["b", "b"]}, "r3", replacing="part == 'b'")
    live = module.live_files

    def with_deletes(snapshot: dict[str, Any]) -> LiveFiles:
        return LiveFiles(data=live(snapshot).data, deletes=frozenset({(str(snapshot["snapshot-id"]), None)}))

    monkeypatch.setattr(module, "live_files", with_deletes)
    asked: list[str] = []
    row = module._row
    monkeypatch.setattr(module, "_row", lambda db, query: asked.append(query) or row(db, query))
    assert rows_of(compared(lake, "r2")) == (1, 0, 3)
    assert ["NOT IN" in query for query in asked if "surplus" in query] == [False]


def test_a_column_of_the_name_that_duckdb_gives_files_is_a_column(lake: EmbeddedLake) -> None:
    put(lake, {"id": [1], "filename": ["a"]}, "r1")
    put(lake, {"id": [2], "filename": ["b"]}, "r2")
    put(lake, {"id": [2, 3], "filename": ["b", "b"]}, "r3", replacing="id == 2")
    assert rows_of(compared(lake, "r2")) == (1, 0, 2)


def test_nested_values_are_compared(lake: EmbeddedLake) -> None:
    tags = pa.array([["x", "y"], []], pa.list_(pa.string()))
    place = pa.array([{"city": "Bern", "zip": 3000}, None], pa.struct([("city", pa.string()), ("zip", pa.int64())]))
    prices = pa.array([[("eur", 1.5)], None], pa.map_(pa.string(), pa.float64()))
    whole = pa.table({"id": [1, 2], "tags": tags, "place": place, "prices": prices})
    put(lake, whole, "r1")
    put(lake, whole.slice(1), "r2", replacing="True")
    put(lake, whole, "r3", replacing="True")
    assert rows_of(compared(lake, "r1")) == (0, 0, 2)
    assert rows_of(compared(lake, "r2")) == (1, 0, 1)


def test_a_column_that_came_is_empty_in_older_rows(lake: EmbeddedLake) -> None:
    put(lake, {"id": [1, 2]}, "r1")
    alter(lake, lambda update: update.add_column("note", StringType()), {"id": [3], "note": ["n"]}, "r2")
    put(lake, {"id": [1, 2, 3], "note": [None, "new", "n"]}, "r3", replacing="True")
    found = compared(lake, "r1", "r2")
    assert (rows_of(found), found.columns_added, found.columns_removed) == ((1, 0, 2), ("note",), ())
    assert rows_of(compared(lake, "r2")) == (1, 1, 2)
    assert rows_of(compared(lake, "r1")) == (2, 1, 1)
    back = compared(lake, "r3", "r1")
    assert (rows_of(back), back.columns_removed) == ((1, 2, 1), ("note",))


def test_a_column_with_another_name_or_a_wider_type_is_the_same_column(lake: EmbeddedLake) -> None:
    put(lake, pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]}), "r1")

    def how(update: UpdateSchema) -> None:
        update.rename_column("name", "title")
        update.update_column("id", LongType())

    alter(lake, how, {"id": [3], "title": ["c"]}, "r2")
    put(lake, {"id": [1, 2, 3], "title": ["a", "B", "c"]}, "r3", replacing="True")
    found = compared(lake, "r1")
    assert (rows_of(found), found.columns_added, found.columns_removed) == ((2, 1, 1), (), ())
    assert found.totals == (Total(column="id", before=3, after=6),)


def test_sums_of_numbers_are_exact_and_say_how_they_changed(tmp_path: Path) -> None:
    project = batched.taxi(tmp_path / "taxi")
    found = compared(project.lake, "2026-01", table="raw.trips")
    assert found.totals == (
        Total(column="id", before=3, after=10),
        Total(column="fare", before=Decimal("30.50"), after=Decimal("43.75")),
        Total(column="tip", before=1.5, after=4.0),
    )
    assert [total.change for total in found.totals] == [7, Decimal("13.25"), 2.5]


def test_a_sum_of_nothing_is_none_and_large_sums_do_not_overflow(lake: EmbeddedLake) -> None:
    put(lake, {"id": pa.array([None], pa.int64())}, "r1")
    put(lake, {"id": [2**63 - 1, 2**63 - 1]}, "r2")
    (total,) = compared(lake, "r1").totals
    assert (total.before, total.after, total.change) == (None, 2**64 - 2, None)


def test_months_that_are_there_are_listed(lake: EmbeddedLake) -> None:
    put(lake, {"month": ["2026-01", "2026-02", None], "word": ["2026", "x", "y"], "day": ["2026-01-01"] * 3}, "r1")
    put(lake, {"month": ["2026-02", "2026-03"], "word": ["z", "z"], "day": ["?", "?"]}, "r2", replacing="True")
    found = compared(lake, "r1")
    assert found.present == (Present(column="month", before=("2026-01", "2026-02"), after=("2026-02", "2026-03")),)
    assert (found.present[0].added, found.present[0].removed) == (("2026-03",), ("2026-01",))


def test_batches_are_listed_whatever_they_look_like(lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 2)
    put(lake, {"shop": ["a", "b", "c"], "month": ["2026-01", "2026-02", "2026-03"]}, "r1")
    put(lake, {"shop": ["d"], "month": ["2026-03"]}, "r2")
    assert compared(lake, "r1").present == (), "too many months to be listed, and shops do not look like months"
    (shop,) = compared(lake, "r1", batches=["shop"]).present
    assert (shop.after, shop.added) == (("a", "b", "c", "d"), ("d",))


def test_a_file_that_is_gone_is_named(lake: EmbeddedLake) -> None:
    put(lake, {"id": [1]}, "r1")
    put(lake, {"id": [2]}, "r2", replacing="True")
    [gone] = (lake.warehouse / "silver").rglob("data/r1/*.parquet")
    gone.unlink()
    with pytest.raises(LakeDamaged) as error:
        compared(lake, "r1")
    assert str(gone) in str(error.value)
