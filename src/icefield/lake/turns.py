"""Runs that are started by the dozen, by an orchestrator's backfill or sensor, work on a lake one after the other.

Two runs at once are safe, and the one that publishes last begins again; a dozen at once would mostly begin again, each
with a JVM of its own. A turn is an OS lock on a file of the lake, which ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from icefield.lake.embedded import EmbeddedLake

FILE = "turn.lock"
_LOOK_SECONDS = 0.2


@contextmanager
def turn(lake: EmbeddedLake, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Waits for its turn, and has it while the block lasts; `waiting` is told once where there is somebody before."""
    lake.create()
    with (lake.root / FILE).open("w") as handle:
        told = False
        while not _taken(handle.fileno()):
            if not told:
                waiting()
                told = True
            time.sleep(_LOOK_SECONDS)  # in short spells: a signal is heard at once
        yield  # closing the file gives the turn back


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
