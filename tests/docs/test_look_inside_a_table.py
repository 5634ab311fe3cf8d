"""The screens of docs/how-to/look-inside-a-table.md are what its commands print, on a terminal of 100 columns.

`UPDATE_SCREENS=1` writes them anew.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import batched
from icefield.cli.app import build_app

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "look-inside-a-table.md"
BLOCK = re.compile(r"^```\n\$ icefield ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What differs each time: snapshots, files and their sizes.
DIFFERENT = (
    r"\b\d{15,19}\b",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    r"\d+\.\d KB",
)


class Terminal(io.StringIO):
    """Takes what is printed, as a terminal does."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    root = batched.taxi(tmp_path_factory.mktemp("page") / "taxi").root

    def command(line: str) -> str:
        screen = Terminal()
        monkeypatch.chdir(root)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr(sys, "stdout", screen)
        code = build_app(line.split())(line.split(), prog_name="icefield", standalone_mode=False)
        monkeypatch.undo()
        assert code == 0, line
        plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
        return "".join(f"{text.rstrip()}\n" for text in plain.splitlines())

    return command


def alike(screen: str) -> str:
    """A screen without what differs each time, and without the room that it takes."""
    for pattern in DIFFERENT:
        screen = re.sub(pattern, "…", screen)
    return re.sub(r" +", " ", screen)


def test_the_page_shows_what_its_commands_print(shown: Callable[[str], str]) -> None:
    found = BLOCK.findall(PAGE.read_text())
    assert [line.split()[:2] for line, _ in found] == [
        ["ls", "--batches"],
        ["table", "history"],
        ["table", "compare"],
        ["table", "tree"],
    ]
    printed = {line: shown(line) for line, _ in found}
    if os.environ.get("UPDATE_SCREENS"):
        PAGE.write_text(
            BLOCK.sub(lambda block: f"```\n$ icefield {block[1]}\n{printed[block[1]]}```", PAGE.read_text())
        )
        found = BLOCK.findall(PAGE.read_text())
    for line, screen in found:
        assert alike(printed[line]) == alike(screen), line
