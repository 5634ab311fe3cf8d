"""Small projects on disk, runs of them in this process or in one of their own, and the rows they leave behind.

    python tests/projects.py ROOT '{"full_refresh": true}'     # one run; its result as a line of JSON

Runs in a process of their own are there to be killed, paused and raced; everything else reuses one warm session.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from icefield.lake.duckdb_scan import connect, scan
from icefield.lake.embedded import EmbeddedLake

SOURCES = Path(__file__).resolve().parents[1] / "src"
VOLATILE = {"ingested_at", "run", "quarantined_at"}
HEADER = "id,customer,amount,at"
#: The user that a test becomes where it runs as root, whom no permission binds.
NOBODY = 65534

#: Settings for a few rows: hundreds of plans are each carried out once, and compiling them would take longest.
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}

ORDERS = """
from pyspark.sql import DataFrame, functions as F
from icefield import append, expect, expect_table, files, full, not_null, one_of, reconciles, table, unique


@table(
    "bronze.orders",
    source=files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"),
    refresh=append(),
    checks=[not_null("customer"), unique("id"), expect("amount is positive", "amount > 0")],
    otherwise="quarantine",
)
def orders(rows: DataFrame) -> DataFrame:
    return rows


@table("silver.sales", refresh=append())
def sales(orders: DataFrame) -> DataFrame:
    return orders.select("id", "customer", "amount", F.to_date("at").alias("day"))


@table("gold.by_customer", refresh=full(), checks=[unique("customer")])
def by_customer(sales: DataFrame) -> DataFrame:
    return sales.groupBy("customer").agg(F.sum("amount").alias("amount"), F.count("*").alias("orders"))
