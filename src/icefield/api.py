"""The Python API: run a project and read its lake, in scripts and notebooks."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.lake.embedded import EmbeddedLake
from icefield.lake.history import TableVersion, history
from icefield.project import open_project
from icefield.project.config import find_project, read_config
from icefield.query import Reader, Result, open_reader
from icefield.query.overview import columns
from icefield.run.batches import run_due
from icefield.run.events import silent
from icefield.run.planning import look_for_due, plan_project, selected
from icefield.run.request import RunRequest
from icefield.run.verifying import verify_project
from icefield.run.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa

    from icefield.engine.verdict import Verdict
    from icefield.plan import Due, Plan
    from icefield.project import Project
    from icefield.query import Pin
    from icefield.run.events import Listener, RunResult
    from icefield.run.watch import Teller


class Lake:
    """The lake of a project, for one of its profiles.

        lake = Lake("pipelines/ecommerce")
        lake.run()
        lake.table("gold.customer_summary").to_polars()
        lake.sql("SELECT customer_segment, count(*) FROM gold.customer_summary GROUP BY 1").rows()

    With `as_of`, a run's id (or a unique prefix of one) or a time, every read returns the lake as of then:

        Lake("pipelines/ecommerce", as_of="20261115T120000-a1b2c3").table("gold.daily_metrics").to_pandas()
        Lake("pipelines/ecommerce", as_of="2026-11-15T12:00")        # UTC unless it has an offset
    """

    def __init__(
        self, path: Path | str = ".", profile: str | None = None, as_of: str | dt.datetime | None = None
    ) -> None:
        self.path = Path(path)
        self.profile = profile
        self.as_of = as_of.isoformat() if isinstance(as_of, dt.datetime) else as_of
        self._reader: Reader | None = None
        self._seen: dict[str, str] = {}
        self._folder  # noqa: B018 - a wrong path or profile is said here, not at the first read

    def __repr__(self) -> str:
        moment = f", as_of={self.as_of!r}" if self.as_of else ""
        return f"Lake({str(self.path)!r}{moment})"

    @property
    def project(self) -> Project:
        """The project, loaded from its current files; in a notebook they may change during the life of a `Lake`."""
        return open_project(self.path, self.profile)

    @property
    def _folder(self) -> Path:
        """Where the lake is; asked without the project's code, so that reading works while that is broken."""
        return read_config(find_project(self.path), self.profile).profile.lake

    def run(
        self,
        select: str | Iterable[str] = "",
        exclude: str | Iterable[str] = "",
        *,
        full_refresh: bool = False,
        keep_going: bool = False,
        accept: str | Iterable[str] = (),
        batch: str = "",
        listener: Listener = silent,
    ) -> RunResult:
        """Ingests new files, refreshes the affected tables, checks them, and publishes everything atomically.

        result = lake.run(select="+gold.customer_summary")
        result.ok, result.run, result.status        # (True, '20261115T120000-a1b2c3', 'published')
        """
        order = RunRequest(
            select=_selector(select),
            exclude=_selector(exclude),
            full_refresh=full_refresh,
            keep_going=keep_going,
            accept=_names(accept),
            batches=(batch, batch),
        )
        return run_due(self.project, order, listener)

    def watch(
        self,
        select: str | Iterable[str] = "",
        exclude: str | Iterable[str] = "",
        *,
        every: float = 0.0,
        max_rows: int | None = None,
        runs: int | None = None,
        tell: Teller = lambda happening: None,
        listener: Listener = silent,
    ) -> int:
        """Runs again whenever a source has news, until Ctrl-C or until so many runs are published; how many it were.

        `every` is the least number of seconds between the starts of two runs. `tell` hears of every run, failure and
        reload of the project.

        lake.watch(every=10, runs=100, tell=print)
        """
        order = RunRequest(select=_selector(select), exclude=_selector(exclude), max_rows=max_rows)
        loop = Watch(open_again=lambda: self.project, order=order, tell=tell, listener=listener, every=every, runs=runs)
        loop.carry_out()
        return loop.done

    def plan(
        self,
        select: str | Iterable[str] = "",
        exclude: str | Iterable[str] = "",
        *,
        full_refresh: bool = False,
        accept: str | Iterable[str] = (),
    ) -> Plan:
        """Returns what a run would do now, and why, without starting Spark or changing anything.

        [(step.table, step.action, step.reason) for step in lake.plan().work]
        """
        project, order = self.project, RunRequest(full_refresh=full_refresh, accept=_names(accept))
        lake = EmbeddedLake(project.profile.lake)
        lake.require_in_place()
        selection = selected(project, _selector(select), _selector(exclude))
        return plan_project(project, lake, lake.states(), selection=selection, wishes=order.wishes)

    def due(self, select: str | Iterable[str] = "", exclude: str | Iterable[str] = "") -> Due:
        """Returns what waits for a run, and why: files, messages, published inputs, changed code. Starts no Spark.

        if found := lake.due("gold.*"):
            print(found, found.digest)      # the digest stays the same as long as the same things wait
        """
        project = self.project
        return look_for_due(project, selected(project, _selector(select), _selector(exclude)))

    def verify(
        self, select: str | Iterable[str] = "", exclude: str | Iterable[str] = "", *, deep: bool = False
    ) -> list[Verdict]:
        """Compares each table with a recomputation from the inputs that it has read (`deep`: from the source files).

        all(verdict.status == "exact" for verdict in lake.verify("gold.*"))      # True
        """
        project = self.project
        return verify_project(project, selected(project, _selector(select), _selector(exclude)), deep=deep)

    def tables(self) -> tuple[str, ...]:
        """The names of all published tables: declared tables, their auxiliary tables, and `ops.*`."""
        return tuple(self._read().pins)

    def table(self, name: str) -> LakeTable:
        """One table, by its full name or by a unique last part of it.

        lake.table("gold.daily_metrics").to_pandas()
        lake.table("daily_metrics").history()[-1].rows_added
        """
        return LakeTable(self, self._read().pin(name).table)

    def sql(self, query: str) -> Result:
        """Runs a query in DuckDB's SQL dialect over one consistent version of the lake.

        lake.sql("SELECT max(total_revenue) FROM gold.daily_metrics").rows()      # [(Decimal('1234.50'),)]
        """
        return self._read().query(query)

    def _read(self) -> Reader:
        """A reader of what is published now; made again only when something was published since."""
        lake = EmbeddedLake(self._folder)
        now = lake.pointers()
        if self._reader is None or now != self._seen:
            reader, self._seen = open_reader(lake, as_of=self.as_of), now
            if self._reader is not None:
                self._reader.close()
            self._reader = reader
        return self._reader


