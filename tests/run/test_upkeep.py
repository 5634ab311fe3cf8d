"""Upkeep: fewer files and versions, the same rows; consumers go on, readers finish, a run at work is not disturbed."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record

from icefield.engine.refresh import replace as replacing
from icefield.errors import UnknownRun
from icefield.lake import metadata as meta
from icefield.lake.arrow_scan import opened
from icefield.lake.embedded import EmbeddedLake, now_ms
from icefield.lake.history import history
from icefield.lake.manifests import records
from icefield.lake.rewriting import _Writer, can_be_rewritten, rewritten
from icefield.plan import upkeep as rules
from icefield.project import open_project
from icefield.query import open_reader
from icefield.run.upkeep import Upkeep, Upkept
from icefield.run.verifying import verify_project
from lakes import change, finish, new_lake, open_branch, publish
from projects import TinyProject, order, rows_of, tiny

KEYED = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, files, table


@table(
    "raw.orders",
    source=files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"),
    refresh=append(),
)
def orders(rows):
    return rows


@table("silver.sales", refresh=append(), partitioned_by=["days(at)"])
def sales(orders):
    return orders.select("id", "customer", "amount", "at")


@table("gold.hours", refresh=by_key("customer", hour="date_trunc('HOUR', at)"), partitioned_by=["days(hour)"])
def hours(sales):
    return sales.groupBy("customer", F.date_trunc("HOUR", "at").alias("hour")).agg(F.sum("amount").alias("amount"))


@table("gold.customers", refresh=accumulate("customer", amount="sum"))
def customers(hours):
    return hours.groupBy("customer").agg(F.sum("amount").alias("amount"))
"""


#: More than the last ones, which are kept in any case.
RUNS = 24


def settle(project: TinyProject, *, keep: str = "7d", grace: str = "1h") -> TinyProject:
    """Says how long versions and files stay."""
    file = project.root / "icefield.toml"
    before = file.read_text().partition("[profile.local.upkeep]")[0]
    file.write_text(f'{before}[profile.local.upkeep]\nkeep = "{keep}"\ngrace = "{grace}"\n')
    return project


def upkeep(project: TinyProject, *, thinned: bool = False, **options: Any) -> Upkept:
    return Upkeep(open_project(project.root), thinned=thinned).carry_out(**options)


def manifests(lake: EmbeddedLake, table: str) -> int:
    found = meta.current_snapshot(meta.load(lake.pointers()[table]))
    assert found is not None
    return sum(1 for _ in records(found["manifest-list"]))


def files(lake: EmbeddedLake, table: str) -> int:
    return meta.total_files(meta.load(lake.pointers()[table]))


def every_version(lake: EmbeddedLake) -> dict[tuple[str, int], Counter[tuple[Any, ...]]]:
    """The rows of every snapshot that is still there."""
    found = {}
    for table, at in lake.pointers().items():
        for snapshot in meta.load(at)["snapshots"]:
            found[table, snapshot["snapshot-id"]] = rows_of(at, snapshot["snapshot-id"])
    return found


# -- without Spark


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    """A lake with two tables, one of which every third run changed."""
    found = tiny(tmp_path / "tiny")
    lake = new_lake(found.lake.root)
    for number in range(RUNS):
        publish(lake, {"a.one": [number], **({"a.two": [number]} if number % 3 == 0 else {})})
    return found


def test_small_files_are_written_together_and_the_rows_stay(project: TinyProject) -> None:
    lake, before = project.lake, {table: rows_of(at) for table, at in project.lake.pointers().items()}
    done = upkeep(project)
    assert {one.table: one.files for one in done.compacted} == {"a.one": RUNS, "a.two": RUNS // 3, "ops.runs": RUNS}
    assert {table: rows_of(at) for table, at in lake.pointers().items()} == before
    assert (files(lake, "a.one"), manifests(lake, "a.one")) == (1, 1)
    (last,) = history(meta.load(lake.pointers()["a.one"]))[-1:]
    assert (last.operation, last.rows_added, last.rows_removed, last.rows_total) == ("replace", 0, 0, RUNS)
    assert upkeep(project).compacted == ()


@pytest.mark.parametrize(
    ("kind", "full"),
    [
        (pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])), [{"key": "a", "value": b"1"}]),
        (pa.map_(pa.string(), pa.struct([("x", pa.int64())])), [("a", {"x": 1})]),
        (pa.struct([("inner", pa.list_(pa.struct([("x", pa.int64())])))]), {"inner": None}),
    ],
    ids=["list", "map", "nested"],
)
def test_lists_of_structs_stay_as_they_are_even_those_that_are_null(
    tmp_path: Path, kind: pa.DataType, full: Any
) -> None:
    """PyIceberg would write an empty list in place of one that is NULL: no headers are not the same as none known."""
    branch = open_branch(new_lake(tmp_path / "lake"))
    given = pa.table({"n": pa.array(range(3)), "headers": pa.array([None, full, None], kind)})
    change(branch, "a.one", given.slice(0, 0))
    with opened(branch, "a.one") as table:
        schema = schema_to_pyarrow(table.schema())
        written = _Writer(table, Record(), uuid4(), iter(range(9))).write(given.cast(schema).to_batches())
        written.spec_id = table.spec().spec_id
        task = FileScanTask(written)
        assert can_be_rewritten(table, task)
        (again,) = rewritten(table, [task, task], uuid4())
    assert again.record_count == 6
    assert pq.read_table(again.file_path.removeprefix("file://")).to_pylist() == 2 * given.to_pylist()


