"""Fetches the few jars that pyspark does not carry: pinned by SHA-256, cached, from a mirror or offline if asked.

Settings, all by environment: `ICEFIELD_CACHE` (the cache folder), `ICEFIELD_MAVEN` (a Maven repository or a folder
of jars to take instead of Spark's own default repository), `ICEFIELD_OFFLINE=1` (use what is cached, fetch nothing).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import importlib.util
import json
import os
import platform
import re
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from icefield.errors import IcefieldError, JarError

CHUNK = 1 << 20
ATTEMPTS = 3
TIMEOUT_SECONDS = 30
USER_AGENT = "icefield"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One jar, pinned to the byte; or another file of a Maven repository, by its classifier and extension."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """The name it has in any Maven repository and in the cache."""
        return "-".join(filter(None, [self.artifact, self.version, self.classifier])) + f".{self.extension}"

    @property
    def repository_path(self) -> str:
        """Where it is under the root of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


PINNED = (
    Jar(
        group="org.apache.iceberg",
        artifact="iceberg-spark-runtime-4.1_2.13",
        version="1.12.0",
        sha256="3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar(
        group="org.xerial",
        artifact="sqlite-jdbc",
        version="3.53.4.0",
        sha256="bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb",
    ),
)

#: Fetched where a project reads from Postgres.
POSTGRES = Jar(
    group="org.postgresql",
    artifact="postgresql",
    version="42.7.7",
    sha256="157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460",
)

Progress = Callable[[Jar, int, int], None]


