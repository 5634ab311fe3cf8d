"""Download months of trip records from the TLC's public address: only what is missing, or has changed there since.

    python fetch.py --from 2023-01 --to 2023-06                     # both services, into landing beside this script
    python fetch.py --from 2023-01 --service yellow --landing /data/taxi

A file has its name only once it is whole, so a run may start at any time. A download that broke off is resumed, also by
a later call. `.fetched.json` in the landing folder records what was fetched.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import http.client
import json
import os
import random
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

BASE_URL = "https://d37ci6vzurychx.cloudfront.net"
SERVICES = ("yellow", "green")
ZONES = "taxi_zone_lookup.csv"
#: Yellow months before have coordinates instead of zones.
EARLIEST = (2011, 1)
ATTEMPTS = 5  # in a row, without a byte of progress
LONGEST_PAUSE = 60.0
TIMEOUT = 30.0
PIECE = 1 << 18
NOT_PUBLISHED = (403, 404, 410)
PASSING = (408, 425, 429)
HEADERS = {"User-Agent": "icefield-taxi-fetch", "Accept-Encoding": "identity"}


class WrongArgumentsError(ValueError):
    """What was asked for cannot be done; the message says what to ask for instead."""


class FetchError(Exception):
    """A file could not be fetched; where `final`, no other file could be either."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class PassingError(Exception):
    """Trouble that may be gone the next time; `pause` is how long the server asks to wait."""

    def __init__(self, message: str, *, pause: float | None = None) -> None:
        super().__init__(message)
        self.pause = pause


@dataclass(frozen=True, slots=True)
class Remote:
    """A file to fetch."""

    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a server says of one version of a file; None where it does not say."""

    etag: str | None = None
    modified: str | None = None
    size: int | None = None

    @classmethod
    def of(cls, headers: Message) -> Version:
        """The version that an answer is about: of a part, the size of the whole."""
        whole = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length", "")
        return cls(
            etag=headers.get("ETag"),
            modified=headers.get("Last-Modified"),
            size=int(whole) if whole.isdecimal() else None,
        )

    @property
    def validator(self) -> str | None:
        """What a range can be asked for with; a weak tag does not promise equal bytes."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified

    @property
    def md5(self) -> str | None:
        """The checksum, where the tag is one: object stores tag what was uploaded in one piece by its MD5."""
        tag = (self.etag or "").strip('"')
        return tag if len(tag) == 32 and all(digit in "0123456789abcdef" for digit in tag) else None

    def is_of(self, other: Version) -> bool:
        """Whether both are the same version, as far as the server tells."""
        return self.size == other.size and (
            self.etag == other.etag if self.etag and other.etag else self.modified == other.modified
        )


@dataclass(slots=True)
class Record:
    """What was fetched into a folder, and which downloads are unfinished."""

    path: Path
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, landing: Path) -> Record:
        """The folder's record; one that cannot be read is begun anew, which costs a look at every file."""
        path = landing / ".fetched.json"
        try:
            data = json.loads(path.read_bytes())
            return cls(path, dict(data["files"]), dict(data["parts"]))
        except (OSError, ValueError, TypeError, KeyError):
            return cls(path)

    def save(self) -> None:
        """Replace the record on disk."""
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.write_text(json.dumps({"files": self.files, "parts": self.parts}, indent=1) + "\n")
        partial.replace(self.path)


class Progress:
    """How far a file is, on a terminal; elsewhere nothing until it is there."""

    def __init__(self, name: str) -> None:
        self.name, self.since, self.shown = name, time.monotonic(), 0.0
        self.begun: int | None = None

    def at(self, have: int, size: int | None) -> None:
        """Show the bytes that are there, ten times a second at most."""
        now = time.monotonic()
        self.begun = have if self.begun is None else self.begun
        if not sys.stderr.isatty() or now - self.shown < 0.1:
            return
        self.shown = now
        share = f" of {_bytes(size)}, {have * 100 // size} %" if size else ""
        speed = _bytes((have - self.begun) / max(now - self.since, 0.001))
        print(f"\r\033[K{self.name}: {_bytes(have)}{share}, {speed}/s", end="", file=sys.stderr, flush=True)

    def done(self, what: str) -> None:
        """The last word on this file."""
        clear = "\r\033[K" if sys.stderr.isatty() else ""
        print(f"{clear}{self.name}: {what}", file=sys.stderr, flush=True)


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