def test_a_partition_is_compacted_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "FEW", 3)
    project = tiny(tmp_path / "tiny")
    lake = new_lake(project.lake.root)
    for number in range(3):
        branch = open_branch(lake)
        days = ["2026-01-01", *(["2026-01-02"] if number else []), *([None] if number == 2 else [])]
        day = pa.array([day and dt.date.fromisoformat(day) for day in days])
        change(branch, "a.one", pa.table({"n": [number] * len(days), "day": day}), partitioned_by="identity(day)")
        finish(branch, ["a.one"])
    before = rows_of(lake.pointers()["a.one"])
    done = [one for one in upkeep(project).compacted if one.table == "a.one"]
    assert [(one.files, one.into) for one in done] == [(3, 1)]
    assert files(lake, "a.one") == 1 + 2 + 1
    assert rows_of(lake.pointers()["a.one"]) == before
    assert list(project.ask("SELECT count(*) FROM a.one WHERE day < DATE '2026-01-02'")) == [(3,)]


def test_nothing_of_a_version_that_is_kept_is_removed(project: TinyProject) -> None:
    settle(project, grace="0s")
    versions = every_version(project.lake)
    done = upkeep(project)
    assert done.expired == {}
    after = every_version(project.lake)
    assert {one: after[one] for one in versions} == versions


def test_old_versions_go_and_so_do_their_files(project: TinyProject) -> None:
    settle(project, keep="0s", grace="0s")
    before = len(list(project.lake.warehouse.rglob("*.avro")))
    upkeep(project)
    done = upkeep(project)  # what the first one wrote anew, and what it let go
    lake = project.lake
    assert {len(meta.load(at)["snapshots"]) for at in lake.pointers().values()} <= set(range(22))
    assert len(list(lake.warehouse.rglob("*.avro"))) < before
    assert len(list((lake.table_folder("a.one") / "metadata").glob("*.metadata.json"))) == 1
    assert done.put_off == ""
    assert every_version(lake)


def test_the_lake_as_of_a_run_is_what_it_was_or_is_refused(project: TinyProject) -> None:
    def as_of(run: str) -> Any:
        with open_reader(project.lake, as_of=run) as reader:
            rows = [reader.query(f"SELECT value FROM {table} ORDER BY 1").rows() for table in ("a.one", "a.two")]
        return rows

    runs = [run for (run,) in project.ask("SELECT run FROM ops.runs ORDER BY finished_at")]
    before = {run: as_of(run) for run in runs}
    settle(project, keep="0s", grace="0s")
    upkeep(project)
    kept = 0
    for run in runs:
        try:
            now = as_of(run)
        except UnknownRun:  # no longer available
            continue
        assert now == before[run]
        kept += 1
    assert 15 <= kept < RUNS


@pytest.mark.parametrize("thinned", [False, True])
def test_tables_as_of_any_time_belong_together_or_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thinned: bool
) -> None:
    """A run a minute; metadata files of `a.two`, which is slow, are still there when those of the others are gone."""
    monkeypatch.setattr("icefield.run.upkeep.LAST", 3)
    project = settle(tiny(tmp_path / "tiny"), keep="1d" if thinned else "0s", grace="1h")
    lake, versions = new_lake(project.lake.root), []
    times = [now_ms() - (30 - minute) * 60_000 for minute in range(18)]
    for number, time in enumerate(times):
        monkeypatch.setattr("icefield.lake.branch.now_ms", lambda time=time: time)
        publish(lake, {"a.one": [number], **({"a.two": [number]} if number in (0, 1, 6, 7) else {})})
        versions.append([rows_of(lake.pointers()[table]) for table in ("a.one", "a.two")])
    for file in lake.warehouse.rglob("*.metadata.json"):
        if "two" not in file.parts:
            os.utime(file, (0, 0))
    upkeep(project, thinned=thinned)
    found = {}
    for number, time in enumerate(times):
        moment = dt.datetime.fromtimestamp(time / 1000, dt.UTC).isoformat(timespec="milliseconds")
        with suppress(UnknownRun), open_reader(lake, as_of=moment) as reader:
            rows = [reader.query(f"SELECT value FROM {table}").rows() for table in ("a.one", "a.two")]
            found[number] = [Counter(map(tuple, some)) for some in rows]
    assert all(rows in versions[: number + 1] for number, rows in found.items()), found
    assert len(found) >= 3


