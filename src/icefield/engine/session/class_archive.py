"""The class archive: the classes of an earlier run, mapped into the JVM rather than loaded and verified again.

HotSpot calls it class data sharing. The JVM writes the archive as it exits, after Python has gone, so it is written
under another name and put in place by the next start. Who writes is told by a lock that the JVM inherits: when the
lock is free, nobody writes. HotSpot writes the header last and ignores an archive that does not fit
(`-Xshare:auto`), so neither a half-written nor a stale one can break a start.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from icefield.engine.session.java import Java

KEPT = 3
# A session that was started and hardly used makes a small archive. A larger one is worth recording, a few times over.
RICH_BYTES = 160_000_000
RECORDINGS = 8
DUMP_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveUse:
    """Flags for the JVM, and the descriptor of the lock it has to inherit when it records."""

    flags: tuple[str, ...] = ()
    lock: int | None = None


def use_archive(java: Java, class_path: Sequence[Path], folder: Path) -> ArchiveUse:
    """Use the archive for this Java and these jars; record one if there is none; do without if neither can be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        key = _key(java, class_path)
        base = _base_archive(java, folder)
        lock = _try_lock(folder / f"{key}.lock")
        ready, growing = folder / f"{key}.jsa", folder / f"{key}.new"
        if lock is not None:
            _settle(ready, growing)
            if _worth_recording(ready, lock):
                return ArchiveUse(flags=_recording(base, growing), lock=lock)
            os.close(lock)
        if not ready.exists():
            return ArchiveUse()
        os.utime(ready)
    except OSError:  # a read-only or full cache costs speed, never a start
        return ArchiveUse()
    archives = os.pathsep.join(str(path) for path in (base, ready) if path)
    return ArchiveUse(flags=("-Xshare:auto", "-Xlog:cds*=off", f"-XX:SharedArchiveFile={archives}"))


def forget_archives(folder: Path) -> None:
    """Remove every archive: after a JVM that used one did not start."""
    for path in folder.glob("*.jsa"):
        path.unlink(missing_ok=True)


def _recording(base: Path | None, growing: Path) -> tuple[str, ...]:
    on_top_of = (f"-XX:SharedArchiveFile={base}",) if base else ()
    return ("-Xshare:auto", "-Xlog:cds*=off", *on_top_of, f"-XX:ArchiveClassesAtExit={growing}")


def _settle(ready: Path, growing: Path) -> None:
    """Put in place what an earlier JVM finished writing, when it is better than what there is."""
    if not growing.exists():
        return
    with growing.open("rb") as file:
        complete = any(file.read(4))  # the header comes last; until then its place holds zeros
    if complete and (not ready.exists() or growing.stat().st_size > ready.stat().st_size):
        growing.replace(ready)
        by_age = sorted(ready.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in [path for path in by_age if not path.name.startswith("base-") and path != ready][KEPT - 1 :]:
            old.unlink(missing_ok=True)
    growing.unlink(missing_ok=True)


def _worth_recording(ready: Path, lock: int) -> bool:
    recorded = int(os.pread(lock, 8, 0) or b"0") if ready.exists() else 0
    if ready.exists() and (ready.stat().st_size >= RICH_BYTES or recorded >= RECORDINGS):
        return False
    os.pwrite(lock, str(recorded + 1).encode(), 0)
    return True


def _base_archive(java: Java, folder: Path) -> Path | None:
    """A trimmed runtime comes without the archive of Java's own classes that ours builds on: made once, in a second."""
    if (java.home / "lib/server/classes.jsa").exists():
        return None
    base = folder / f"base-{_digest(_facts(java))}.jsa"
    if not base.exists():
        partial = base.with_suffix(f".{os.getpid()}.part")
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run(
                [java.executable, "-Xshare:dump", f"-XX:SharedArchiveFile={partial}"],
                check=True,
                timeout=DUMP_SECONDS,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            partial.replace(base)
        partial.unlink(missing_ok=True)
    return base


def _try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _key(java: Java, class_path: Sequence[Path]) -> str:
    # HotSpot itself compares path, size and time of each jar, so these are what an archive is good for.
    jars = (f"{path} {state.st_size} {state.st_mtime_ns}" for path in class_path for state in (path.stat(),))
    return _digest([*_facts(java), *jars])


def _facts(java: Java) -> Iterator[str]:
    release = java.home / "release"
    yield str(java.home)
    yield release.read_text(encoding="utf-8", errors="replace") if release.exists() else str(java.version)


def _digest(facts: Iterator[str] | Sequence[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