class Fetcher:
    """Brings files into a landing folder, one after the other."""

    def __init__(self, landing: Path, *, wait: Callable[[float], None] = time.sleep) -> None:
        self.landing, self.wait, self.record = landing, wait, Record.of(landing)

    def bring(self, remote: Remote) -> int | None:
        """Fetch the file unless it is there already, and return its size; None: it was up to date."""
        failed = 0
        progress = Progress(remote.name)
        while True:
            before = self._part_size(remote)
            try:
                size = self._attempt(remote, progress)
            except PassingError as trouble:
                failed = 1 if self._part_size(remote) > before else failed + 1
                if failed >= ATTEMPTS:
                    raise FetchError(
                        f"{remote.url} could not be fetched: {trouble}. {ATTEMPTS} attempts failed; run the same "
                        "command again later, it resumes where this one stopped.",
                        final=True,
                    ) from trouble
                pause = min(LONGEST_PAUSE, trouble.pause or 2 ** (failed - 1) * random.uniform(0.5, 1.0))
                progress.done(f"{trouble}; trying again in {pause:.0f} s")
                self.wait(pause)
            else:
                progress.done("up to date" if size is None else f"{_bytes(size)} fetched")
                return size

    def _attempt(self, remote: Remote, progress: Progress) -> int | None:
        """One request: nothing new, a whole file, or the rest of one."""
        held = self._held(remote)
        with self._asked(remote, held) as answer:
            if answer is None:
                self._forget_part(remote)
                return None
            version = Version.of(answer.headers)
            if self._is_there(remote, held, version):
                self._keep(remote, version)
                return None
            resumed = answer.status == 206
            if resumed and not self._continues(remote, answer, version):
                self._forget_part(remote)
                raise PassingError("the server answered with other bytes than the rest of the file")
            self._receive(remote, answer, version, progress, resumed=resumed)
        return self._finish(remote, version)

    @contextmanager
    def _asked(self, remote: Remote, held: Version | None) -> Iterator[http.client.HTTPResponse | None]:
        """The server's answer; None if it says that nothing has changed."""
        request = urllib.request.Request(remote.url, headers=HEADERS | self._conditions(remote, held))
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                yield answer
        except urllib.error.HTTPError as answer:
            with answer:
                if answer.code != 304:
                    raise self._refused(remote, answer) from None
            yield None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise FetchError(f"{remote.url} cannot be trusted: {error.reason}.", final=True) from None
            raise PassingError(f"no connection: {error.reason}") from error
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            raise PassingError(f"the connection broke: {error or type(error).__name__}") from error

    def _conditions(self, remote: Remote, held: Version | None) -> dict[str, str]:
        """Only if it has changed; and of an unfinished file only the rest, if that is still the rest of it."""
        asked: dict[str, str] = {}
        if held is not None and held.etag:
            asked["If-None-Match"] = held.etag
        elif held is not None and held.modified:
            asked["If-Modified-Since"] = held.modified
        begun = self.record.parts.get(remote.name)
        have = self._part_size(remote)
        if begun is not None and have and (validator := Version(**begun).validator):
            asked |= {"Range": f"bytes={have}-", "If-Range": validator}
        return asked

    def _continues(self, remote: Remote, answer: http.client.HTTPResponse, version: Version) -> bool:
        """Whether a partial answer is the rest of the unfinished file: not all servers look at If-Range."""
        begin = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
        begun = self.record.parts.get(remote.name)
        return begun is not None and begin == str(self._part_size(remote)) and Version(**begun).is_of(version)

    def _refused(self, remote: Remote, answer: urllib.error.HTTPError) -> Exception:
        if answer.code == 416:  # the unfinished file is longer than what the server has now
            self._forget_part(remote)
            return PassingError("the unfinished download does not fit the file any more")
        if answer.code in PASSING or answer.code >= 500:
            asked = answer.headers.get("Retry-After", "")
            return PassingError(f"the server answered {answer.code}", pause=float(asked) if asked.isdecimal() else None)
        if answer.code in NOT_PUBLISHED:
            return FetchError(
                f"{remote.name} does not exist: {remote.url} answered {answer.code}. The TLC publishes a month about "
                "two months after its end, green since 2013-08; check --from and --to, and --base-url if you gave one."
            )
        return FetchError(f"{remote.url} answered {answer.code} {answer.reason}.")

    def _receive(
        self, remote: Remote, answer: http.client.HTTPResponse, version: Version, progress: Progress, *, resumed: bool
    ) -> None:
        """Write what arrives to the hidden file, up to its end."""
        have = self._part_size(remote) if resumed else 0
        self._must_have_room(remote, version, have)
        self.record.parts[remote.name] = asdict(version)
        self.record.save()
        with self._part(remote).open("ab" if resumed else "wb") as out:
            for piece in _pieces(answer):
                out.write(piece)
                have += len(piece)
                progress.at(have, version.size)
            out.flush()
            os.fsync(out.fileno())
        if version.size is not None and have < version.size:
            raise PassingError(f"the connection broke after {_bytes(have)} of {_bytes(version.size)}")
        if version.size is not None and have > version.size:
            self._forget_part(remote)
            raise PassingError(f"the server sent more than the {_bytes(version.size)} that it announced")

    def _must_have_room(self, remote: Remote, version: Version, have: int) -> None:
        free = shutil.disk_usage(self.landing).free
        if version.size is not None and version.size - have > free:
            needed = _bytes(version.size - have)
            raise FetchError(
                f"{remote.name} needs {needed} in {self.landing}, and {_bytes(free)} are free. Free some room, or "
                "choose another --landing.",
                final=True,
            )

    def _finish(self, remote: Remote, version: Version) -> int:
        """Give the file its name, once it is what its name says."""
        part = self._part(remote)
        if not _is_what_it_says(part, remote.name):
            self._forget_part(remote)
            raise FetchError(
                f"{remote.url} answered with something else than {remote.name}. Is there a proxy or a login page in "
                "between, or is --base-url wrong?"
            )
        part.replace(self.landing / remote.name)
        return self._keep(remote, version)

    def _keep(self, remote: Remote, version: Version) -> int:
        """Record what is in the folder now."""
        path = self.landing / remote.name
        there = path.stat()
        entry = asdict(version) | {"url": remote.url, "size": there.st_size, "mtime_ns": there.st_mtime_ns}
        self.record.files[remote.name] = entry | {"sha256": _digest(path, "sha256")}
        self._forget_part(remote)
        return there.st_size

    def _held(self, remote: Remote) -> Version | None:
        """The version in the folder; None if there is none, or not as it was fetched."""
        entry, path = self.record.files.get(remote.name), self.landing / remote.name
        if entry is None or not path.is_file():
            return None
        there = path.stat()
        untouched = there.st_size == entry["size"] and (
            there.st_mtime_ns == entry["mtime_ns"] or _digest(path, "sha256") == entry["sha256"]
        )
        return Version(etag=entry["etag"], modified=entry["modified"], size=entry["size"]) if untouched else None

    def _is_there(self, remote: Remote, held: Version | None, version: Version) -> bool:
        """Whether the folder has the version that the server begins to send: it had no condition, or ignored it."""
        if held is not None:
            return held.is_of(version)
        path = self.landing / remote.name
        if remote.name in self.record.files or not path.is_file() or path.stat().st_size != version.size:
            return False
        return version.md5 is None or version.md5 == _digest(path, "md5")

    def _part(self, remote: Remote) -> Path:
        return self.landing / f".{remote.name}.part"

    def _part_size(self, remote: Remote) -> int:
        part = self._part(remote)
        return part.stat().st_size if part.is_file() else 0

    def _forget_part(self, remote: Remote) -> None:
        self._part(remote).unlink(missing_ok=True)
        self.record.parts.pop(remote.name, None)
        self.record.save()


