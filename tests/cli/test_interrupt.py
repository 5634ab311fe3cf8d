"""Ctrl-C at any moment of a command: it ends within seconds, with one sentence, and the lake is as it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Done, icefield

from projects import SOURCES, tiny
from projects import order as row

pytestmark = pytest.mark.spark

#: Presses Ctrl-C, for the whole process group as a terminal does, at the moment when a module begins to be imported.
AT_IMPORT = """
import os, signal, sys

class Press:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.killpg(0, signal.SIGINT)

from icefield.cli import main
sys.meta_path.insert(0, Press())
main()
"""
#: Presses Ctrl-C while DuckDB is at work.
IN_A_QUERY = """
import os, signal, threading
from icefield.cli import main
from icefield.query import reader

accepted = reader.require_select

def press_soon(db, text):
    accepted(db, text)
    threading.Timer(0.3, os.killpg, (0, signal.SIGINT)).start()

reader.require_select = press_soon
main()
"""
ENDLESS = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000000) b"
#: From the first import of a command to the last of a run; in the main thread and beside it.
MOMENTS = (
    "typer",
    "icefield.run.runner",
    "pyarrow",
    "numpy",
    "pyspark.sql",
    "pyspark.sql.functions",
    "icefield.engine.refresh.stage",
)
SENTENCES = (
    "Interrupted. Nothing was changed.\n",
    "error ICE-704 the run was interrupted\n  next:  nothing was published; run again at any time\n",
    "Interrupted. Nothing was published and the lake is unchanged; the next run cleans up what this one left behind.\n",
)


def carried_out(script: str, *arguments: str) -> tuple[Done, float]:
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return Done(code=process.returncode, out=out, err=err), time.monotonic() - begun


def test_ctrl_c_while_modules_are_imported_is_told_in_one_sentence_and_the_next_run_works(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [row(1)])
    assert icefield("ls", "-p", str(project.root)).code == 0  # from here on the author's code is imported by runs alone
    for moment in MOMENTS:
        done, _ = carried_out(AT_IMPORT.format(module=moment), "run", "-p", str(project.root))
        told = re.sub(r"\d\d:\d\d:\d\d starting Spark\n", "", done.err)
        assert (done.code, done.out) == (2, ""), f"{moment}: {done.err}"
        assert told in SENTENCES, f"{moment}: {done.err}"
        # a process that was too slow to tidy up is ended, and the next run records its death
        assert set(project.lake.pointers()) <= {"ops.runs"}, moment
    assert icefield("run", "-p", str(project.root)).code == 0


def test_ctrl_c_ends_a_query_at_once(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [row(1)])
    assert project.run().ok
    done, took = carried_out(IN_A_QUERY, "sql", ENDLESS, "-p", str(project.root))
    assert (done.code, done.out, done.err) == (2, "", "Interrupted. Nothing was changed.\n")
    assert took < 60


def test_a_polite_kill_is_the_same(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    script = AT_IMPORT.format(module="icefield.run.runner").replace("SIGINT", signal.SIGTERM.name)
    done, _ = carried_out(script, "run", "-p", str(project.root))
    assert (done.code, done.err) == (2, "Interrupted. Nothing was changed.\n")
