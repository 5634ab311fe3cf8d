"""Gathers what the pure planner needs: the lake's state from metadata, and what lies in the landing folders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icefield.declare import Files
from icefield.engine.intake.landing import arrivals, take
from icefield.errors import IcefieldError, NoTables, SourceError
from icefield.graph import select
from icefield.graph.state import FilesTaken
from icefield.lake.scan import changed_rows, taken_files
from icefield.plan import Plan, Step, Wishes, make_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icefield.graph.state import Arrivals, TableState
    from icefield.lake.embedded import EmbeddedLake
    from icefield.project import Project


#: How long a line of a file is, more or less.
_LINE_BYTES = 80


def plan_project(
    project: Project,
    lake: EmbeddedLake,
    states: Mapping[str, TableState],
    *,
    selection: tuple[str, ...],
    wishes: Wishes,
    foresee: bool = False,
) -> Plan:
    """What a run of these tables would do now.

    `foresee`: files that would be read are looked into, so that a wrong header is told before a run meets it.
    """
    known = {name: states[name].files for name in selection if name in states}
    arrived: dict[str, Arrivals] = {}
    problems: dict[str, IcefieldError] = {}
    for name in selection:
        try:
            if (found := _arrivals(project, lake, name, known.get(name))) is not None:
                arrived[name] = found
        except SourceError as problem:
            problems[name] = problem
    plan = make_plan(project.graph, states, arrived, selection, wishes, problems)
    # The order of arrival is data, and a rebuild keeps it; it is only read where something is to be done.
    remembered = [step.table for step in plan.work if step.table in known and _lacks_history(step)]
    for name in remembered:
        whole = _arrivals(project, lake, name, FilesTaken(count=-1, digest=""))
        assert whole is not None
        arrived[name] = whole
    if remembered:
        plan = make_plan(project.graph, states, arrived, selection, wishes, problems)
    if foresee:
        plan = replace(plan, steps=tuple(_foreseen(project, step) for step in plan.steps))
    return _counted(plan, lake)


def _foreseen(project: Project, step: Step) -> Step:
    """The step, or why a run would refuse it once it looked into the files."""
    source, arrived = project.graph[step.table].source, step.arrivals
    if arrived is None or not isinstance(source, Files) or step.action in ("none", "note", "refused"):
        return step
    files = arrived.new if step.action in ("append", "update") else arrived.landed
    for file in files[-_LOOKED_INTO:]:
        try:
            take(project.root, file, source, arrival=0, taken_ms=0)
        except IcefieldError as problem:
            return replace(step, action="refused", reason=problem.what, problem=problem)
    return step


#: Of so many files, the last ones, the first line is looked at before a run.
_LOOKED_INTO = 200


def _counted(plan: Plan, lake: EmbeddedLake) -> Plan:
    """The plan with how many rows changed in each input, for steps that follow changes that are published."""
    return replace(plan, steps=tuple(_with_counts(step, lake) for step in plan.steps))


def _with_counts(step: Step, lake: EmbeddedLake) -> Step:
    if step.action not in ("append", "update"):
        return step
    counts = {name: changed_rows(lake, name, wanted) for name, wanted in step.ranges.items() if wanted.changed}
    return replace(step, changed=counts)


def rows_at_stake(plan: Plan, states: Mapping[str, TableState]) -> int:
    """Roughly how many rows the work of a plan reads, as far as that is known before."""
    return sum(_rows_read(step, states) for step in plan.work)


def _rows_read(step: Step, states: Mapping[str, TableState]) -> int:
    landed = 0
    if step.arrivals is not None:
        files = step.arrivals.new if step.action == "append" else step.arrivals.landed
        landed = sum(file.size for file in files) // _LINE_BYTES
    if step.action in ("append", "update"):  # new rows only, but their keys are looked for among all
        return landed + sum(step.changed.values()) + (states[step.table].rows if step.table in states else 0) // 10
    return landed + sum(states[name].rows for name in step.ranges if name in states)


def _lacks_history(step: Step) -> bool:
    """Even where no file is there: a rebuild must know what it lacks."""
    return step.arrivals is not None and not step.arrivals.taken


def selected(project: Project, select_text: str = "", exclude: str = "") -> tuple[str, ...]:
    """The tables that a selection names; without one, all."""
    if not len(project.graph):
        raise NoTables(
            "the project declares no tables",
            where=str(project.root),
            remedy="put @table(...) above a function in one of the files listed under `tables` in icefield.toml",
        )
    return select(project.graph, select_text, exclude=exclude)


def _arrivals(project: Project, lake: EmbeddedLake, name: str, known: FilesTaken | None) -> Arrivals | None:
    source = project.graph[name].source
    if not isinstance(source, Files):
        return None
    return arrivals(project.root, source, known, lambda: taken_files(lake, name))
