"""Checks that compare tables: which of them a run has to evaluate, and when."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icefield.declare import Reconciles
from icefield.graph import owner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from icefield.engine.checks.references import Held
    from icefield.engine.checks.results import CheckResult
    from icefield.engine.checks.view import TableView
    from icefield.engine.refresh.stage import Stage
    from icefield.engine.refresh.staged import Staged
    from icefield.graph import Graph
    from icefield.graph.state import TableState


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """One check of a table that names other tables."""

    owner: str
    number: int
    tables: frozenset[str]

    @property
    def label(self) -> str:
        """A name that no table has."""
        return f"check {self.number} of {self.owner}"

    @property
    def needs(self) -> frozenset[str]:
        """The declared tables that have to be staged before it can be evaluated."""
        return frozenset(map(owner_of, self.tables))


@dataclass(frozen=True, slots=True)
class Across:
    """Evaluates checks across tables: `states` are those on the branch, `published` those before the run."""

    stage: Stage
    graph: Graph
    states: Mapping[str, TableState]
    published: Mapping[str, TableState]
    staged: Mapping[str, Staged]
    #: Tables that this run was to refresh: one that is missing now could not be made.
    due: Collection[str]
    #: A dry run refreshes only some of the tables that a real one would: only their own checks are evaluated.
    partial: bool = False
    _done: set[CrossCheck] = field(default_factory=set)
    _looked: set[str] = field(default_factory=set)
    _seen: dict[str, TableView] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _held: dict[str, Held] = field(default_factory=dict)

    def open(self, *, early: bool = False) -> dict[str, CrossCheck]:
        """The checks that are still to be evaluated, by label; `early`: without `reconciles`, which share one query."""
        from icefield.engine.checks.audit import cross_checks  # noqa: PLC0415 - pyspark

        every = [
            CrossCheck(name, number, frozenset({name, *check.named_tables}))
            for name in self.graph.order
            if not self.partial or name in self.due
            for number, check in enumerate(cross_checks(self.graph[name]))
            if not (early and isinstance(check, Reconciles))
        ]
        return {check.label: check for check in every if check not in self._done}

    def reopen(self, tables: Collection[str]) -> None:
        """Has the checks that name one of these tables, which were withdrawn, evaluated again."""
        self._done.difference_update([check for check in self._done if not check.tables.isdisjoint(tables)])
        for name in tables:
            self._seen.pop(name, None)

    def foresee(self) -> None:
        """Evaluates the amounts of all open checks by one query; an error is reported by the check itself."""
        from icefield.engine.checks.aggregates import foresee  # noqa: PLC0415 - pyspark
        from icefield.engine.checks.audit import cross_checks  # noqa: PLC0415

        wanted = []
        for one in self.open().values():
            check = cross_checks(self.graph[one.owner])[one.number]
            if isinstance(check, Reconciles) and one.owner in self.states and any(map(self._changed, one.tables)):
                wanted += [(self._read(table), amount) for table, amount in check.amounts.items()]
        asked = {(id(seen.amounts), amount): (seen.amounts, amount) for seen, amount in wanted if seen is not None}
        foresee([one for one in asked.values() if one[0] is not None])

    def result(self, check: CrossCheck) -> CheckResult | None:
        """The result of a check; None where nothing that this run did can make it fail."""
        from icefield.engine.checks.audit import cross_result  # noqa: PLC0415 - pyspark
        from icefield.engine.checks.references import Held  # noqa: PLC0415

        self._done.add(check)
        changed = any(map(self._changed, check.tables))
        if check.owner not in self.states or not changed:
            return None
        before = self.published.get(check.owner)
        held = self._held.setdefault(check.owner, Held(before.held if before is not None else {}))
        node = self.graph[check.owner]
        return cross_result(node, check.number, self._read, self.stage.scratch(node), held, self.due)

    def _changed(self, name: str) -> bool:
        """Whether this run changed a table, or what waits in the quarantine of one."""
        staged = self.staged.get(owner_of(name))
        return staged is not None and (staged.changed if owner_of(name) == name else name in staged.tables)

    def _read(self, name: str) -> Any:
        from icefield.engine.checks.table_views import empty_view, view_of  # noqa: PLC0415 - pyspark

        self._looked.add(name)
        if (state := self.states.get(name)) is None:
            owner = self.states.get(owner_of(name))
            return None if owner is None or owner.name == name else empty_view(self.stage.tables, owner)
        if owner_of(name) != name:
            return view_of(self.stage.tables, state, None, None)
        with self._guard:
            if name not in self._seen:
                self._seen[name] = view_of(self.stage.tables, state, self.published.get(name), self.staged.get(name))
            return self._seen[name]

    @property
    def relied(self) -> frozenset[str]:
        """The tables that checks read, or looked for: they must not change until the run is published."""
        return frozenset(self._looked)

    def remember(self) -> None:
        """Stores amounts and references with the staged tables, from which the next run continues."""
        for name, seen in self._seen.items():
            if name in self.staged:
                self.staged[name].keep_amounts(seen)
        for name, held in self._held.items():
            if name in self.staged:
                self.staged[name].keep_held(held.now)
