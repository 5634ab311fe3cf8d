"""Every command as a person sees it, on terminals of 80 and of 120 columns; `UPDATE_SCREENS=1` writes the files anew.

Nothing is cut, and no name is broken: a table leaves columns out, or stands below another, where there is no room.
"""

from __future__ import annotations

import datetime as dt
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from icefield.cli import batches, check, compare, output, report, runs, table, tree, verify
from icefield.cli.app import COMMANDS, build_app
from icefield.cli.quarantine import SUFFIX
from icefield.engine.checks.results import CheckResult
from icefield.engine.verdict import Verdict
from icefield.graph.state import TableState, Version
from icefield.lake.history import TableVersion
from icefield.lake.ops import at
from icefield.lake.table_state import state_properties, table_state
from icefield.lake.tree import (
    Bound,
    CatalogEntry,
    FileCounts,
    Manifest,
    ManifestList,
    MetadataFile,
    PartitionRange,
    Snapshot,
    TableColumn,
    TableFile,
    TableTree,
)
from icefield.plan import Plan
from icefield.project import Project, open_project
from icefield.query.compare import Comparison, Present, Total
from icefield.run.batches import BatchState
from icefield.run.events import Replayed, RunResult, TableOutcome
from lakes import new_lake, open_branch, told, write

SCREENS = Path(__file__).parent / "screens"
ECOMMERCE = Path(__file__).parents[2] / "pipelines" / "ecommerce"
RUN = "20260101T000000-aaaaaa"
WIDTHS = (80, 120)


class Terminal(io.StringIO):
    """Takes what is printed, as a terminal does."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], str]:
    def shown(width: int, command: Callable[[], object]) -> str:
        screen = Terminal()
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stdout", screen)
        monkeypatch.setattr(sys, "stderr", screen)
        try:
            command()
        except (typer.Exit, SystemExit):
            pass
        finally:
            monkeypatch.undo()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
        return "\n".join(line.rstrip() for line in plain.splitlines()) + "\n"

    return shown


def call(*arguments: str) -> Callable[[], object]:
    return lambda: build_app(arguments)(list(arguments), prog_name="icefield", standalone_mode=False)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The e-commerce project, most of it published; its tables hold numbers, which is enough to be listed."""
    root = tmp_path_factory.mktemp("screens") / "shop"
    shutil.copytree(ECOMMERCE, root, ignore=shutil.ignore_patterns("landing", "lake", ".icefield", "__pycache__"))
    for feed in ("customer_events", "payment_transactions", "inventory_snapshots", "support_tickets"):
        folder = root / "landing" / feed
        folder.mkdir(parents=True)
        (folder / "2026-08-01.csv").write_text("id\n")
    project = open_project(root)
    lake = new_lake(project.profile.lake)
    branch = open_branch(lake, RUN)
    names = [name for name in project.graph.order if name != "gold.product_summary"]
    for name in names:
        write(branch, name, *range(1200 if name.startswith("bronze") else 30))
    _reject(branch, "bronze.payment_transactions")
    states = {name: _state(project, name, states_of(branch, name)) for name in names}
    states["silver.stock_levels"] = replace(states["silver.stock_levels"], fingerprint="other")
    properties = {name: state_properties(state) for name, state in states.items()}
    branch.publish({**properties, f"bronze.payment_transactions{SUFFIX}": {}}, told(RUN))
    return project


def states_of(branch: Any, name: str) -> TableState:
    return table_state(name, branch.staged_metadata(name))


def _state(project: Project, name: str, found: TableState) -> TableState:
    node = project.graph[name]
    inputs = {
        one: Version(epoch=0, number=0 if one == "silver.payment_analysis" else 1, snapshot=1) for one in node.inputs
    }
    return replace(
        found,
        version=replace(found.version, number=1),
        run=RUN,
        fingerprint=node.fingerprint,
        checks_fingerprint=node.checks_fingerprint,
        inputs=inputs,
        promise="full" if node.refresh.kind == "full" else "proven",
    )


