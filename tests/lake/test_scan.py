"""What a lake remembers of the files it took."""

from __future__ import annotations

from pathlib import Path

from icefield.lake.ops import at
from icefield.lake.scan import taken_files
from lakes import new_lake, open_branch, told


def test_a_file_is_remembered_as_it_was_last_seen_whatever_the_clock_said(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    for run, size in (("20260801T100000-aaaaaa", 1), ("20260701T100000-bbbbbb", 2)):
        branch = open_branch(lake, run)
        journal = told(run)
        journal.files.append(
            {
                "table": "a.one",
                "path": "landing/a.csv",
                "run": run,
                "status": "taken",
                "size": size,
                "modified_ns": size,
                "sha256": str(size),
                "rows": 1,
                "taken_at": at(0),
                "arrival": 0,
                "sequence": size,
            }
        )
        branch.publish({}, journal)
    (file,) = taken_files(lake, "a.one")
    assert (file.size, file.modified_ns, file.sha256) == (2, 2, "2")