"""


@dataclass(frozen=True, slots=True)
class TinyProject:
    """One project in a folder of a test."""

    root: Path

    @property
    def lake(self) -> EmbeddedLake:
        return EmbeddedLake(self.root / "lake")

    def declare(self, source: str, *, spark: Mapping[str, str] | None = None, more: str = "") -> None:
        """Writes the project's one file of tables, and its icefield.toml."""
        self.root.mkdir(parents=True, exist_ok=True)
        conf = {**QUICK, **(spark or {})}
        settings = "\n".join(f'"{key}" = "{value}"' for key, value in conf.items())
        toml = '[project]\nname = "tiny"\ntables = ["tables.py"]\n[profile.local]\nlake = "lake"\n'
        (self.root / "icefield.toml").write_text(f"{toml}[profile.local.spark]\n{settings}\n{more}")
        (self.root / "tables.py").write_text(dedent(source))

    def land(self, name: str, content: str | bytes | Iterable[str], folder: str = "orders") -> Path:
        """Puts a file into the landing folder, whole at once; lines get the usual header."""
        place = self.root / "landing" / folder
        place.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str | bytes):
            content = "".join(f"{line}\n" for line in (HEADER, *content))
        hidden = place / f".{os.getpid()}.part"
        hidden.write_bytes(content.encode() if isinstance(content, str) else content)
        return hidden.rename(place / name)

    def run(self, **order: Any) -> Any:
        """A run in this process, on the one session it has."""
        from icefield.project import open_project
        from icefield.run.request import RunRequest
        from icefield.run.runner import run_project

        return run_project(open_project(self.root), RunRequest(**{"once": True, **order}))

    def spawn(self, failpoints: str = "", *, script: str = "", **order: Any) -> Process:
        """A run in a process and process group of its own; `script` is Python that the process runs first."""
        return Process.start([str(self.root), json.dumps(order), script], {"ICEFIELD_FAILPOINTS": failpoints})

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        return rows_of(self.lake.pointers()[table])

    def everything(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """All rows of all tables but history, without what differs between two runs."""
        return {t: rows_of(at) for t, at in sorted(self.lake.pointers().items()) if not t.startswith("ops.")}

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """DuckDB over the published lake; tables by their names."""
        return ask(self.lake.pointers(), query)

    def files_of(self, run: str) -> list[Path]:
        """Whatever in the warehouse carries a run's id in its path."""
        return sorted(path for path in self.lake.warehouse.rglob("*") if path.is_file() and run in str(path))


def tiny(root: Path, source: str = ORDERS, **options: Any) -> TinyProject:
    project = TinyProject(root)
    project.declare(source, **options)
    return project


def order(number: int, customer: str = "ann", amount: str = "1.00", at: str = "2026-08-01 10:00:00") -> str:
    return f"{number},{customer},{amount},{at}"


def ask(pointers: Mapping[str, str], query: str) -> list[tuple[Any, ...]]:
    with connect() as db:
        for table, location in pointers.items():
            schema, name = table.split(".")
            db.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            db.execute(f'CREATE VIEW "{schema}"."{name}" AS SELECT * FROM {scan(location)}')
        return db.execute(query).fetchall()


def rows_of(location: str, snapshot: int | None = None) -> Counter[tuple[Any, ...]]:
    """A table's rows as a multiset, columns in the order of their names."""
    with connect() as db:
        source = scan(location, snapshot)
        columns = sorted(row[:2] for row in db.execute(f"DESCRIBE SELECT * FROM {source}").fetchall())
        wanted = ", ".join(_portable(name, kind) for name, kind in columns if name not in VOLATILE)
        return Counter(tuple(map(_hashable, row)) for row in db.execute(f"SELECT {wanted} FROM {source}").fetchall())


def _portable(name: str, kind: str) -> str:
    """A column as DuckDB gives it to Python without further packages."""
    as_text = "TIMESTAMP WITH TIME ZONE" in kind or kind.startswith(("STRUCT", "MAP"))
    return f'CAST("{name}" AS VARCHAR)' if as_text else f'"{name}"'


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@contextmanager
def without_rights(root: Path) -> Iterator[None]:
    """Takes the permission to write away from a folder and all in it, for a while."""
    rights = {path: path.stat().st_mode for path in (root, *root.rglob("*"))}
    for path in rights:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        yield
    finally:
        for path, mode in rights.items():
            path.chmod(mode)


# -- processes


@dataclass(slots=True)
class Process:
    """A run in another process, leader of its own group, its output gathered in a file beside the project."""

    popen: subprocess.Popen[str]

    @classmethod
    def start(cls, arguments: list[str], environment: Mapping[str, str]) -> Process:
        """A run of a project."""
        return cls.start_script([str(Path(__file__).resolve()), *arguments], environment)

    @classmethod
    def start_script(cls, command: list[str], environment: Mapping[str, str]) -> Process:
        """Any Python script, with icefield to import."""
        paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
        return cls(
            subprocess.Popen(
                [sys.executable, *command],
                env={**os.environ, **environment, "PYTHONPATH": paths},
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )

    def end(self, seconds: float = 180) -> Ended:
        """Waits for the end; nothing of its group is left behind."""
        try:
            output, _ = self.popen.communicate(timeout=seconds)
        finally:
            self.kill()
        return Ended(code=self.popen.returncode, output=output)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()

    def tell(self, text: str) -> None:
        """Writes to the process's standard input."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(text)
        self.popen.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.popen.pid, number)

    @property
    def stopped(self) -> bool:
        """Whether the process has paused itself (SIGSTOP)."""
        done, status = os.waitpid(self.popen.pid, os.WNOHANG | os.WUNTRACED)
        if done and not os.WIFSTOPPED(status):
            raise AssertionError(f"the process ended with {status} instead of pausing: {self.popen.stdout.read()}")
        return bool(done)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended, and what it said."""

    code: int
    output: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def result(self) -> dict[str, Any]:
        """The run's result as the process told it."""
        lines = [line for line in self.output.splitlines() if line.startswith('{"run"')]
        assert lines, f"no result, but: {self.output[-3000:]}"
        return dict(json.loads(lines[-1]))


def until(condition: Callable[[], Any], seconds: float = 120, *, what: str = "") -> Any:
    """Waits for a condition; fails when it does not come true in time."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"still not so after {seconds} s: {what or condition}")
        time.sleep(0.01)
    return found


def main(root: str, wanted: str = "{}", script: str = "") -> int:
    from icefield.errors import IcefieldError
    from icefield.project import open_project
    from icefield.run.request import RunRequest
    from icefield.run.runner import run_project

    exec(compile(script, "script", "exec"), {})  # what a test wants to be different in this process
    try:
        result = run_project(open_project(root), RunRequest(**json.loads(wanted)))
    except IcefieldError as error:
        told: dict[str, Any] = {"run": "", "status": "raised", "error": str(error), "code": error.code}
    else:
        tables = {outcome.table: outcome.status for outcome in result.tables}
        told = {"run": result.run, "status": result.status, "error": result.error, "tables": tables}
    print(json.dumps(told), flush=True)
    return 0 if told["status"] in ("published", "nothing new") else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
