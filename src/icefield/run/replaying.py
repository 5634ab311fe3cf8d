"""Replays and discards: which waiting rows they are about, what later runs are to know of it, what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icefield.graph import quarantine_of
from icefield.lake.duckdb_scan import repaired, repairs
from icefield.run.events import Replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    import pyarrow as pa

    from icefield.engine.promises.analyse import Derived
    from icefield.engine.quarantine.repair import Decided
    from icefield.engine.quarantine.waiting import Waiting
    from icefield.engine.refresh.staged import Staged
    from icefield.engine.tables import Tables
    from icefield.graph import Graph
    from icefield.graph.state import Repair, TableState
    from icefield.lake.embedded import EmbeddedLake


class NothingToReplay(Exception):
    """No quarantined row matches, or none that can be replayed."""

    def __init__(self, replayed: tuple[Replayed, ...]) -> None:
        super().__init__("no quarantined row matches")
        self.replayed = replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One quarantine that a run was asked to replay; without a repair its rows are only checked again."""

    table: str
    repair: Repair | None

    def told(self, waiting: Waiting | None, still: int, reasons: Mapping[str, int] | None = None) -> Replayed:
        """What became of the rows; `still` of those that something could be done about wait on."""
        kind = self.repair.kind if self.repair is not None else "replay"
        if waiting is None:
            return Replayed(table=self.table, kind=kind, matched=0)
        unreadable = waiting.unreadable
        return Replayed(
            table=self.table,
            kind=kind,
            matched=waiting.matched,
            unreadable=unreadable,
            waiting=still + unreadable,
            reasons=reasons or {},
        )


def wanted_replays(tables: Collection[str], repairs: Collection[Repair]) -> tuple[Replay, ...]:
    """What is to be replayed: each table with the repairs for it, or as it is."""
    repaired_tables = {repair.table for repair in repairs}
    plain = [Replay(table=table, repair=None) for table in tables if table not in repaired_tables]
    return (*plain, *(Replay(table=repair.table, repair=repair) for repair in repairs))


def require_waiting_rows(replays: Collection[Replay], states: Mapping[str, TableState]) -> None:
    """Ends it where no row waits at all; told by metadata alone, before anything is started."""
    waiting = [states[name].rows for replay in replays if (name := quarantine_of(replay.table)) in states]
    if replays and not any(waiting):
        raise NothingToReplay(tuple(replay.told(None, 0) for replay in replays))


def decided_before(lake: EmbeddedLake, states: Mapping[str, TableState], wanted: Collection[str]) -> dict[str, Decided]:
    """What was decided about quarantines by earlier runs; `wanted` are tables about which more is decided now.

    What was decided about a table before it was dropped no longer counts, but its numbers are not given again.
    """
    from icefield.engine.quarantine.repair import Decided  # noqa: PLC0415 - real runs only

    found = {}
    for name, state in states.items():
        if state.repairs or name in wanted:
            known = repairs(lake, name)
            own = dict(list(known.items())[len(known) - state.repairs :])
            decided = Decided(repairs=own, last=max(known, default=0))
            rows = repaired(lake, name) if own else None
            found[name] = decided if rows is None else replace(decided, rows=rows)
    return found


@dataclass(slots=True, kw_only=True)
class Replaying:
    """The replays of one run, from the rows they find waiting to what became of these."""

    waiting: dict[Replay, Waiting] = field(default_factory=dict)
    decided: dict[str, Decided] = field(default_factory=dict)
    numbers: dict[Replay, int] = field(default_factory=dict)

    def find(
        self,
        replays: Collection[Replay],
        tables: Tables,
        graph: Graph,
        derived: Derived,
        scratch: Path,
    ) -> None:
        """Finds the rows that each is about; ends it where there are none, before anything is rebuilt.

        Conditions are Spark SQL, and only Spark can tell what they mean.
        """
        from icefield.engine.quarantine.repair import Decided  # noqa: PLC0415
        from icefield.engine.quarantine.waiting import waiting  # noqa: PLC0415

        for number, replay in enumerate(replays):
            node, place = graph[replay.table], scratch / replay.table / f"replay-{number}"
            self.waiting[replay] = waiting(tables, node, derived.schemas[node.name], replay.repair, place)
        if replays and not any(found.rows.num_rows for found in self.waiting.values()):
            raise NothingToReplay(tuple(replay.told(found, 0) for replay, found in self.waiting.items()))
        for replay, found in self.waiting.items():
            if replay.repair is not None and found.rows.num_rows:
                before = self.decided.get(replay.table) or Decided(repairs={})
                self.numbers[replay] = before.next_number()
                self.decided[replay.table] = before.plus(replay.repair, found.rows)

    def tell(self, tables: Tables, staged: Mapping[str, Staged]) -> tuple[Replayed, ...]:
        """What became of the rows, of all tables that were staged."""
        from icefield.engine.quarantine.waiting import still_waiting  # noqa: PLC0415

        told = []
        for replay, found in self.waiting.items():
            if replay.table in staged:
                still, reasons = still_waiting(tables, replay.table, found)
                mended = staged[replay.table].mended
                if still and mended is not None and replay.repair is not None and replay.repair.kind == "replay":
                    reasons = mended.reasons() or reasons  # what still fails once the values are set
                told.append(replay.told(found, still, reasons if still else None))
        return tuple(told)

    def records(self, staged: Collection[str]) -> list[tuple[int, Repair]]:
        """What `ops.repairs` is to remember: each decision and its number."""
        numbers = self.numbers.items()
        return [(number, r.repair) for r, number in numbers if r.repair is not None and r.table in staged]

    def rows(self, staged: Collection[str], contents: Callable[[str], Mapping[int, str]]) -> pa.Table | None:
        """What `ops.repaired` is to remember: the rows that the decisions are about.

        `contents` gives, for a table, the content of what it took in by its place in the order of arrival.
        """
        import pyarrow as pa

        from icefield.engine.origin import ARRIVAL, LINE  # noqa: PLC0415

        found = []
        for replay, number in self.numbers.items():
            if replay.table not in staged or not (digests := contents(replay.table)):
                continue
            about = self.waiting[replay].rows
            one = {
                "table": pa.array([replay.table] * about.num_rows),
                "number": pa.array([number] * about.num_rows, pa.int64()),
                "arrival": about[ARRIVAL],
                "line": about[LINE],
                "sha256": pa.array([digests[arrival] for arrival in about[ARRIVAL].to_pylist()]),
            }
            found.append(pa.table(one))
        return pa.concat_tables(found) if found else None