def test_a_reader_that_has_opened_the_lake_finishes_and_later_the_files_go(project: TinyProject) -> None:
    settle(project, keep="0s", grace="1h")
    opened = dict(project.lake.pointers())
    versions = {(table, s["snapshot-id"]): at for table, at in opened.items() for s in meta.load(at)["snapshots"]}
    before = {key: rows_of(at, key[1]) for key, at in versions.items()}
    assert upkeep(project).expired
    assert {key: rows_of(at, key[1]) for key, at in versions.items()} == before
    settle(project, keep="0s", grace="0s")
    upkeep(project)
    assert not any(Path(at).exists() for at in opened.values())


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(project: TinyProject) -> None:
    settle(project, keep="0s", grace="0s")
    everything = {path: path.stat().st_size for path in project.lake.root.rglob("*") if path.suffix != ".db-shm"}
    done = upkeep(project, dry_run=True)
    assert [one.table for one in done.compacted] == ["a.one", "a.two", "ops.runs"]
    assert done.expired
    now = {path: path.stat().st_size for path in project.lake.root.rglob("*") if path.suffix != ".db-shm"}
    assert set(now) == set(everything)


def test_it_is_put_off_while_a_run_is_at_work_and_touches_none_of_its_files(project: TinyProject) -> None:
    settle(project, keep="0s", grace="0s")
    branch = open_branch(project.lake)
    pinned = {table: rows_of(at) for table, at in branch.base.items()}
    before = project.lake.pointers()
    try:
        assert branch.run in upkeep(project).put_off
        assert project.lake.pointers() == before
        assert {table: rows_of(at) for table, at in branch.base.items()} == pinned
    finally:
        branch.abandon()
    assert upkeep(project).put_off == ""


def test_a_run_that_publishes_meanwhile_wins(project: TinyProject, monkeypatch: pytest.MonkeyPatch) -> None:
    from icefield.run import upkeep as module

    compact = module.compact

    def overtaken(branch: Any, table: str, wanted: Any) -> Any:
        if table == "a.one":
            publish(project.lake, {"a.one": [99]})
        return compact(branch, table, wanted)

    monkeypatch.setattr(module, "compact", overtaken)
    assert "a.one" in upkeep(project).put_off
    assert files(project.lake, "a.one") == RUNS + 1
    monkeypatch.undo()
    assert upkeep(project).put_off == ""
    assert rows_of(project.lake.pointers()["a.one"])[(99,)] == 1


def test_history_is_kept_as_rows(project: TinyProject) -> None:
    settle(project, keep="0s", grace="0s")
    upkeep(project)
    assert project.ask("SELECT count(DISTINCT run) FROM ops.runs") == [(RUNS,)]


def test_logs_of_runs_long_ago_go_but_the_last_ones(project: TinyProject) -> None:
    settle(project, grace="0s")
    for number in range(25):
        (project.lake.run_folder(f"202601{number + 1:02}T000000-abcdef")).mkdir(parents=True)
    assert upkeep(project).swept.run_folders == 5
    assert len([one for one in project.lake.runs.iterdir() if one.is_dir()]) == 20


def test_hundreds_of_runs_leave_a_bounded_lake(tmp_path: Path) -> None:
    project = settle(tiny(tmp_path / "tiny"), grace="0s")
    lake = new_lake(project.lake.root)
    sizes: list[tuple[int, int, int]] = []
    for number in range(80):
        publish(lake, {"a.one": [number]})
        if number % 20 == 19:
            upkeep(project, thinned=True)
            at = lake.pointers()["a.one"]
            stored = [path for path in lake.warehouse.rglob("*") if path.is_file()]
            sizes.append((Path(at).stat().st_size, manifests(lake, "a.one"), len(stored)))
    # Bytes, manifests and files of the version more that is kept if the clock passes five full minutes meanwhile.
    version = (2_000, 2, 12)
    allowed = [1.3 * first + more for first, more in zip(sizes[1], version, strict=True)]
    assert all(now <= most for now, most in zip(sizes[-1], allowed, strict=True)), sizes
    assert sum(rows_of(lake.pointers()["a.one"]).values()) == 80


# -- with Spark