def ensure_jars(
    pins: Sequence[Jar] = PINNED,
    *,
    environment: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[Path, ...]:
    """The cached jars, each proven to be the pinned one; fetched first where they are missing or damaged."""
    settings = os.environ if environment is None else environment
    folder = cache_folder(settings) / "jars"
    paths = tuple(folder / jar.file_name for jar in pins)
    for jar, path in zip(pins, paths, strict=True):
        if not _is_pinned(jar, path):
            _fetch(jar, path, settings, progress or _silent, pause)
    return paths


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """`$ICEFIELD_CACHE`, else `icefield` in the platform's cache folder."""
    settings = os.environ if environment is None else environment
    if chosen := settings.get("ICEFIELD_CACHE"):
        return Path(chosen).expanduser().absolute()
    if xdg := settings.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "icefield"
    home = Path(settings["HOME"]) if settings.get("HOME") else Path.home()
    return home / ("Library/Caches" if platform.system() == "Darwin" else ".cache") / "icefield"


@functools.cache
def default_repository() -> str:
    """Spark's own default: the Maven root that its dependency resolver, Ivy, has built in."""
    resolver = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
    for ivy in sorted((spark_folder() / "jars").glob("ivy-*.jar")):
        with zipfile.ZipFile(ivy) as archive:
            root = re.search(rb"https://[\w./-]+/maven2/", archive.read(resolver))
        if root:
            return root.group().decode("ascii")
    raise JarError(
        "Spark's default jar repository could not be read from the Ivy jar in pyspark.",
        where=str(spark_folder() / "jars"),
        remedy="reinstall pyspark, or set ICEFIELD_MAVEN to a Maven repository",
    )


def spark_folder() -> Path:
    """Where pyspark is installed, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarError("pyspark is not installed.", remedy="pip install icefield")
    return Path(spec.origin).parent


def _is_pinned(jar: Jar, path: Path) -> bool:
    """Trusts a stamp of size and time at each start (microseconds); reads all bytes only when they differ."""
    try:
        state = path.stat()
    except OSError:
        return False
    seen = {"sha256": jar.sha256, "size": state.st_size, "mtime_ns": state.st_mtime_ns}
    with contextlib.suppress(OSError, ValueError):
        if json.loads(_stamp(path).read_text(encoding="utf-8")) == seen:
            return True
    if _digest(path) != jar.sha256:
        return False
    # A cache that cannot be written is still a cache: it is only read in full each time.
    with contextlib.suppress(OSError):
        _stamp(path).write_text(json.dumps(seen), encoding="utf-8")
    return True


def _fetch(
    jar: Jar, path: Path, settings: Mapping[str, str], progress: Progress, pause: Callable[[float], None]
) -> None:
    state = f"The cached {path} is damaged (its SHA-256 does not match the pinned one)" if path.exists() else ""
    if settings.get("ICEFIELD_OFFLINE", "").lower() in {"1", "true", "yes"}:
        raise JarError(
            f"{state or f'{jar.file_name} is not in the cache'}, and ICEFIELD_OFFLINE prevents downloading it.",
            where=str(path),
            remedy=f"unset ICEFIELD_OFFLINE, or put a valid {jar.file_name} there",
        )
    mirror = settings.get("ICEFIELD_MAVEN") or default_repository()
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            pause(2.0 ** (attempt - 1))
        try:
            _copy(jar, path, mirror, progress)
        except _Unavailable as error:
            problem = str(error)
            if error.final:
                break
        else:
            return
    raise JarError(
        f"{state + '; it' if state else jar.file_name} could not be downloaded: {problem}.",
        where=f"{mirror} -> {path}",
        remedy="check the network or the proxy settings (HTTPS_PROXY, SSL_CERT_FILE), set ICEFIELD_MAVEN to a mirror "
        f"or a folder of jars, or copy {jar.file_name} there yourself",
    )


class _Unavailable(Exception):
    """One attempt failed; `final` when another one cannot help."""

    def __init__(self, problem: str, *, final: bool = False) -> None:
        super().__init__(problem)
        self.final = final


def _copy(jar: Jar, path: Path, mirror: str, progress: Progress) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _open(jar, mirror) as (source, total), partial.open("wb") as target:
            digest = hashlib.sha256()
            done = 0
            while chunk := source.read(CHUNK):
                target.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                progress(jar, done, total)
        if digest.hexdigest() != jar.sha256:
            raise _Unavailable(
                f"the file is not the pinned jar (SHA-256 {digest.hexdigest()[:12]}..., expected {jar.sha256[:12]}...)"
            )
        # A stamp left by the file that stood here before must not vouch for this one.
        _stamp(path).unlink(missing_ok=True)
        partial.replace(path)
    except (OSError, http.client.HTTPException) as error:
        raise _Unavailable(_words(error), final=_is_final(error)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    if not _is_pinned(jar, path):
        raise _Unavailable("the file on disk differs from what was written")


@contextlib.contextmanager
def _open(jar: Jar, mirror: str) -> Iterator[tuple[BinaryIO, int]]:
    if "://" in mirror and not mirror.startswith("file://"):
        request = urllib.request.Request(
            f"{mirror.rstrip('/')}/{jar.repository_path}", headers={"User-Agent": USER_AGENT}
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            yield answer, int(answer.headers.get("Content-Length") or 0)
        return
    root = Path(mirror.removeprefix("file://")).expanduser()
    nested = root / jar.repository_path
    found = nested if nested.is_file() else root / jar.file_name
    with found.open("rb") as source:
        yield source, found.stat().st_size


def _words(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    return str(reason) or type(error).__name__


def _is_final(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code in {401, 403, 404, 410}
    return isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError)


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _stamp(path: Path) -> Path:
    return path.with_name(f"{path.name}.stamp")


def _silent(jar: Jar, done: int, total: int) -> None:
    """No one is watching."""


def _print_progress(jar: Jar, done: int, total: int) -> None:
    step = max(total // 4, CHUNK)
    if done == total or done % step < CHUNK:
        sys.stderr.write(f"  {jar.file_name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB\n")


def main(arguments: Sequence[str] = ()) -> int:
    """`python -m icefield.engine.session.jars [postgres]`: fill the cache, or say what is in the way."""
    wanted = (*PINNED, POSTGRES) if "postgres" in arguments else PINNED
    try:
        for path in ensure_jars(wanted, progress=_print_progress):
            sys.stdout.write(f"{path}\n")
    except IcefieldError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