def _pieces(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """What arrives, until the connection ends or breaks; which of both it was, the size tells."""
    while True:
        try:
            piece = answer.read(PIECE)
        except http.client.IncompleteRead as broken:
            yield broken.partial
            return
        except (http.client.HTTPException, OSError):
            return
        if not piece:
            return
        yield piece


def _is_what_it_says(path: Path, name: str) -> bool:
    with path.open("rb") as file:
        if name == ZONES:
            return b"locationid" in file.readline(1000).lower()
        begin = file.read(4)
        file.seek(max(0, path.stat().st_size - 4))
        return begin == file.read(4) == b"PAR1"


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def remotes(base_url: str, services: Sequence[str], first: str, last: str) -> list[Remote]:
    """The zones, then each service's months."""
    base = base_url.rstrip("/")
    names = [f"{service}_tripdata_{month}.parquet" for service in services for month in months(first, last)]
    return [Remote(ZONES, f"{base}/misc/{ZONES}"), *(Remote(name, f"{base}/trip-data/{name}") for name in names)]


def months(first: str, last: str) -> list[str]:
    """Every month from the first to the last."""
    begin, end = _month(first, "--from"), _month(last, "--to")
    if begin > end:
        raise WrongArgumentsError(f"--from {first} is after --to {last}.")
    numbers = range(begin[0] * 12 + begin[1] - 1, end[0] * 12 + end[1])
    return [f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers]


def _month(text: str, option: str) -> tuple[int, int]:
    try:
        found = time.strptime(text, "%Y-%m")
    except ValueError:
        raise WrongArgumentsError(f"{option} must be a month such as 2023-01, not {text!r}.") from None
    if (found.tm_year, found.tm_mon) < EARLIEST:
        raise WrongArgumentsError(f"{option} must be 2011-01 or later, not {text}: before, trips have no taxi zones.")
    return found.tm_year, found.tm_mon


@contextmanager
def _alone(landing: Path) -> Iterator[BinaryIO]:
    """Only one fetch at a time works in a folder."""
    landing.mkdir(parents=True, exist_ok=True)
    if (landing / "manifest.json").exists():
        raise WrongArgumentsError(
            f"{landing} holds generated months, and real ones do not belong beside them: choose another --landing, or "
            "remove the folder."
        )
    with (landing / ".fetch.lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongArgumentsError(f"Another fetch is at work in {landing}: wait for it, or stop it.") from None
        yield lock


def fetch(landing: Path, wanted: Sequence[Remote], *, wait: Callable[[float], None] = time.sleep) -> list[str]:
    """Bring all files that can be had, and return what went wrong with the others, a paragraph each."""
    problems: list[str] = []
    fetched: list[int | None] = []
    with _alone(landing):
        fetcher = Fetcher(landing, wait=wait)
        for remote in wanted:
            try:
                fetched.append(fetcher.bring(remote))
            except FetchError as error:
                problems.append(str(error))
                if error.final:
                    break
            except OSError as error:
                problems.append(_unwritable(landing, error))
                break
    new = [size for size in fetched if size is not None]
    current = len(fetched) - len(new)
    print(f"{len(new)} fetched ({_bytes(sum(new))}), {current} up to date, {len(problems)} failed", file=sys.stderr)
    return problems


def _unwritable(landing: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{landing} has no room left. Free some and run the same command again: it resumes where this one stopped."
        )
    return f"cannot write {error.filename or landing}: {error.strerror}. Choose another --landing or free it."


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"fetch: {message} (see --help)\n")


def _parser() -> argparse.ArgumentParser:
    beside = Path(__file__).resolve().parent / "landing"
    parser = _Arguments(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="first", required=True, metavar="MONTH", help="first month, such as 2023-01")
    parser.add_argument("--to", dest="last", metavar="MONTH", help="last month (default: the first)")
    parser.add_argument("--service", choices=[*SERVICES, "both"], default="both", help="whose trips (default both)")
    parser.add_argument("--base-url", default=BASE_URL, help=f"where trip-data/ and misc/ are (default {BASE_URL})")
    parser.add_argument(
        "--landing", type=Path, default=beside, help="the landing folder (default: landing beside this script)"
    )
    return parser


def main(arguments: Sequence[str] | None = None, *, wait: Callable[[float], None] = time.sleep) -> int:
    """The command line: 0 if all is there, 1 if something could not be fetched, 2 if nothing could be tried."""
    asked = _parser().parse_args(arguments)
    services = SERVICES if asked.service == "both" else (asked.service,)
    try:
        if not asked.base_url.startswith(("http://", "https://")):
            raise WrongArgumentsError(f"--base-url must begin with https:// or http://, not {asked.base_url!r}.")
        wanted = remotes(asked.base_url, services, asked.first, asked.last or asked.first)
        problems = fetch(asked.landing, wanted, wait=wait)
    except WrongArgumentsError as error:
        print(f"fetch: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"fetch: {_unwritable(asked.landing, error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nfetch: stopped. Run the same command again: it resumes where this one stopped.", file=sys.stderr)
        return 1
    for problem in problems:
        print(f"fetch: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