def _reject(branch: Any, table: str) -> None:
    import pyarrow as pa

    name = table + SUFFIX
    rows = pa.table(
        {
            "transaction_id": pa.array([115, None], pa.int64()),
            "raw": pa.array([b"115,34708,1051,21.99,USD,card,completed,2026-08-01 10:00:00", b",38673"], pa.binary()),
            "reasons": [["transaction_id is unique"], ["malformed: 2 columns instead of 8"]],
            "run": [RUN] * 2,
            "line": pa.array([396, 837], pa.int64()),
            "arrival": pa.array([0, 0], pa.int64()),
            "quarantined_at": [at(0)] * 2,
        }
    )
    folder, properties = str(branch.lake.table_folder(name)), branch.own_properties(name)
    branch.pyiceberg().create_table(name, rows.schema, location=folder, properties=properties).append(rows)


# -- results that Spark would have to make

BUILT = [
    ("bronze.customer_events", "build", 1_996_000, 4_000, {"read": 6.1, "check": 4.2, "write": 9.0}),
    ("bronze.payment_transactions", "build", 998_000, 2_000, {"read": 3.0, "check": 3.1, "write": 5.5}),
    ("silver.customer_sessions", "build", 288_289, 0, {"compute": 3.4, "write": 2.1}),
    ("gold.customer_summary", "build", 49_110, 0, {"compute": 2.2, "check": 0.3, "write": 0.9}),
]


def outcome(table: str, action: Any, added: int, rejected: int, spent: dict[str, float], **more: Any) -> TableOutcome:
    return TableOutcome(
        table=table,
        action=action,
        reason="first run",
        status="published",
        rows_added=added,
        rows_total=added,
        rows_quarantined=rejected,
        seconds=sum(spent.values()),
        spent=spent,
        **more,
    )


def result_of(check: str, status: str, rows: int, detail: str = "", table: str = "bronze.payment_transactions") -> Any:
    return CheckResult(
        table=table, check=check, kind="row", otherwise="fail", status=status, failed_rows=rows, detail=detail
    )


FIRST_RUN = RunResult(
    run=RUN,
    status="published",
    plan=Plan(steps=()),
    tables=tuple(outcome(*one) for one in BUILT),
    checks=(
        result_of("transaction_id is unique", "quarantined", 500),
        result_of("status is one of completed, failed, refunded", "quarantined", 1),
        result_of("every line can be read", "quarantined", 1_499),
        result_of("product_id is in bronze.inventory_snapshots", "warned", 1, "such as 77", "silver.payment_analysis"),
    ),
    seconds=71.2,
    phases={"plan": 0.02, "start": 11.3, "stage": 34.2, "audit": 2.4, "publish": 0.2},
    log="/lake/runs/log",
)
ONE_MORE_DAY = replace(
    FIRST_RUN,
    tables=(
        outcome("bronze.payment_transactions", "append", 11_000, 22, {"read": 0.2, "check": 0.9, "write": 0.3}),
        replace(
            outcome("gold.customer_summary", "update", 3_100, 0, {"compute": 1.4, "write": 0.4}, keys_touched=3_100),
            rows_removed=2_950,
        ),
        replace(outcome("gold.daily_metrics", "rebuild", 91, 0, {}), reason="its code changed", rows_removed=90),
        TableOutcome(table="gold.product_summary", action="update", reason="an input failed a check", status="skipped"),
    ),
    checks=(),
    replayed=(
        Replayed(
            table="bronze.payment_transactions", kind="replay", matched=12, waiting=2,
            reasons={"amount is positive": 2},
        ),
    ),
)  # fmt: skip
FAILED = replace(
    FIRST_RUN,
    status="failed",
    tables=tuple(replace(one, status="abandoned") for one in FIRST_RUN.tables[:2]),
    error="ICE-601 bronze.payment_transactions was not published: check `amount is positive` failed for 3 rows\n"
    "  row:   transaction_id=115, amount=-21.99, status=completed\n"
    "  where: bronze.payment_transactions, bronze.py:60, run 20260101T000000-aaaaaa\n"
    "  next:  inspect the rows that the run staged: ...",
)
VERDICTS = [
    Verdict(table="bronze.payment_transactions", status="not compared", detail="--deep reads its files again"),
    Verdict(table="gold.customer_summary", status="exact", rows=49_110),
    Verdict(
        table="gold.daily_metrics", status="differs", rows=90, too_many=1, missing=1,
        examples=(("too many", {"transaction_date": "2026-08-01", "total_revenue": "10.00"}),),
    ),
]  # fmt: skip
CHECKED = [
    result_of("amount is positive", "failed", 3),
    result_of("completed revenue", "failed", 1, "silver.payment_analysis: 10.00, gold.daily_metrics: 11.00"),
    result_of("transaction_id is unique", "passed", 0),
]


