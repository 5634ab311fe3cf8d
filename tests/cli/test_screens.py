"""Every command as a person sees it, on terminals of 80 and of 120 columns; `UPDATE_SCREENS=1` writes the files anew.

Nothing is cut, and no name is broken: a table leaves columns out, or stands below another, where there is no room.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from icefield.cli import check, report, verify
from icefield.cli.app import COMMANDS, build_app
from icefield.cli.quarantine import SUFFIX
from icefield.engine.audit import CheckResult
from icefield.engine.verify import Verdict
from icefield.graph.state import TableState, Version
from icefield.lake import metadata as meta
from icefield.lake.ops import at, open_catalog
from icefield.plan import Plan
from icefield.project import Project, open_project
from icefield.run.events import Replayed, RunResult, TableOutcome, Traffic
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
    properties = {name: meta.state_properties(state) for name, state in states.items()}
    branch.publish({**properties, f"bronze.payment_transactions{SUFFIX}": {}}, told(RUN))
    return project


def states_of(branch: Any, name: str) -> TableState:
    return meta.table_state(name, branch.staged_metadata(name))


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
    open_catalog(branch).create_table(name, rows.schema, location=folder, properties=properties).append(rows)


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
    traffic=Traffic(read=139_100_000, written=62_900_000, stored=0),
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

SHOWN: dict[str, Callable[[Project], Callable[[], object]]] = {
    "run, the first": lambda shop: lambda: report.show(FIRST_RUN, _elsewhere(shop), ""),
    "run, one more day": lambda shop: lambda: report.show(ONE_MORE_DAY, _elsewhere(shop), ""),
    "run, failed": lambda shop: lambda: report.show(FAILED, _elsewhere(shop), ""),
    "verify": lambda _: lambda: verify._show(VERDICTS),
    "check": lambda _: lambda: check._show(CHECKED),
    "ls": lambda shop: call("ls", "-p", str(shop.root)),
    "plan": lambda shop: call("plan", "-p", str(shop.root), "-s", "silver.*"),
    "plan, refused": lambda shop: call("plan", "-p", str(shop.root), "-s", "bronze.support_tickets"),
    "table show": lambda shop: call("table", "show", "silver.payment_analysis", "-p", str(shop.root)),
    "table history": lambda shop: call("table", "history", "payment_analysis", "-p", str(shop.root)),
    "quarantine ls": lambda shop: call("quarantine", "ls", "-p", str(shop.root)),
    "quarantine show": lambda shop: call("quarantine", "show", "payment_transactions", "-p", str(shop.root)),
    "sql": lambda shop: call("sql", "SELECT * FROM bronze.support_tickets LIMIT 2", "-p", str(shop.root)),
    "sql, long": lambda shop: call(
        "sql", 'SELECT "table", run, epoch, number, rows, published_at FROM ops.tables LIMIT 2', "-p", str(shop.root)
    ),
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
    for table in tables_in(shop):
        for cut in range(len("bronze.") + 3, len(table)):
            assert table[:cut] not in words or any(other[:cut] == other for other in tables_in(shop)), table[:cut]
    # Paths, commands to be copied and errors are left to the terminal.
    rows = [line for line in screen.splitlines() if not re.match(r"error|metadata|  (next|where|row|icefield)", line)]
    assert [line for line in rows if len(line) > width] == []
