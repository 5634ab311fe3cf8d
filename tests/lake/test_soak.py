"""Eight processes commit to one SQLite catalog as fast as they can: no commit is lost, and none is seen half."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from icefield.lake import metadata as meta
from lakes import new_lake
from projects import Process, ask, rows_of

LAKES = str(Path(__file__).parents[1] / "lakes.py")
SECONDS = float(os.environ.get("ICEFIELD_SOAK_SECONDS", "10"))
WRITERS = 8


@pytest.mark.soak
def test_no_commit_of_eight_processes_is_lost(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    names = [f"w{number}" for number in range(WRITERS)]
    writers = {name: Process.start_script([LAKES, "soak", str(lake.root), name], {}) for name in names}
    polls = 0
    try:
        for writer in writers.values():
            assert writer.popen.stdout.readline() == "ready\n"
        for writer in writers.values():
            writer.tell("go\n")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            _require_whole(lake.pointers())
            polls += 1
        for writer in writers.values():
            writer.tell("stop\n")
        counts = {name: int(writer.end().output.split()[-1]) for name, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.kill()
    print(f"{sum(counts.values())} commits by {WRITERS} processes in {SECONDS} s, {polls} polls: {counts}")
    assert min(counts.values()) > 0, "every process gets its turn"
    pointers = lake.pointers()
    told = Counter(run for (run,) in ask(pointers, "SELECT run FROM ops.runs"))
    assert told == Counter(f"{name}-{number}" for name in names for number in range(counts[name]))
    for name in names:
        assert rows_of(pointers[f"soak.{name}"]) == Counter((number,) for number in range(counts[name]))
    assert lake.catalog.branches() == {}


def _require_whole(pointers: dict[str, str]) -> None:
    """Each table's newest run is in history, as seen in one version of the lake."""
    if "ops.runs" not in pointers:
        return
    published = {entry["summary"]["icefield.run"] for entry in meta.load(pointers["ops.runs"])["snapshots"]}
    for table, location in pointers.items():
        if table != "ops.runs":
            assert meta.load(location)["properties"]["icefield.run"] in published, table