def month(number: int, rows: int, removed: int = 0, total: int = 0) -> TableVersion:
    return TableVersion(
        snapshot=10**17 + number, published_at=dt.datetime(2026, number + 1, 2, 6, tzinfo=dt.UTC),
        run=f"20260{number + 1}02T060000-{'abcdef'[number] * 6}", batch=f"2026-0{number}",
        operation="overwrite" if removed else "append", rows_added=rows, rows_removed=removed, rows_total=total,
        growth=rows - removed, bytes_total=1, files_total=1,
    )  # fmt: skip


MONTHS = [
    month(1, 2_964_624, total=38_310_226),
    month(2, 3_007_526, total=41_317_752),
    replace(month(3, 2_971_020, removed=2_964_624, total=41_324_148), batch="2026-01"),
]
LAST_YEAR = [f"2025-{number:02}" for number in range(1, 13)]
COMPARED = Comparison(
    table="raw.trips",
    before=MONTHS[0],
    after=MONTHS[2],
    rows_before=38_310_226,
    rows_after=41_324_148,
    rows_added=3_020_101,
    rows_removed=6_179,
    columns_added=("cbd_congestion_fee",),
    columns_removed=(),
    totals=(
        Total(column="passenger_count", before=51_122_004, after=55_190_218),
        Total(column="total_amount", before=Decimal("1092123456.78"), after=Decimal("1178301112.04")),
        Total(column="trip_distance", before=132_001_113.1234, after=132_001_113.1234),
        Total(column="cbd_congestion_fee", before=None, after=Decimal("2150112.75")),
    ),
    present=(
        Present(column="month", before=(*LAST_YEAR, "2026-01"), after=(*LAST_YEAR, "2026-01", "2026-02")),
        Present(column="service", before=("green", "yellow"), after=("green", "yellow")),
    ),
)  # fmt: skip

BATCHES = [
    BatchState(
        table="raw.trips",
        batches={"2024-10": ("taken", 2), "2024-12": ("changed", 2), "2026-01": ("taken", 0), "2026-02": ("new", 1)},
    ),
    BatchState(table="raw.zones", batches={"bronx": ("taken", 1), "queens": ("new", 1_204)}),
    BatchState(table="raw.weather", batches={}),
]
UUID = "3f0c6a52-9a43-4d1e-8c8e-5d1f0a7b2c44"
TRIPS_AT = "raw/trips/metadata"


def stored(content: str, number: int = 0, status: str = "added") -> TableFile:
    folder = f"{RUN}/month=2026-02" if content == "data" else RUN
    return TableFile(
        status=status, content=content, path=f"raw/trips/data/{folder}/00000-{number}-{UUID}-0-00001.parquet",
        format="parquet", rows=1_203_004, bytes=20_971_520, partition={"month": "2026-02"},
        bounds=() if content != "data" else tuple(
            Bound(column=column, lower=lower, upper=upper, nulls=nulls)
            for column, lower, upper, nulls in (
                ("pickup_at", dt.datetime(2026, 2, 1), dt.datetime(2026, 2, 28, 23, 59, 59), 0),
                ("fare", Decimal("-12.50"), Decimal("912.00"), 0),
                ("zone", "Allerton/Pelham ", "Yorkville West", 1_204),
                ("month", "2026-02", "2026-02", 0),
                ("service", "green", "yellow", 0),
            )
        ),
    )  # fmt: skip


