"""Runs commands in this process, as a shell would see them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from icefield.cli.app import build_app, reordered
from projects import NOBODY, SOURCES

HEAVY = ("pyspark", "pyiceberg", "duckdb", "polars", "pandas", "pyarrow")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left: its exit code, its result and what it said beside it."""

    code: int
    out: str
    err: str


def icefield(*arguments: str, stdin: str | None = None) -> Done:
    given = reordered(arguments)
    done = CliRunner().invoke(build_app(given), given, input=stdin, prog_name="icefield")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(code=done.exit_code, out=done.stdout, err=done.stderr)


def icefield_as_nobody(*commands: list[str]) -> list[Done]:
    """Runs commands one after the other in a process of a user whom permissions bind."""
    script = (
        "import json, os, sys\n"
        "from commands import icefield\n"
        "commands = json.loads(sys.argv[1])\n"
        "for command in commands:\n"  # Python itself may be where nobody reaches it: imported is what was used before
        "    icefield(*command) if command[0] != 'run' else icefield('run', '--help')\n"
        f"if os.getuid() == 0: os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "for command in commands:\n"
        "    done = icefield(*command)\n"
        "    print(json.dumps([done.code, done.out, done.err]))\n"
    )
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(commands)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCES, here, here.parent)))},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [Done(*json.loads(line)) for line in done.stdout.splitlines()]


def lines(text: str) -> list[str]:
    """The lines that say something, with the spaces between columns evened out."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def imported(arguments: list[str]) -> list[str]:
    """What of the heavy packages a command of its own process has imported by its end."""
    script = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('heavy', *[n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr))\n"
        "from icefield.cli import main\nmain()"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, env=environment, check=True
    )
    return done.stderr.splitlines()[-1].split()[1:]
