"""icefield as another environment sees it: by its command, with nothing imported but the standard library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from icefield.adapters.calling import Command, find_root, read_manifest, table_result
from icefield.adapters.calling.command import find_command
from icefield.errors import CalledCommandFailed, NoIcefieldCommand, NoProject
from projects import SOURCES, TinyProject, tiny, until

ICEFIELD = Path(sys.executable).with_name("icefield")


def script(path: Path, source: str) -> Path:
    """A command of a few lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(source)}")
    path.chmod(0o755)
    return path


# -- what is imported


def test_nothing_but_the_standard_library_is_imported() -> None:
    source = (
        "import sys; before = set(sys.modules); import icefield.adapters.calling; print(*set(sys.modules) - before)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", source], env=environment, capture_output=True, text=True, check=True
    )
    found = {name.partition(".")[0].lstrip("_") for name in done.stdout.split()}
    assert found - {name.lstrip("_") for name in sys.stdlib_module_names} == {"icefield"}


# -- the command


def test_the_command_is_the_given_one_or_beside_python_or_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_command("/opt/icefield") == "/opt/icefield"
    assert find_command() == str(ICEFIELD), "beside a Python that has pyspark"
    other, beside = (script(tmp_path / folder / "icefield", "") for folder in ("other", "beside"))
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", f"{beside.parent}{os.pathsep}{other.parent}")
    assert find_command() == str(other), "the one beside a Python without pyspark cannot run"
    monkeypatch.setenv("PATH", str(beside.parent))
    with pytest.raises(NoIcefieldCommand, match="neither beside this Python nor on the PATH"):
        find_command()
    with pytest.raises(NoIcefieldCommand, match="cannot be started: No such file"):
        Command(tmp_path / "none").call(["ls"])


def test_a_call_gives_the_result_and_tells_the_rest_as_it_is_said(tmp_path: Path) -> None:
    command = script(
        tmp_path / "icefield",
        """
        import os, sys
        print("x" * 200_000, flush=True)
        print("12:00:00 staging", file=sys.stderr)
        print("error ICE-601 gold.x was not published\\n  next:  look", file=sys.stderr)
        print("PYTHONPATH" in os.environ, os.environ["MORE"])
        sys.exit(1)
        """,
    )
    heard: list[str] = []
    done = Command(command, {"MORE": "more"}).call([], heard.append)
    assert (done.code, done.out) == (1, "x" * 200_000 + "\nFalse more\n")
    assert heard == ["12:00:00 staging", "error ICE-601 gold.x was not published", "  next:  look"]
    assert done.error == "ICE-601 gold.x was not published\n  next:  look"


WORKING = """
    import pathlib, signal, sys, time
    place = pathlib.Path(sys.argv[1])
    def ask(*_):
        with place.open("a") as out: out.write("asked\\n")
        if sys.argv[2] == "obedient": sys.exit(2)
    signal.signal(signal.SIGTERM, ask)
    place.write_text("")
    while True: time.sleep(0.05)
"""


def test_a_command_that_is_stopped_is_asked_once_to_end(tmp_path: Path) -> None:
    command, told = Command(script(tmp_path / "icefield", WORKING)), tmp_path / "told"
    stopping = threading.Thread(target=lambda: (until(told.exists), command.stop()))
    stopping.start()
    assert command.call([str(told), "obedient"]).code == 2
    stopping.join()
    assert told.read_text() == "asked\n"


def test_whatever_ends_a_call_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, told = Command(script(tmp_path / "icefield", WORKING)), tmp_path / "told"
    monkeypatch.setattr("icefield.adapters.calling.command._END_SECONDS", 1.0)

    def timeout(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, timeout)
    try:
        alarm = threading.Thread(target=lambda: (until(told.exists), os.kill(os.getpid(), signal.SIGALRM)))
        alarm.start()
        with pytest.raises(TimeoutError):
            command.call([str(told), "deaf"])
        alarm.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert told.read_text() == "asked\n"
    assert command._process is not None
    assert command._process.poll() == -signal.SIGKILL, "it did not listen"


# -- the manifest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyProject:
    monkeypatch.setenv("ICEFIELD_CACHE", str(tmp_path / "cache"))
    return tiny(tmp_path / "tiny")


def names(manifest: dict[str, Any]) -> list[str]:
    return [one["table"] for one in manifest["tables"]]


def test_a_manifest_is_asked_for_once_for_each_content_of_the_project(project: TinyProject) -> None:
    nowhere = Command("/nowhere/icefield", {"REGION": "eu"})
    (project.root / "icefield.toml").write_text(
        '[project]\ntables = ["tables.py"]\n[profile.local]\n[profile.local.settings]\nregion = "${env:REGION}"\n'
    )
    first = read_manifest(Command(ICEFIELD, {"REGION": "eu"}), project.root)
    assert names(first) == ["bronze.orders", "silver.sales", "gold.by_customer"]
    begun = time.perf_counter()
    assert read_manifest(nowhere, project.root) == first, "from the cache"
    assert time.perf_counter() - begun < 0.1
    with pytest.raises(NoIcefieldCommand):
        read_manifest(nowhere, project.root, options=["gold"])

    assert first["gone"] == []

    changes: list[tuple[str, str]] = [("helpers.py", ""), ("tables.py", "")]
    for file, content in changes:
        before = (project.root / file).read_text() if (project.root / file).exists() else None
        (project.root / file).write_text(content)
        with pytest.raises(NoIcefieldCommand):
            read_manifest(nowhere, project.root)
        assert read_manifest(nowhere, project.root, even_if_stale=True) == first
        if before is None:
            (project.root / file).unlink()
        else:
            (project.root / file).write_text(before)
        assert read_manifest(nowhere, project.root) == first, "as it was"


