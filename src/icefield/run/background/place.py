"""Where the engine of a project and profile is found: a socket in a folder that only its user can enter."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.engine.session.jars import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What the system takes as the address of a socket: 104 bytes on macOS, 108 on Linux, the last one 0.
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one engine; there need not be one."""

    socket: Path

    @property
    def log(self) -> Path:
        """What the engine said that nobody was there to hear."""
        return self.socket.with_suffix(".log")

    @contextmanager
    def reserved(self) -> Iterator[bool]:
        """Holds the right to start, replace or remove the engine; False where another process has it."""
        handle = os.open(self.socket.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(handle)


def place_of(root: Path, profile: str) -> Place | None:
    """The place of a project's engine; None where no folder is safe from other users."""
    name = hashlib.sha256("\0".join((platform.node(), str(root), profile)).encode()).hexdigest()[:16] + ".sock"
    folder = cache_folder() / "engines"
    if len(os.fsencode(folder / name)) > _LONGEST:
        folder = Path(tempfile.gettempdir(), f"icefield-{os.getuid()}")
    return Place(folder / name) if _is_ours_alone(folder) else None


def _is_ours_alone(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