def manifest(number: int, content: str, files: tuple[TableFile, ...], more: int = 0) -> Manifest:
    return Manifest(
        path=f"{TRIPS_AT}/{RUN}/{UUID}-m{number}.avro", bytes=7_568, content=content, added_by=10**18,
        added=FileCounts(files=len(files) + more, rows=3_007_526), existing=FileCounts(files=0, rows=0),
        deleted=FileCounts(files=0, rows=0),
        partitions=(PartitionRange(field="month", lower="2026-02", upper="2026-02", nulls=False),),
        files=files, more=more,
    )  # fmt: skip


def kept(version: TableVersion, *manifests: Manifest, current: bool = False) -> Snapshot:
    return Snapshot(
        id=version.snapshot, parent=version.snapshot - 1, current=current, published_at=version.published_at,
        run=version.run, batch=version.batch, operation=version.operation, rows=version.rows_total,
        manifest_list=ManifestList(
            path=f"{TRIPS_AT}/{RUN}/snap-{10**18 + version.snapshot}-1-{UUID}.avro", bytes=4_500, manifests=manifests
        ),
    )  # fmt: skip


APPENDED = manifest(0, "data", (stored("data"), stored("data", 1)), more=1_204)
TREE = TableTree(
    entry=CatalogEntry(
        catalog="catalog.db", database="raw", name="trips", metadata=f"{TRIPS_AT}/00002-{RUN}.metadata.json",
        previous=f"{TRIPS_AT}/00001-{RUN}.metadata.json",
    ),
    metadata=MetadataFile(
        path=f"{TRIPS_AT}/00002-{RUN}.metadata.json", bytes=9_500, format_version=2, schema=1, schemas=2,
        columns=tuple(
            TableColumn(id=number, name=name, type=kind)
            for number, (name, kind) in enumerate(
                [("pickup_at", "timestamptz"), ("fare", "decimal(10, 2)"), ("zone", "string"), ("month", "string")], 1
            )
        ),
        partitioned_by=("month",), properties=14, current_snapshot=MONTHS[2].snapshot, snapshots=9,
    ),
    snapshots=(
        kept(MONTHS[2], manifest(1, "deletes", (stored("position deletes"),)), APPENDED, current=True),
        kept(MONTHS[1], APPENDED),
    ),
    older=7,
)  # fmt: skip


def recorded(run: str, status: str, **more: Any) -> dict[str, Any]:
    started = dt.datetime(2026, 1, 1, 6, tzinfo=dt.UTC)
    finished = started + dt.timedelta(seconds=71)
    return {
        "run": run, "status": status, "started_at": started, "finished_at": finished, "selection": "",
        "version": "0.1.0", "tables_changed": 4, "rows_added": 3_331_399, "rows_quarantined": 6_000, "error": "",
        "batch": "", "label": "", "tables": [], "checks": [], **more,
    }  # fmt: skip


RUNS = [
    recorded(RUN, "published", batch="2026-01"),
    recorded(
        "20260101T060000-bbbbbb", "failed", label="airflow/shop/scheduled__2026-01-01T06:00:00+00:00",
        tables_changed=0, rows_added=0, rows_quarantined=0, error=FAILED.error,
        tables=[
            {
                "table": one.table, "action": one.action, "status": one.status, "rows_added": one.rows_added,
                "rows_removed": 0, "rows_total": one.rows_total, "rows_quarantined": one.rows_quarantined,
                "rows_dropped": 0, "seconds": one.seconds,
            }
            for one in FAILED.tables
        ],
        checks=[
            {"table": one.table, "check": one.check, "status": one.status, "failed_rows": one.failed_rows,
             "detail": one.detail}
            for one in FIRST_RUN.checks
        ],
    ),
]  # fmt: skip

