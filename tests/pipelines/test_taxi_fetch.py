"""The download of taxi months, against a server that breaks off, is down, ignores ranges, or has something new."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "pipelines" / "taxi" / "fetch.py"
ZONES = "/misc/taxi_zone_lookup.csv"
MONTH = "/trip-data/yellow_tripdata_2023-01.parquet"
NAME = "yellow_tripdata_2023-01.parquet"
ONE_MONTH = ("--from", "2023-01", "--service", "yellow")


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"taxi_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fetcher = _load(SCRIPT)


def month_bytes(seed: int, size: int = 600_000) -> bytes:
    """Bytes that begin and end as a Parquet file does."""
    return b"PAR1" + hashlib.shake_256(str(seed).encode()).digest(size - 8) + b"PAR1"


@dataclass
class Served:
    body: bytes
    etag: str | None = None
    modified: str | None = "Mon, 20 Mar 2023 10:00:00 GMT"


Answer = Callable[["Handler", Served], None]


class Handler(BaseHTTPRequestHandler):
    """A small object store: conditions and ranges as RFC 9110 has them, unless the test says otherwise."""

    server: Tlc

    def do_GET(self) -> None:
        tlc = self.server
        tlc.requests.append((self.path, dict(self.headers.items())))
        served = tlc.files.get(self.path)
        if tlc.answers.get(self.path):
            tlc.answers[self.path].popleft()(self, served or Served(b""))
        elif served is None:
            self.refuse(tlc.missing)
        else:
            self.serve(served)

    def serve(self, served: Served, *, upto: int | None = None, announced: int | None = None) -> None:
        body = served.body
        if self.server.conditions and served.etag and self.headers.get("If-None-Match") == served.etag:
            self.refuse(304)
            return
        begin = self._begin(served)
        self.send_response(200 if begin is None else 206)
        if begin is not None:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        rest = body[begin or 0 :]
        self.send_header("Content-Length", str(announced or len(rest)))
        if served.etag:
            self.send_header("ETag", served.etag)
        if served.modified:
            self.send_header("Last-Modified", served.modified)
        self.end_headers()
        self.wfile.write(rest[:upto])
        self.wfile.flush()

    def _begin(self, served: Served) -> int | None:
        asked = self.headers.get("Range")
        fresh = self.headers.get("If-Range") in (served.etag, served.modified) or not self.server.if_range
        return int(asked.removeprefix("bytes=").rstrip("-")) if asked and fresh and self.server.ranges else None

    def refuse(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Tests look at the requests instead."""


