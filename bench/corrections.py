"""What a correction costs beside one more day: a corrected line, a deleted file, ten replayed rows; in a warm process.

    python bench/corrections.py [--rows 3800000] [--days 90] [--repeat 3] [--work DIR]

Afterwards every table is compared with one that is built from the files alone. The result goes to bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from contestants import PROJECT, generate
from measure import processes
from report import machine

from icefield import Lake
from icefield.engine.session.java import find_java
from icefield.graph.state import Repair
from icefield.project import open_project
from icefield.run.request import RunRequest
from icefield.run.runner import run_project
from run import RESULTS, say, temporary

FEED = "payment_transactions"


def prepared(work: Path, rows: int, days: int) -> Path:
    """The e-commerce project, whose files may be corrected and deleted, and its landed files."""
    place = work / "ecommerce"
    place.mkdir()
    for file in PROJECT.iterdir():
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            (place / file.name).write_text(
                text.replace("schema=schema)", 'schema=schema, changed="replace", deleted="withdraw")'),
                encoding="utf-8",
            )
    subprocess.run(generate(place / "landing", "--rows", str(rows), "--days", str(days)), check=True)
    return place


def correct_a_line(place: Path, number: int) -> RunRequest:
    """One amount of one file becomes another."""
    file = sorted((place / "landing" / FEED).glob("*.csv"))[10 + number]
    lines = file.read_bytes().split(b"\n")  # some of them are no text
    cells = lines[50].split(b",")
    cells[3] = f"{float(cells[3]) + 1:.2f}".encode()
    _replace(file, [*lines[:50], b",".join(cells), *lines[51:]])
    return RunRequest()


def delete_a_file(place: Path, number: int) -> RunRequest:
    """One of the files of a feed goes."""
    sorted((place / "landing" / FEED).glob("*.csv"))[20 + number].unlink()
    return RunRequest()


def replay_ten_rows(place: Path, number: int) -> RunRequest:
    """Ten payments that are not positive are repaired."""
    waiting = f"SELECT transaction_id FROM bronze.{FEED}__quarantine WHERE amount < 0 ORDER BY 1 LIMIT 10"
    ids = ", ".join(str(one) for (one,) in Lake(place).sql(waiting).rows())
    repair = Repair(
        table=f"bronze.{FEED}",
        kind="replay",
        where=f"transaction_id IN ({ids}) AND amount < 0",
        assign=(("amount", "abs(amount)"),),
    )
    return RunRequest(repairs=(repair,))


def one_more_day(place: Path, number: int) -> RunRequest:
    """A file of each feed arrives."""
    subprocess.run(generate(place / "landing", "--append", "--days", "1"), check=True, capture_output=True)
    return RunRequest()


WORK: dict[str, Callable[[Path, int], RunRequest]] = {
    "one more day": one_more_day,
    "one corrected line": correct_a_line,
    "one deleted file": delete_a_file,
    "ten replayed rows": replay_ten_rows,
}


def _replace(file: Path, lines: list[bytes]) -> None:
    hidden = file.with_name(f".{file.name}")
    hidden.write_bytes(b"\n".join(lines))
    hidden.rename(file)


def cpu_seconds() -> float:
    """Of this process and its children, such as Java; on a machine with other work it tells more than wall time."""
    table, own = processes(), {os.getpid()}
    while more := {pid for pid, it in table.items() if it.parent in own} - own:
        own |= more
    return sum(table[pid].cpu_seconds for pid in own)


def measured(place: Path, order: RunRequest) -> dict[str, Any]:
    """One run, and what it did."""
    used, begun = cpu_seconds(), time.perf_counter()
    result = run_project(open_project(place), order)
    seconds, used = round(time.perf_counter() - begun, 2), round(cpu_seconds() - used, 1)
    if not result.ok:
        sys.exit(result.error)
    moved = {one.table: [one.action, one.rows_added, one.rows_removed] for one in result.tables}
    files = [file for file in (place / "lake").rglob("*.parquet") if result.run in file.parts]
    written = sum(file.stat().st_size for file in files if "ops" not in file.parts)
    took = {one.table: round(one.seconds, 2) for one in result.tables}
    told = {"seconds": seconds, "cpu_seconds": used, "table_seconds": took}
    return {**told, "written_bytes": written, "tables": moved}


def main() -> int:
    """0 when every table equals one that is built from the files."""
    parser = argparse.ArgumentParser(description="Measure what corrections cost.")
    parser.add_argument("--rows", type=int, default=3_800_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--work", type=Path)
    asked = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in WORK}
    with temporary(asked.work) as work:
        place = prepared(work, asked.rows, asked.days)
        say(f"first build: {measured(place, RunRequest())['seconds']} s")
        for change in WORK.values():  # the first of each kind finds its code cold
            measured(place, change(place, -1))
        for number in range(asked.repeat):
            for name, change in WORK.items():
                found[name].append(measured(place, change(place, number)))
                say(f"{name}: {found[name][-1]}")
        verdicts = {one.table: one.status for one in Lake(place).verify(deep=True)}
    medians = {
        of: {name: round(statistics.median(one[of] for one in runs), 2) for name, runs in found.items()}
        for of in ("seconds", "cpu_seconds")
    }
    results = {
        "date": date.today().isoformat(),
        "machine": machine(find_java().executable),
        "rows": asked.rows,
        "medians": medians,
        "times_one_more_day": {
            of: {name: round(value / told["one more day"], 2) for name, value in told.items()}
            for of, told in medians.items()
        },
        "verify_deep": verdicts,
        "runs": found,
    }
    text = json.dumps(results, indent=1)
    name = f"{results['date']}-corrections-{asked.rows}-{results['machine']['commit'][:7]}.json"
    (RESULTS / name).write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0 if set(verdicts.values()) == {"exact"} else 1


if __name__ == "__main__":
    sys.exit(main())
