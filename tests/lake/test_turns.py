"""Runs of an orchestrator take turns, and a turn ends with its process, however that ends."""

from __future__ import annotations

import threading
from pathlib import Path

from icefield.lake.embedded import EmbeddedLake
from icefield.lake.turns import turn
from projects import Process, until

HOLD = """
import sys
from pathlib import Path
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.turns import turn
with turn(EmbeddedLake(Path(sys.argv[1]))):
    Path(sys.argv[2]).touch()
    sys.stdin.read()
"""


def test_the_next_one_waits_and_is_told_once(tmp_path: Path) -> None:
    lake, happened = EmbeddedLake(tmp_path), []

    def second() -> None:
        with turn(lake, lambda: happened.append("waits")):
            happened.append("second")

    with turn(lake, lambda: happened.append("never")):
        other = threading.Thread(target=second)
        other.start()
        until(lambda: happened == ["waits"])
        other.join(0.5)
        happened.append("first")
    other.join()
    assert happened == ["waits", "first", "second"]


def test_a_turn_ends_with_its_process(tmp_path: Path) -> None:
    holder = Process.start_script(["-c", HOLD, str(tmp_path / "lake"), str(tmp_path / "has it")], {})
    until((tmp_path / "has it").exists)
    told: list[str] = []
    waiting = threading.Event()

    def taken() -> None:
        with turn(EmbeddedLake(tmp_path / "lake"), waiting.set):
            told.append("taken")

    other = threading.Thread(target=taken)
    other.start()
    assert waiting.wait(60)
    assert told == []
    holder.kill()
    other.join(60)
    assert told == ["taken"]
