"""A real Spark: how it starts, where its words go, and that it never outlives its process.

Each test starts its own Python process, because a process has one session and pytest's may have its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.own_spark]

PRELUDE = """
import json, os, signal, sys, time
from pathlib import Path
from icefield.engine.session.spark import add_catalog, start_session, stop_session
log = Path(sys.argv[1]) / "spark.log"
"""
START = 'spark = start_session(app="test", conf={"spark.driver.memory": "1g"}, log=log)\n'


def start(folder: Path, code: str, *, first: str = START, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + first + textwrap.dedent(code), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def run(folder: Path, code: str, **options: str) -> tuple[object, str]:
    """What the code printed last, as JSON, and all that came on standard error."""
    process = start(folder, code, **options)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1]), err


def until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.fixture
def path_without_java(tmp_path) -> str:
    """Every command of this machine except java."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for command in Path(place).glob("*"):
            if command.name != "java" and not (folder / command.name).is_symlink():
                (folder / command.name).symlink_to(command)
    return str(folder)


def test_a_session_works_is_quiet_and_is_one(tmp_path):
    answer, err = run(
        tmp_path,
        """
        add_catalog(spark, "lake", uri=str(log.parent / "catalog.db"), warehouse=str(log.parent / "warehouse"))
        spark.sql("CREATE NAMESPACE lake.silver")
        spark.range(3).writeTo("lake.silver.numbers").create()
        spark.sql("DELETE FROM lake.silver.numbers WHERE id = 1")
        rows = sorted(row.id for row in spark.table("lake.silver.numbers").collect())
        hour = spark.sql("SELECT CAST(TIMESTAMP_SECONDS(0) AS STRING) AS t").first().t
        spark._jvm.java.lang.System.err.println("said by Java itself")
        again = start_session(app="other", conf={"spark.driver.memory": "1g"}, log=log.with_name("second.log"))
        spark._jvm.org.apache.spark.SparkContext  # the gateway knows Spark's packages
        spark._jvm.org.slf4j.LoggerFactory.getLogger("here").warn("said in the second log")
        names = ("spark.sql.ansi.enabled", "spark.ui.enabled", "spark.driver.bindAddress")
        print(json.dumps([rows, hour, again is spark, [spark.conf.get(name) for name in names]]))
        """,
    )
    assert answer == [[0, 2], "1970-01-01 00:00:00", True, ["true", "false", "127.0.0.1"]]
    assert err == ""
    assert "said by Java itself" in (tmp_path / "spark.log").read_text()
    assert "said in the second log" in (tmp_path / "second.log").read_text()
    assert "said in the second log" not in (tmp_path / "spark.log").read_text()
    assert not (tmp_path / "spark-warehouse").exists()


def test_python_functions_run_on_this_python(tmp_path):
    answer, _ = run(
        tmp_path,
        """
        from pyspark.sql.functions import udf
        prefix = spark.range(1).select(udf(lambda _: sys.prefix)("id")).first()[0]
        print(json.dumps(prefix))
        """,
    )
    assert answer == sys.prefix


def test_a_setting_that_needs_another_process_is_refused_and_a_stopped_session_starts_again(tmp_path):
    answer, _ = run(
        tmp_path,
        """
        from icefield.errors import SessionError
        try:
            start_session(app="test", conf={"spark.driver.memory": "2g"}, log=log)
        except SessionError as error:
            refused = str(error)
        stop_session(wait=True)
        spark = start_session(app="test", conf={"spark.master": "local[1]"}, log=log)
        print(json.dumps([refused, spark.range(5).count(), spark.sparkContext.master]))
        """,
    )
    refused, count, master = answer
    assert "spark.driver.memory = '1g'" in refused
    assert (count, master) == (5, "local[1]")


@pytest.mark.thorough
def test_java_from_the_wheel(tmp_path, path_without_java):
    answer, err = run(
        tmp_path,
        """
        add_catalog(spark, "lake", uri=str(log.parent / "catalog.db"), warehouse=str(log.parent / "warehouse"))
        spark.sql("CREATE NAMESPACE lake.silver")
        spark.range(3).writeTo("lake.silver.numbers").create()
        version = spark._jvm.java.lang.System.getProperty("java.specification.version")
        print(json.dumps([version, spark.table("lake.silver.numbers").count()]))
        """,
        PATH=path_without_java,
        JAVA_HOME="",
    )
    assert answer == ["21", 3]
    assert err == ""


@pytest.mark.parametrize("way", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_the_jvm_dies_with_its_python(tmp_path, way):
    code = "print(spark._sc._gateway.proc.pid, flush=True); time.sleep(99)"
    process = start(tmp_path, code, TMPDIR=str(tmp_path))
    assert process.stdout
    jvm = int(process.stdout.readline())
    assert is_running(jvm)
    process.send_signal(way)
    process.communicate(timeout=30)
    assert until(lambda: not is_running(jvm))
    assert list(tmp_path.glob("icefield-*")) == [], "the gateway's secret is not left behind"


def test_ctrl_c_is_left_to_python(tmp_path):
    process = start(
        tmp_path,
        """
        import threading
        told = threading.Event()
        signal.signal(signal.SIGINT, lambda *_: told.set())
        print("ready", flush=True)
        told.wait()
        print(spark.range(7).count())
        """,
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        out, err = process.communicate(timeout=60)
    assert out.strip() == "7", err


def test_a_heap_that_java_refuses_is_one_paragraph(tmp_path):
    answer, _ = run(
        tmp_path,
        """
        from icefield.errors import SessionError
        try:
            start_session(app="test", conf={"spark.driver.memory": "900000g"}, log=log)
        except SessionError as error:
            print(json.dumps(str(error)))
        """,
        first="",
    )
    assert "ICE-503 Java exited with code 1" in answer
    assert "spark.driver.memory" in answer
    assert str(tmp_path / "spark.log") in answer


@pytest.mark.parametrize("content", [b"", b"\0" * 100_000, b"rubbish" * 10_000], ids=["empty", "half", "rubbish"])
def test_no_class_archive_can_break_a_start(tmp_path, content):
    """Neither one that a killed JVM left half-written, nor one that went bad."""
    from icefield.engine.session.class_archive import use_archive
    from icefield.engine.session.jars import ensure_jars
    from icefield.engine.session.java import find_java
    from icefield.engine.session.jvm import class_path

    classes = class_path(ensure_jars(), {})
    use = use_archive(find_java(), classes, tmp_path / "classes")
    os.close(use.lock)
    (growing,) = (Path(flag.split("=", 1)[1]) for flag in use.flags if "ArchiveClassesAtExit" in flag)
    growing.write_bytes(content)
    after = use_archive(find_java(), classes, tmp_path / "classes")
    if not any(content[:4]):
        os.close(after.lock)
        assert not growing.exists()
        return
    java = subprocess.run(
        [find_java().executable, "-cp", ":".join(map(str, classes)), *after.flags, "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert java.returncode == 0, java.stdout + java.stderr