SHOWN: dict[str, Callable[[Project], Callable[[], object]]] = {
    "run, the first": lambda shop: lambda: report.show(FIRST_RUN, _elsewhere(shop), ""),
    "run, one more day": lambda shop: lambda: report.show(ONE_MORE_DAY, _elsewhere(shop), ""),
    "run, failed": lambda shop: lambda: report.show(FAILED, _elsewhere(shop), ""),
    "verify": lambda _: lambda: verify._show(VERDICTS),
    "check": lambda _: lambda: check._show(CHECKED),
    "ls": lambda shop: call("ls", "-p", str(shop.root)),
    "ls, batches": lambda _: lambda: batches.show(BATCHES),
    "plan": lambda shop: call("plan", "-p", str(shop.root), "-s", "silver.*"),
    "plan, refused": lambda shop: call("plan", "-p", str(shop.root), "-s", "bronze.support_tickets"),
    "table show": lambda shop: call("table", "show", "silver.payment_analysis", "-p", str(shop.root)),
    "table history": lambda shop: call("table", "history", "payment_analysis", "-p", str(shop.root)),
    "table history, batches": lambda _: lambda: table._show_versions(MONTHS),
    "table compare": lambda _: lambda: compare._show(COMPARED),
    "table tree": lambda _: lambda: output.tree(tree._drawn(TREE)),
    "table tree, small": lambda shop: call("table", "tree", "gold.daily_metrics", "--files", "0", "-p", str(shop.root)),
    "quarantine ls": lambda shop: call("quarantine", "ls", "-p", str(shop.root)),
    "quarantine show": lambda shop: call("quarantine", "show", "payment_transactions", "-p", str(shop.root)),
    "sql": lambda shop: call("sql", "SELECT * FROM bronze.support_tickets LIMIT 2", "-p", str(shop.root)),
    "sql, long": lambda shop: call(
        "sql", 'SELECT "table", run, epoch, number, rows, published_at FROM ops.tables LIMIT 2', "-p", str(shop.root)
    ),
    "runs": lambda _: lambda: runs._list(RUNS),
    "runs, one": lambda _: lambda: runs._show(RUNS[1]),
    "error": lambda shop: call("ls", "gold.customer_sumary", "-p", str(shop.root)),
    "help": lambda _: call("--help"),
    **{f"help {name}": partial(lambda name, _: call(name, "--help"), name) for name in COMMANDS},
}


def _elsewhere(shop: Project) -> Project:
    return replace(shop, profile=replace(shop.profile, lake=Path("/lake")))


def scrubbed(screen: str, shop: Project) -> str:
    """What differs from run to run, replaced by as many signs."""
    for pattern in (
        r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00(?::00)?)?",
        r"\b\d{15,19}\b",
        r"\d+\.\d KB",
        r"\d+ B\b",
    ):
        screen = re.sub(pattern, lambda match: re.sub(r"\d", "9", match[0]), screen)
    screen = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", UUID, screen)
    screen = re.sub(r"/[\w/.-]*/shop", lambda match: "/shop", screen.replace(str(shop.root), "/shop"))
    return re.sub(r"99999999999\d*", "9", screen)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SHOWN)
def test_a_screen_is_what_was_looked_at(
    name: str, width: int, shop: Project, terminal: Callable[[int, Callable[[], object]], str]
) -> None:
    screen = scrubbed(terminal(width, SHOWN[name](shop)), shop)
    file = SCREENS / str(width) / f"{name.replace(', ', '-').replace(' ', '-')}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(screen)
    assert screen == file.read_text()


def tables_in(shop: Project) -> Iterator[str]:
    yield from (*shop.graph.order, f"bronze.payment_transactions{SUFFIX}")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name in SHOWN if not name.startswith(("help", "sql"))])
def test_nothing_is_wider_than_the_terminal_and_no_name_is_broken(
    name: str, width: int, shop: Project, terminal: Callable[[int, Callable[[], object]], str]
) -> None:
    screen = terminal(width, SHOWN[name](shop)).replace(str(shop.root), "/shop")
    words = [word for line in screen.splitlines() for word in line.split()]
    for name in tables_in(shop):
        for cut in range(len("bronze.") + 3, len(name)):
            assert name[:cut] not in words or any(other[:cut] == other for other in tables_in(shop)), name[:cut]
    # Paths, commands to be copied and errors are left to the terminal.
    rows = [line for line in screen.splitlines() if not re.match(r"error|metadata|  (next|where|row|icefield)", line)]
    assert [line for line in rows if len(line) > width] == []