def test_a_setting_from_the_environment_may_change_what_is_declared(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.declare(
        """
        from icefield import frames, setting, table

        @table(f"gold.{setting('region', '')}", source=frames(lambda: [], schema="id INT"))
        def regional(rows):
            return rows
        """,
        more='[profile.local.settings]\nregion = "${env:REGION}"\n',
    )
    for region, gone in (("eu", []), ("us", ["gold.eu"]), ("eu", ["gold.us"])):
        monkeypatch.setenv("REGION", region)
        found = read_manifest(Command(ICEFIELD), project.root)
        assert (names(found), found["gone"]) == ([f"gold.{region}"], gone)


def test_a_project_that_cannot_be_written_to_is_remembered_elsewhere(project: TinyProject, tmp_path: Path) -> None:
    own = project.root / ".icefield"
    own.write_text("in the way of a folder")
    first = read_manifest(Command(ICEFIELD), project.root)
    assert [file.suffix for file in (tmp_path / "cache" / "manifests").iterdir()] == [".json"]
    assert read_manifest(Command("/nowhere/icefield"), project.root) == first


def test_a_project_that_does_not_load_says_where(project: TinyProject, tmp_path: Path) -> None:
    (project.root / "tables.py").write_text("import nothing_like_this\n")
    with pytest.raises(CalledCommandFailed, match=r"ICE-\d+ tables.py cannot be imported(.|\n)*where: tables.py:1"):
        read_manifest(Command(ICEFIELD), project.root)
    assert find_root(project.root / "landing") == project.root
    with pytest.raises(NoProject, match=r"no icefield\.toml"):
        find_root(tmp_path)


# -- what became of a table


def run(name: str, *tables: dict[str, Any], **more: Any) -> dict[str, Any]:
    checks = [
        {"table": row["table"], "check": "id is unique", "status": "passed", "failed_rows": 0, "detail": ""}
        for row in tables
    ]
    return {"run": name, "status": "published", "batch": "", "error": "", "tables": tables, "checks": checks, **more}


def row(status: str, added: int = 0, removed: int = 0, table: str = "gold.a", **more: Any) -> dict[str, Any]:
    nothing = {"action": "append", "reason": "", "error": "", "rows_quarantined": 0, "rows_dropped": 0, "snapshot": 7}
    counts = {"rows_added": added, "rows_removed": removed, "rows_total": 10 + added - removed, "seconds": 1.5}
    return {"table": table, "status": status, **nothing, **counts, **more}


def test_a_table_that_changed_is_published_with_its_rows_checks_and_time() -> None:
    found = table_result([run("r1", row("published", 2, 1))], "gold.a", succeeded=True)
    assert found is not None
    assert (found.status, found.told) == (
        "published", "gold.a: 2 rows added, 1 row removed, 11 in total, 1.5 s",
    )  # fmt: skip
    assert list(found.lines) == [
        "run r1: append, published; added 2, removed 1, total 11, quarantined 0, dropped 0; 1.5 s",
        "check `id is unique`: passed",
    ]
    assert (found.facts["run"], found.facts["rows_added"], found.facts["snapshot"]) == ("r1", 2, "7")
    assert found.facts["checks"] == [{"check": "id is unique", "status": "passed", "failed_rows": 0, "detail": ""}]


def test_a_table_that_kept_its_rows_is_not() -> None:
    for status in ("published", "unchanged"):
        found = table_result([run("r1", row(status))], "gold.a", succeeded=True)
        assert found is not None
        assert (found.status, found.told) == ("not published", "gold.a has the rows that it had before run r1")
    assert table_result([run("r1", row("published", 1))], "gold.b", succeeded=True) is None
    assert table_result([], "gold.a", succeeded=False) is None


def test_all_runs_of_batches_count() -> None:
    runs = [run("r1", row("published", 2)), run("r2", row("published", 3)), run("r3", row("unchanged"))]
    found = table_result(runs, "gold.a", succeeded=True)
    assert found is not None
    assert (found.facts["rows_added"], found.facts["runs"], found.facts["seconds"]) == (5, ["r1", "r2"], 3.0)


@pytest.mark.parametrize(
    ("status", "verdict", "told"),
    [
        ("failed", "failed", "ICE-601 gold.a was not published"),
        ("abandoned", "not published", "gold.a was staged and is not published, because run r1 failed: ICE-601 gold.b"),
        ("skipped", "not published", "gold.a was skipped by run r1: the run was stopped"),
    ],
)
def test_a_table_of_a_failed_run_says_what_became_of_it(status: str, verdict: str, told: str) -> None:
    error = "ICE-601 gold.a was not published" if status == "failed" else ""
    one = row(status, 5, error=error, reason="the run was stopped" if status == "skipped" else "")
    failed = run("r1", one, status="failed", error="ICE-601 gold.b\n  next: ...")
    found = table_result([failed], "gold.a", succeeded=False)
    assert found is not None
    assert (found.status, found.told) == (verdict, told)
    assert table_result([failed], "gold.a", succeeded=True) is None, "a later try succeeded and had nothing to do"
    again = table_result([failed, run("r2", row("published", 1))], "gold.a", succeeded=True)
    assert again is not None
    assert (again.status, again.facts["runs"]) == ("published", ["r2"])
