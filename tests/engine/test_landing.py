"""What is found in a landing folder, compared with what was taken in before; no Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from icefield.declare import Files, files
from icefield.engine.intake.files.landing import files_news
from icefield.errors import FileUnreadable
from icefield.graph.news import FilesCursor, FilesNews, TakenFile


def source(deleted: Any = "withdraw", path: str = "landing/*/*.csv") -> Files:
    found = files(path, schema="x BIGINT", deleted=deleted)
    assert isinstance(found, Files)
    return found


def land(root: Path, *names: str) -> None:
    for name in names:
        path = root / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n1\n")


def taken(root: Path, found: FilesNews) -> list[TakenFile]:
    """What the lake remembers once everything was taken in."""
    return [
        TakenFile(path=f.path, size=f.size, modified_ns=f.modified_ns, sha256="", run="", taken_ms=0, order=order)
        for order, f in enumerate(found.landed)
    ]


def paths(some: Any) -> list[str]:
    return [file.path.removeprefix("landing/") for file in some]


def test_a_file_that_is_not_there_is_missing_or_gone_as_the_author_said(tmp_path: Path) -> None:
    land(tmp_path, "a/1.csv", "b/2.csv")
    first = files_news(tmp_path, source(), None, list)
    known, noted = first.cursor, taken(tmp_path, first)
    (tmp_path / "landing/b/2.csv").unlink()
    (tmp_path / "landing/b").rmdir()
    withdrawing = files_news(tmp_path, source(), known, lambda: noted)
    assert (paths(withdrawing.gone), paths(withdrawing.missing)) == (["b/2.csv"], [])
    ignoring = files_news(tmp_path, source("ignore"), known, lambda: noted)
    assert (paths(ignoring.gone), paths(ignoring.missing)) == ([], ["b/2.csv"])


def test_rows_that_were_kept_are_still_owed_when_the_author_says_withdraw_later(tmp_path: Path) -> None:
    land(tmp_path, "a/1.csv", "b/2.csv")
    noted = taken(tmp_path, files_news(tmp_path, source("ignore"), None, list))
    (tmp_path / "landing/b/2.csv").unlink()
    changed = FilesCursor(count=-1, digest="")
    kept = files_news(tmp_path, source("ignore"), changed, lambda: noted).cursor

    def never() -> list[TakenFile]:
        raise AssertionError("what the lake remembers is read only where something is different")

    assert files_news(tmp_path, source("ignore"), kept, never).missing == ()
    owed = files_news(tmp_path, source(), kept, lambda: noted)
    assert paths(owed.gone) == ["b/2.csv"]
    assert files_news(tmp_path, source(), owed.cursor, never).gone == ()


def test_a_file_that_comes_back_is_new_and_no_place_is_given_twice(tmp_path: Path) -> None:
    land(tmp_path, "a/1.csv", "a/2.csv")
    first = files_news(tmp_path, source(), None, list)
    one, two = taken(tmp_path, first)
    gone = TakenFile(**{**{f: getattr(two, f) for f in two.__slots__}, "withdrawn": True, "sequence": 7})
    back = files_news(tmp_path, source(), FilesCursor(count=1, digest=""), lambda: [one, gone])
    assert (paths(back.new), paths(back.gone), back.next_order, back.next_sequence) == (["a/2.csv"], [], 2, 8)


def test_a_folder_that_cannot_be_looked_into_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path, "a/1.csv", "b/2.csv")
    first = files_news(tmp_path, source(), None, list)
    known, noted = first.cursor, taken(tmp_path, first)
    look = os.scandir

    def denied(path: Any = ".") -> Any:
        if Path(path) == tmp_path / "landing/b":
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(FileUnreadable, match="landing/b"):
        files_news(tmp_path, source(), known, lambda: noted)
    assert paths(files_news(tmp_path, source("ignore"), known, lambda: noted).missing) == ["b/2.csv"]
