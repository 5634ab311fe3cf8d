"""Fetching jars: pinned to the byte, from a mirror on loopback, through trouble."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from icefield.engine.session.jars import PINNED, Jar, cache_folder, default_repository, ensure_jars
from icefield.errors import JarError

CONTENT = b"not really a jar, but pinned like one" * 1000
PIN = Jar(group="org.example", artifact="thing_2.13", version="1.0", sha256=hashlib.sha256(CONTENT).hexdigest())


@dataclass
class Mirror:
    """A Maven repository on loopback that can be told to misbehave."""

    files: dict[str, bytes] = field(default_factory=dict)
    failures: int = 0
    asked: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    state = Mirror(files={f"/maven/{PIN.repository_path}": CONTENT})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            if state.failures:
                state.failures -= 1
                self.send_error(503)
            elif self.path not in state.files:
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(state.files[self.path])))
                self.end_headers()
                self.wfile.write(state.files[self.path])

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_port}/maven/"
        yield state
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(mirror, tmp_path) -> dict[str, str]:
    return {"ICEFIELD_CACHE": str(tmp_path / "cache"), "ICEFIELD_MAVEN": mirror.url}


def fetch(settings: dict[str, str], **options):
    pauses: list[float] = []
    (path,) = ensure_jars([PIN], environment=settings, pause=pauses.append, **options)
    return path, pauses


def left_over(settings) -> list[str]:
    return sorted(path.name for path in (cache_folder(settings) / "jars").iterdir())


def test_a_jar_is_fetched_once(mirror, settings):
    seen = []
    path, _ = fetch(settings, progress=lambda jar, done, total: seen.append((jar.artifact, done, total)))
    assert path.read_bytes() == CONTENT
    assert seen == [("thing_2.13", len(CONTENT), len(CONTENT))]
    assert fetch(settings)[0] == path
    assert mirror.asked == [f"/maven/{PIN.repository_path}"]
    assert left_over(settings) == [PIN.file_name, f"{PIN.file_name}.stamp"]


def test_trouble_that_passes_is_waited_out(mirror, settings):
    mirror.failures = 2
    path, pauses = fetch(settings)
    assert path.read_bytes() == CONTENT
    assert pauses == [1.0, 2.0]


def test_trouble_that_stays_is_said_in_one_paragraph(mirror, settings):
    mirror.failures = 99
    with pytest.raises(
        JarError, match=r"thing_2.13-1.0.jar could not be downloaded: the server answered 503"
    ) as caught:
        fetch(settings)
    assert "ICEFIELD_MAVEN" in caught.value.remedy
    assert len(mirror.asked) == 3
    assert left_over(settings) == []


def test_what_is_not_there_is_not_asked_for_again(mirror, settings):
    mirror.files.clear()
    with pytest.raises(JarError, match="404"):
        fetch(settings)
    assert len(mirror.asked) == 1


def test_one_wrong_byte_is_refused(mirror, settings):
    mirror.files[f"/maven/{PIN.repository_path}"] = CONTENT[:-1] + b"!"
    with pytest.raises(JarError, match="not the pinned jar"):
        fetch(settings)
    assert left_over(settings) == []


def test_a_truncated_answer_is_refused(mirror, settings):
    mirror.files[f"/maven/{PIN.repository_path}"] = CONTENT[:100]
    with pytest.raises(JarError, match="not the pinned jar"):
        fetch(settings)


def test_a_jar_that_went_bad_in_the_cache_is_fetched_again(mirror, settings):
    path, _ = fetch(settings)
    path.write_bytes(b"?" + CONTENT[1:])
    assert fetch(settings)[0].read_bytes() == CONTENT
    assert len(mirror.asked) == 2


def test_a_bad_jar_is_named_when_it_cannot_be_replaced(settings):
    path, _ = fetch(settings)
    path.write_bytes(CONTENT[:100])
    with pytest.raises(JarError, match=f"The cached {path} is damaged") as caught:
        fetch(settings | {"ICEFIELD_OFFLINE": "1"})
    assert "unset ICEFIELD_OFFLINE" in caught.value.remedy


def test_offline_uses_the_cache_and_asks_no_one(mirror, settings):
    fetch(settings)
    fetch(settings | {"ICEFIELD_OFFLINE": "1"})
    assert len(mirror.asked) == 1


def test_offline_without_a_cache_says_what_to_do(mirror, settings):
    with pytest.raises(JarError, match="not in the cache, and ICEFIELD_OFFLINE prevents"):
        fetch(settings | {"ICEFIELD_OFFLINE": "1"})
    assert mirror.asked == []


@pytest.mark.parametrize("name", [PIN.file_name, PIN.repository_path])
def test_a_folder_serves_as_a_mirror(settings, tmp_path, name):
    there = tmp_path / "folder" / name
    there.parent.mkdir(parents=True)
    there.write_bytes(CONTENT)
    assert fetch(settings | {"ICEFIELD_MAVEN": str(tmp_path / "folder")})[0].read_bytes() == CONTENT


def test_a_jar_put_there_by_hand_is_taken(mirror, settings):
    path = cache_folder(settings) / "jars" / PIN.file_name
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    assert fetch(settings)[0] == path
    assert mirror.asked == []


def test_a_server_that_is_not_there(settings):
    with pytest.raises(JarError, match="could not be downloaded"):
        fetch(settings | {"ICEFIELD_MAVEN": "http://127.0.0.1:9/"})


def test_a_cache_that_cannot_be_made_is_said(settings, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JarError, match="could not be downloaded"):
        fetch(settings | {"ICEFIELD_CACHE": str(tmp_path / "file")})


def test_the_cache_follows_the_platform(tmp_path):
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "icefield"
    assert cache_folder({"HOME": str(tmp_path)}).name == "icefield"
    assert cache_folder({"HOME": str(tmp_path)}).is_relative_to(tmp_path)


def test_the_default_repository_is_sparks_own():
    assert default_repository().startswith("https://")
    assert default_repository().endswith("/maven2/")


def test_what_is_pinned():
    assert [jar.file_name for jar in PINNED] == [
        "iceberg-spark-runtime-4.1_2.13-1.12.0.jar",
        "sqlite-jdbc-3.53.4.0.jar",
    ]


def test_other_files_of_a_repository_are_named_by_classifier_and_extension():
    plugin = Jar(group="io.x", artifact="a", version="1", sha256="", classifier="plugin", extension="tar.gz")
    assert plugin.repository_path == "io/x/a/1/a-1-plugin.tar.gz"
