"""Which version of each table a reader sees: all tables from one read of the catalog, now or as a run left them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.declare.suggest import did_you_mean
from icefield.errors import NoLake, NothingPublished, UnknownRun
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from icefield.lake.embedded import EmbeddedLake
    from icefield.lake.metadata import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One table at one version."""

    table: str
    location: str
    metadata: Metadata
    snapshot: int | None

    @property
    def is_current(self) -> bool:
        """Whether the metadata file itself stands at this version; if not, an older snapshot of it is read."""
        return self.snapshot == _current(self.metadata)


def pin_now(lake: EmbeddedLake) -> dict[str, Pin]:
    """The published lake, from one read of its pointers."""
    return _pins(_pointers(lake))


def pin_branch(lake: EmbeddedLake, run: str) -> dict[str, Pin]:
    """The lake as an unpublished run sees it: one that is going on, or a failed one whose branch is kept."""
    _pointers(lake)
    branches = {owner: branch for branch, owner in lake.catalog.branches().items()}
    found = [owner for owner in branches if owner.startswith(run)]
    if len(found) != 1:
        raise UnknownRun(
            f"{'several runs' if found else 'no run'} with staged tables {'start' if found else 'starts'} with `{run}`",
            where=str(lake.root),
            remedy=f"runs with staged tables: {', '.join(sorted(branches)) or 'none'}; for a published run use"
            " --as-of RUN",
        )
    return _pins(lake.pointers(branches[found[0]]))


def pin_as_of(lake: EmbeddedLake, moment: str, read_runs: Callable[[Pin], Sequence[tuple[str, str]]]) -> dict[str, Pin]:
    """The whole lake as a run (its id, or the unique beginning of one) left it, or as it was at a time."""
    now = pin_now(lake)
    runs = read_runs(now["ops.runs"]) if "ops.runs" in now else ()
    at_ms = _moment(moment, runs, now)
    then = {name: pin for name, current in now.items() if (pin := _as_of(current, at_ms)) is not None}
    if "ops.runs" in now and "ops.runs" not in then and (then or _is_shortened(now["ops.runs"].metadata)):
        raise UnknownRun(f"the state of the lake at {moment} is no longer available", remedy=_listed(runs))
    if not then:
        raise NothingPublished(f"nothing had been published by {moment}", where=str(lake.root), remedy=_listed(runs))
    return then


def _is_shortened(history: Metadata) -> bool:
    """Whether there were versions before the oldest that is kept; `ops.runs` has one for every version of a lake."""
    log = history.get("snapshot-log", [])
    first = meta.snapshot(history, log[0]["snapshot-id"]) if log else None
    return first is not None and first.get("parent-snapshot-id") is not None


def _pointers(lake: EmbeddedLake) -> dict[str, str]:
    if not lake.exists:
        raise NoLake(lake.root)
    lake.require_in_place()
    return lake.pointers()


def _pins(pointers: Mapping[str, str]) -> dict[str, Pin]:
    return {name: _pin(name, location) for name, location in sorted(pointers.items())}


def _pin(table: str, location: str) -> Pin:
    metadata = meta.load(location, table)
    return Pin(table=table, location=location, metadata=metadata, snapshot=_current(metadata))


def _current(metadata: Metadata) -> int | None:
    snapshot = metadata.get("current-snapshot-id")
    return None if snapshot in (None, -1) else int(snapshot)


def _as_of(pin: Pin, at_ms: int) -> Pin | None:
    """A table as it stood then: the snapshot of that time, with the columns of that time where they are still known.

    What is kept of a lake's versions is kept of all its tables, and their logs tell it; a metadata file may still be
    there of a version that the others no longer have.
    """
    if pin.metadata["last-updated-ms"] <= at_ms:
        return pin
    snapshot = meta.as_of(pin.metadata, at_ms)
    for entry in reversed(pin.metadata.get("metadata-log", [])):
        if entry["timestamp-ms"] <= at_ms:
            if meta.local_path(entry["metadata-file"]).exists():
                then = _pin(pin.table, entry["metadata-file"])
                if then.snapshot == snapshot:
                    return then
            break
    if snapshot is None:
        return None
    return Pin(table=pin.table, location=pin.location, metadata=pin.metadata, snapshot=snapshot)


def _moment(moment: str, runs: Sequence[tuple[str, str]], now: Mapping[str, Pin]) -> int:
    """The time meant, in milliseconds; what is the beginning of a run's id is that run."""
    found = [(run, status) for run, status in runs if run.startswith(moment)]
    published = [run for run, status in found if status == "published"]
    if len(published) > 1:
        raise UnknownRun(
            f"several runs start with `{moment}`: {', '.join(published)}", remedy="write more characters of the id"
        )
    if published:
        history = now["ops.runs"].metadata
        at_ms = meta.run_published_at(history, published[0])
        if at_ms not in [entry["timestamp-ms"] for entry in history.get("snapshot-log", [])] or at_ms is None:
            raise UnknownRun(
                f"the state of the lake after run {published[0]} is no longer available", remedy=_listed(runs)
            )
        return at_ms
    if found:
        run, status = found[0]
        raise UnknownRun(
            f"run {run} {status}, so it published nothing",
            remedy=f"look at what it staged: icefield sql --run {run} ..., or choose another run; {_listed(runs)}",
        )
    return _time(moment, runs)


def _time(text: str, runs: Sequence[tuple[str, str]]) -> int:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        near = did_you_mean(text, [run for run, status in runs if status == "published"][-12:], all_of_them="runs")
        raise UnknownRun(
            f"`{text}` is neither a run in this lake nor a time such as 2026-11-15T12:00", remedy=near
        ) from None
    aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    return int(aware.timestamp() * 1000)


def _listed(runs: Sequence[tuple[str, str]]) -> str:
    published = [run for run, status in runs if status == "published"]
    return f"published runs, newest first: {', '.join(published[:-7:-1]) or 'none'}"