@pytest.fixture
def sold(tmp_path: Path) -> Callable[[int, int], TinyProject]:
    """Lands so many files, one run each; from the given number on."""

    def sell(first: int, count: int) -> TinyProject:
        found = TinyProject(tmp_path / "tiny")
        for number in range(first, first + count):
            lines = [order(number, name, "1.00", f"2026-08-01 {number % 5:02}:30:00") for name in ("ann", "bob")]
            found.land(f"{number:03}.csv", lines)
            assert found.run().ok
        return found

    tiny(tmp_path / "tiny", KEYED)
    return sell


def actions(project: TinyProject) -> Mapping[str, str]:
    result = project.run()
    assert result.ok, result.error
    return {table.table: table.action for table in result.tables}


def require_exact(project: TinyProject) -> None:
    opened = open_project(project.root)
    verdicts = {one.table: one.status for one in verify_project(opened, opened.graph.order[1:])}
    assert set(verdicts.values()) == {"exact"}, verdicts


FOLLOWING = {"raw.orders": "append", "silver.sales": "append", "gold.hours": "update", "gold.customers": "update"}


@pytest.mark.spark
def test_after_upkeep_tables_follow_their_inputs_as_before_and_equal_a_recomputation(
    sold: Callable[[int, int], TinyProject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacing, "SMALL_TABLE", 0)  # deletes, as in a large table
    monkeypatch.setattr(rules, "FEW", 3)
    project = settle(sold(0, 5), keep="0s", grace="0s")
    deleted = meta.current_snapshot(meta.load(project.lake.pointers()["gold.customers"]))
    assert deleted is not None
    assert meta.has_deletes(deleted)
    before = project.everything()

    done = upkeep(project)
    assert {"raw.orders", "silver.sales", "gold.hours", "gold.customers"} <= {one.table for one in done.compacted}
    assert project.everything() == before
    now = meta.current_snapshot(meta.load(project.lake.pointers()["gold.customers"]))
    assert now is not None
    assert not meta.has_deletes(now)
    assert not any(state.meddled for state in project.lake.states().values())
    require_exact(project)

    project.land("900.csv", [order(900, "ann", "5.00", "2026-08-01 02:10:00")])
    assert actions(project) == FOLLOWING
    upkeep(project)
    upkeep(project)
    require_exact(project)
    assert dict(project.ask("SELECT customer, amount FROM gold.customers"))["ann"] == 5 + 5


@pytest.mark.spark
def test_a_consumer_that_has_not_read_for_long_goes_on_from_where_it_was(
    sold: Callable[[int, int], TinyProject], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "FEW", 3)
    monkeypatch.setattr("icefield.run.upkeep.LAST", 1)
    project = settle(sold(0, 2), keep="0s", grace="0s")
    for number in range(2, 6):
        project.land(f"{number:03}.csv", [order(number)])
        assert project.run(select="raw.orders").ok
    upkeep(project)
    assert files(project.lake, "raw.orders") == 1
    assert upkeep(project).compacted == ()
    assert actions(project) == {name: action for name, action in FOLLOWING.items() if name != "raw.orders"}
    require_exact(project)
    assert project.rows("raw.orders").total() == project.rows("silver.sales").total() == 4 + 4


@pytest.mark.spark
def test_what_was_told_of_changes_stays_until_all_have_read_it(sold: Callable[[int, int], TinyProject]) -> None:
    project = settle(sold(0, 3), keep="0s", grace="0s")
    for number in range(3):
        project.land(f"9{number}.csv", [order(900 + number, "ann", "1.00", "2026-08-01 00:10:00")])
        assert project.run(exclude="gold.customers").ok
    changes = project.rows("gold.hours__changes")
    assert changes
    upkeep(project)
    assert project.rows("gold.hours__changes") == changes
    assert actions(project) == {"gold.customers": "update"}
    require_exact(project)
    upkeep(project)
    assert project.rows("gold.hours__changes").total() == 0
    project.land("99.csv", [order(999, "bob", "1.00", "2026-08-01 00:10:00")])
    assert actions(project) == FOLLOWING
    require_exact(project)


@pytest.mark.spark
def test_a_table_with_years_that_python_does_not_have_keeps_no_other_from_its_upkeep(
    sold: Callable[[int, int], TinyProject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "FEW", 2)
    far = 'return rows.withColumn("far", F.expr("timestamp_micros(300000000000000000)"))'
    tiny(tmp_path / "tiny", KEYED.replace("return rows", far))
    project = sold(0, 2)
    before = project.everything()
    compacted = {one.table for one in upkeep(project).compacted}
    assert "silver.sales" in compacted
    assert "raw.orders" not in compacted
    assert project.everything() == before
    assert actions(sold(2, 1)) == {}
    require_exact(project)