class LakeTable:
    """One published table. Every call reads the version current at that moment (or the one selected by `as_of`)."""

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake = lake
        self.name = name

    def __repr__(self) -> str:
        return f"<table {self.name} of {self._lake!r}>"

    @property
    def schema(self) -> dict[str, str]:
        """Columns and their Iceberg types.

        lake.table("gold.daily_metrics").schema["total_revenue"]      # 'decimal(18, 2)'
        """
        return {column["name"]: column["type"] for column in columns(self._pin())}

    def count(self) -> int:
        """The number of rows."""
        return self._lake._read().count(self.name)

    def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table; timestamps are in UTC."""
        return self._lake._read().table(self.name).to_arrow()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars DataFrame (`pip install 'icefield[polars]'`)."""
        return self._lake._read().table(self.name).to_polars()

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame (`pip install 'icefield[pandas]'`)."""
        return self._lake._read().table(self.name).to_pandas()

    def history(self) -> tuple[TableVersion, ...]:
        """Every published version, oldest first: when, by which run, rows added and removed, total rows."""
        pin = self._pin()
        versions = history(pin.metadata)
        if pin.is_current:
            return versions
        known = [version.snapshot for version in versions]
        return versions[: known.index(pin.snapshot) + 1] if pin.snapshot in known else versions

    def _pin(self) -> Pin:
        return self._lake._read().pin(self.name)


def _selector(tables: str | Iterable[str]) -> str:
    return tables if isinstance(tables, str) else " ".join(tables)


def _names(tables: str | Iterable[str]) -> tuple[str, ...]:
    return (tables,) if isinstance(tables, str) else tuple(tables)