class Tlc(ThreadingHTTPServer):
    """What is published, and the answers that come before it is: the next one of a path is used up by a request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, Served] = {
            ZONES: Served(
                b'"LocationID","Borough","Zone","service_zone"\r\n1,"EWR","Newark Airport","EWR"\r\n', '"z1"'
            ),
            MONTH: Served(month_bytes(1), '"y1"'),
        }
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answers: dict[str, deque[Answer]] = {}
        self.ranges = self.if_range = self.conditions = True
        self.missing = 403  # as the TLC's own address answers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def first(self, path: str, *answers: Answer) -> None:
        self.answers[path] = deque(answers)

    def asked(self, path: str) -> list[dict[str, str]]:
        return [headers for requested, headers in self.requests if requested == path]


def breaks_off(after: int) -> Answer:
    return lambda handler, served: handler.serve(served, upto=after)


def says(status: int, **headers: str) -> Answer:
    return lambda handler, _: handler.refuse(status, **headers)


@pytest.fixture
def tlc(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tlc]:
    monkeypatch.setenv("no_proxy", "*")
    server = Tlc()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Call:
    """Calls of the command line, with the pauses that it would have made."""

    landing: Path
    url: str
    pauses: list[float] = field(default_factory=list)

    def __call__(self, *arguments: str) -> int:
        options = ("--base-url", self.url, "--landing", str(self.landing))
        code: int = fetcher.main([*(arguments or ONE_MONTH), *options], wait=self.pauses.append)
        return code


@pytest.fixture
def fetch(tlc: Tlc, tmp_path: Path) -> Call:
    return Call(tmp_path / "landing", tlc.url)


def visible(landing: Path) -> dict[str, bytes]:
    """What a run would see."""
    return {path.name: path.read_bytes() for path in landing.iterdir() if not path.name.startswith(".")}


def leftovers(landing: Path) -> set[str]:
    return {path.name for path in landing.iterdir()} - {".fetched.json", ".fetch.lock", *visible(landing)}


def test_months_and_zones_arrive_under_their_names(tlc: Tlc, fetch: Call) -> None:
    for service in ("yellow", "green"):
        for month in ("2022-12", "2023-01"):
            tlc.files[f"/trip-data/{service}_tripdata_{month}.parquet"] = Served(month_bytes(len(month)), '"x"')
    assert fetch("--from", "2022-12", "--to", "2023-01") == 0
    assert visible(fetch.landing) == {path.rpartition("/")[2]: served.body for path, served in tlc.files.items()}
    assert not leftovers(fetch.landing)
    assert tlc.requests[0][0] == ZONES  # a run that starts in between can name the zones


def test_what_is_there_is_not_fetched_again(tlc: Tlc, fetch: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch() == 0
    before = {path: path.stat().st_mtime_ns for path in fetch.landing.glob("[!.]*")}
    assert fetch() == 0
    assert tlc.asked(MONTH)[1]["If-None-Match"] == '"y1"'
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert capsys.readouterr().err.splitlines()[-1] == "0 fetched (0 B), 2 up to date, 0 failed"


def test_a_server_without_conditions_is_compared_by_what_it_says(tlc: Tlc, fetch: Call) -> None:
    tlc.conditions = False
    assert fetch() == 0
    before = (fetch.landing / NAME).stat().st_mtime_ns
    assert fetch() == 0
    assert (fetch.landing / NAME).stat().st_mtime_ns == before


@pytest.mark.parametrize("conditions", [True, False])
@pytest.mark.parametrize("etags", [('"y1"', '"y2"'), (None, None)])
def test_a_changed_month_is_fetched_again(
    tlc: Tlc, fetch: Call, conditions: bool, etags: tuple[str | None, str | None]
) -> None:
    tlc.conditions = conditions
    tlc.files[MONTH] = Served(month_bytes(1), etags[0])
    assert fetch() == 0
    tlc.files[MONTH] = Served(month_bytes(2), etags[1], "Tue, 21 Mar 2023 10:00:00 GMT")
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(2)


@pytest.mark.parametrize("damage", [b"PAR1", month_bytes(3)], ids=["truncated", "same size"])
def test_a_file_that_is_not_as_it_was_fetched_is_fetched_again(tlc: Tlc, fetch: Call, damage: bytes) -> None:
    assert fetch() == 0
    (fetch.landing / NAME).write_bytes(damage)
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(1)


def test_a_file_that_was_only_touched_is_not(tlc: Tlc, fetch: Call) -> None:
    assert fetch() == 0
    os.utime(fetch.landing / NAME, ns=(1, 1))
    assert fetch() == 0
    assert (fetch.landing / NAME).stat().st_mtime_ns == 1


@pytest.mark.parametrize(
    ("etag", "there", "kept"),
    [
        ('"multipart-2"', month_bytes(2), True),  # nothing but the size to compare
        (f'"{hashlib.md5(month_bytes(1)).hexdigest()}"', month_bytes(1), True),
        (f'"{hashlib.md5(month_bytes(1)).hexdigest()}"', month_bytes(2), False),
        ('"multipart-2"', month_bytes(2)[:-9], False),
    ],
)
def test_a_file_of_unknown_origin_is_compared_by_size_and_checksum(
    tlc: Tlc, fetch: Call, etag: str, there: bytes, kept: bool
) -> None:
    tlc.files[MONTH].etag = etag
    fetch.landing.mkdir()
    (fetch.landing / NAME).write_bytes(there)
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == (there if kept else month_bytes(1))


@pytest.mark.parametrize("etag", ['"y1"', None, 'W/"y1"'])
def test_a_broken_download_is_resumed_where_it_broke(tlc: Tlc, fetch: Call, etag: str | None) -> None:
    tlc.files[MONTH].etag = etag
    tlc.first(MONTH, breaks_off(250_000), breaks_off(100_000))
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(1)
    asked = tlc.asked(MONTH)
    assert [headers.get("Range") for headers in asked] == [None, "bytes=250000-", "bytes=350000-"]
    validator = etag if etag == '"y1"' else "Mon, 20 Mar 2023 10:00:00 GMT"  # a weak tag promises nothing about bytes
    assert [headers.get("If-Range") for headers in asked] == [None, validator, validator]
    assert len(fetch.pauses) == 2


def test_without_a_validator_it_begins_anew(tlc: Tlc, fetch: Call) -> None:
    tlc.files[MONTH] = Served(month_bytes(1), None, None)
    tlc.first(MONTH, breaks_off(250_000))
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(1)
    assert "Range" not in tlc.asked(MONTH)[1]


def test_a_later_call_resumes_too(tlc: Tlc, fetch: Call, capsys: pytest.CaptureFixture[str]) -> None:
    tlc.first(MONTH, breaks_off(1000), *[breaks_off(0)] * 4)
    assert fetch() == 1
    assert set(visible(fetch.landing)) == {"taxi_zone_lookup.csv"}
    assert "it resumes where this one stopped" in capsys.readouterr().err
    assert fetch() == 0
    assert tlc.asked(MONTH)[-1]["Range"] == "bytes=1000-"
    assert visible(fetch.landing)[NAME] == month_bytes(1)
    assert not leftovers(fetch.landing)


def test_as_long_as_bytes_arrive_it_is_not_given_up(tlc: Tlc, fetch: Call) -> None:
    tlc.first(MONTH, *[breaks_off(10_000)] * 20)
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(1)


def changes(served: Served, *, after: int) -> Answer:
    """Break off, and have another version of the file from then on."""

    def answer(handler: Handler, old: Served) -> None:
        handler.serve(old, upto=after)
        handler.server.files[MONTH] = served

    return answer


def test_a_file_that_changes_meanwhile_is_never_a_mixture(tlc: Tlc, fetch: Call) -> None:
    tlc.first(MONTH, changes(Served(month_bytes(2), '"y2"'), after=250_000))
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(2)


def test_nor_if_the_server_ignores_if_range(tlc: Tlc, fetch: Call) -> None:
    tlc.if_range = False
    tlc.first(MONTH, changes(Served(month_bytes(2), '"y2"'), after=250_000))
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(2)


def test_nor_if_it_became_shorter(tlc: Tlc, fetch: Call) -> None:
    tlc.if_range = False
    tlc.first(MONTH, changes(Served(month_bytes(2, 1000), '"y2"'), after=250_000), says(416))
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(2, 1000)


def test_a_server_that_ignores_ranges_sends_it_all_again(tlc: Tlc, fetch: Call) -> None:
    tlc.ranges = False
    tlc.first(MONTH, breaks_off(250_000))
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(1)


def test_a_server_that_is_down_for_a_moment_is_asked_again(tlc: Tlc, fetch: Call) -> None:
    tlc.first(MONTH, says(503), says(500), says(429, Retry_After="7"), says(503, Retry_After="86400"))
    assert fetch() == 0
    assert visible(fetch.landing)[NAME] == month_bytes(1)
    assert 0.5 <= fetch.pauses[0] <= 1.0 <= fetch.pauses[1] <= 2.0
    assert fetch.pauses[2:] == [7.0, 60.0]  # as asked for, within reason


def one_paragraph(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr()
    assert said.out == ""
    problems = [line for line in said.err.splitlines() if line.startswith("fetch: ")]
    assert len(problems) == 1, said.err
    return problems[0]


def test_a_server_that_stays_down_ends_it(tlc: Tlc, fetch: Call, capsys: pytest.CaptureFixture[str]) -> None:
    tlc.first(ZONES, *[says(503)] * 9)
    assert fetch() == 1
    assert len(tlc.requests) == 5  # and no other file was tried
    assert "the server answered 503. 5 attempts failed" in one_paragraph(capsys)
    assert visible(fetch.landing) == {}


@pytest.mark.parametrize("status", [403, 404])
def test_a_month_that_does_not_exist_is_said_and_the_others_are_fetched(
    tlc: Tlc, fetch: Call, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tlc.missing = status
    assert fetch("--from", "2022-12", "--to", "2023-01", "--service", "yellow") == 1
    assert set(visible(fetch.landing)) == {"taxi_zone_lookup.csv", NAME}
    said = one_paragraph(capsys)
    assert f"yellow_tripdata_2022-12.parquet does not exist: {tlc.url}/trip-data/" in said
    assert f"answered {status}" in said
    assert not fetch.pauses


def test_no_network_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        fetch = Call(tmp_path / "landing", f"http://127.0.0.1:{closed.getsockname()[1]}")
        assert fetch() == 1
    assert "no connection" in one_paragraph(capsys)
    assert len(fetch.pauses) == 4


def test_a_file_too_large_for_the_disk_is_not_begun(tlc: Tlc, fetch: Call, capsys: pytest.CaptureFixture[str]) -> None:
    tlc.first(MONTH, lambda handler, served: handler.serve(served, announced=10**18))
    assert fetch() == 1
    said = one_paragraph(capsys)
    assert f"{NAME} needs 1000000000.0 GB" in said
    assert "Free some room" in said
    assert not leftovers(fetch.landing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_ends_it(tlc: Tlc, fetch: Call, capsys: pytest.CaptureFixture[str]) -> None:
    fetch.landing.mkdir()
    (fetch.landing / f".{NAME}.part").symlink_to("/dev/full")
    assert fetch() == 1
    assert "has no room left" in one_paragraph(capsys)
    assert set(visible(fetch.landing)) == {"taxi_zone_lookup.csv"}


def test_a_page_instead_of_a_file_is_not_taken(tlc: Tlc, fetch: Call, capsys: pytest.CaptureFixture[str]) -> None:
    tlc.files[MONTH] = Served(b"<html>Please log in</html>")
    assert fetch() == 1
    assert "something else than" in one_paragraph(capsys)
    assert set(visible(fetch.landing)) == {"taxi_zone_lookup.csv"}
    assert not leftovers(fetch.landing)


def until(condition: Callable[[], bool]) -> None:
    end, moment = time.monotonic() + 30, threading.Event()
    while not condition():
        assert time.monotonic() < end, "what was waited for did not happen"
        moment.wait(0.005)


def test_nothing_half_written_is_seen_and_a_killed_fetch_is_resumed(tlc: Tlc, fetch: Call) -> None:
    go_on = threading.Event()

    def halting(handler: Handler, served: Served) -> None:
        handler.serve(served, upto=400_000)
        go_on.wait(30)

    tlc.first(MONTH, halting)
    options = [*ONE_MONTH, "--base-url", tlc.url, "--landing", str(fetch.landing)]
    part = fetch.landing / f".{NAME}.part"
    with subprocess.Popen([sys.executable, str(SCRIPT), *options], stderr=subprocess.DEVNULL) as process:
        until(lambda: part.exists() and part.stat().st_size > 0)
        assert set(visible(fetch.landing)) == {"taxi_zone_lookup.csv"}
        process.kill()
    go_on.set()
    have = part.stat().st_size
    assert fetch() == 0
    assert tlc.asked(MONTH)[-1]["Range"] == f"bytes={have}-"
    assert visible(fetch.landing)[NAME] == month_bytes(1)


def test_an_interrupted_fetch_says_that_it_can_be_resumed(tlc: Tlc, fetch: Call) -> None:
    go_on = threading.Event()

    def halting(handler: Handler, served: Served) -> None:
        handler.serve(served, upto=400_000)
        go_on.wait(30)

    tlc.first(MONTH, halting)
    options = [*ONE_MONTH, "--base-url", tlc.url, "--landing", str(fetch.landing)]
    part = fetch.landing / f".{NAME}.part"
    with subprocess.Popen([sys.executable, str(SCRIPT), *options], stderr=subprocess.PIPE, text=True) as process:
        until(lambda: part.exists() and part.stat().st_size > 0)
        process.send_signal(2)
        _, said = process.communicate(timeout=30)
    go_on.set()
    assert process.returncode == 1
    assert said.splitlines()[-1].startswith("fetch: stopped. Run the same command again")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--from"),
        (["--from", "January"], "--from must be a month such as 2023-01"),
        (["--from", "2023-13"], "--from must be a month"),
        (["--from", "2023-01", "--to", "2022-12"], "--from 2023-01 is after --to 2022-12"),
        (["--from", "2010-12"], "no taxi zones"),
        (["--from", "2023-01", "--service", "red"], "--service"),
        (["--from", "2023-01", "--base-url", "ftp://example.org"], "--base-url must begin with"),
    ],
)
def test_wrong_arguments_end_in_one_paragraph(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = fetcher.main(["--landing", str(tmp_path / "landing"), *arguments])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "landing").exists()


def test_a_folder_that_is_in_use_or_cannot_be_written_is_left_alone(
    tlc: Tlc, fetch: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch() == 0
    with (fetch.landing / ".fetch.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert fetch() == 2
    assert "Another fetch is at work" in one_paragraph(capsys)
    (fetch.landing / "manifest.json").write_text("{}")
    assert fetch() == 2
    assert "holds generated months" in one_paragraph(capsys)
    (tmp_path / "file").write_text("in the way")
    assert Call(tmp_path / "file" / "landing", tlc.url)() == 2
    assert "cannot write" in one_paragraph(capsys)


def test_a_record_that_cannot_be_read_is_begun_anew(tlc: Tlc, fetch: Call) -> None:
    assert fetch() == 0
    (fetch.landing / ".fetched.json").write_text("[]")
    before = (fetch.landing / NAME).stat().st_mtime_ns
    assert fetch() == 0
    assert (fetch.landing / NAME).stat().st_mtime_ns == before
    assert json.loads((fetch.landing / ".fetched.json").read_bytes())["files"][NAME]["etag"] == '"y1"'
