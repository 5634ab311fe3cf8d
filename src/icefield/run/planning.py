"""Gathers what the pure planner needs: the lake's state from metadata, and what lies in the landing folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.declare import Files
from icefield.engine.landing import arrivals
from icefield.graph import select
from icefield.lake.scan import taken_files
from icefield.plan import Plan, Wishes, make_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icefield.graph.state import Arrivals, TableState
    from icefield.lake.embedded import EmbeddedLake
    from icefield.project import Project


def plan_project(
    project: Project,
    lake: EmbeddedLake,
    states: Mapping[str, TableState],
    *,
    selection: tuple[str, ...],
    wishes: Wishes,
) -> Plan:
    """What a run of these tables would do now."""
    arrived = {
        name: found
        for name in selection
        if (found := _arrivals(project, lake, name, states.get(name), wishes)) is not None
    }
    return make_plan(project.graph, states, arrived, selection, wishes)


def selected(project: Project, select_text: str = "", exclude: str = "") -> tuple[str, ...]:
    """The tables that a selection names; without one, all."""
    return select(project.graph, select_text or "*", exclude=exclude)


def _arrivals(
    project: Project, lake: EmbeddedLake, name: str, state: TableState | None, wishes: Wishes
) -> Arrivals | None:
    node = project.graph[name]
    if not isinstance(node.source, Files):
        return None
    known = state.files if state is not None else None
    found = arrivals(project.root, node.source, known, lambda: taken_files(lake, name))
    rebuild = state is not None and (
        wishes.full_refresh
        or state.fingerprint != node.fingerprint
        or state.checks_fingerprint != node.checks_fingerprint
        or found.news
    )
    if rebuild and not found.taken:  # the order of arrival is data: a rebuild keeps it
        return _with_history(project, lake, node.source, name)
    return found


def _with_history(project: Project, lake: EmbeddedLake, source: Files, name: str) -> Arrivals:
    from icefield.graph.state import FilesTaken  # noqa: PLC0415

    return arrivals(project.root, source, FilesTaken(count=-1, digest=""), lambda: taken_files(lake, name))
