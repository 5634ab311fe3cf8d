"""What a lake remembers of the files it took."""

from __future__ import annotations

from pathlib import Path

from icefield.lake.duckdb_scan import taken_files
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.ops import at
from lakes import new_lake, open_branch, told


def note(lake: EmbeddedLake, run: str, size: int, status: str = "taken", arrival: int = 0) -> None:
    """What a run notes of one file; its size is the place in the order of notes as well."""
    branch = open_branch(lake, run)
    journal = told(run)
    journal.files.append(
        {
            "table": "a.one",
            "path": "landing/a.csv",
            "run": run,
            "status": status,
            "size": size,
            "modified_ns": size,
            "sha256": str(size),
            "rows": 1,
            "taken_at": at(arrival),
            "arrival": arrival,
            "sequence": size,
        }
    )
    branch.publish({}, journal)


def test_a_file_is_remembered_as_it_was_last_seen_whatever_the_clock_said(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    for run, size in (("20260801T100000-aaaaaa", 1), ("20260701T100000-bbbbbb", 2)):
        note(lake, run, size)
    (file,) = taken_files(lake, "a.one")
    assert (file.size, file.modified_ns, file.sha256) == (2, 2, "2")


def test_a_file_that_was_withdrawn_is_remembered_by_its_place_and_counts_from_when_it_came_back(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    note(lake, "20260801T100000-aaaaaa", 1, arrival=4)
    note(lake, "20260802T100000-bbbbbb", 2, "withdrawn", arrival=4)
    (file,) = taken_files(lake, "a.one")
    assert (file.withdrawn, file.order, file.sequence) == (True, 4, 2)
    note(lake, "20260803T100000-cccccc", 3, arrival=5)
    (file,) = taken_files(lake, "a.one")
    assert (file.withdrawn, file.order, file.sequence, file.taken_ms) == (False, 5, 3, 5)
