"""From the options of a command to what it works on."""

from __future__ import annotations

from pathlib import Path

from icefield.graph import select
from icefield.lake.embedded import EmbeddedLake
from icefield.project import Project
from icefield.project.config import find_project, read_config


def lake_at(path: Path, profile: str | None) -> EmbeddedLake:
    """The lake that a profile points at; the project's code is not looked at, so reading works while it is broken."""
    return EmbeddedLake(read_config(find_project(path), profile).profile.lake)


def lake_of(project: Project) -> EmbeddedLake:
    """A project's lake, refused if its folder was moved."""
    lake = EmbeddedLake(project.profile.lake)
    lake.require_in_place()
    return lake


def accepted(project: Project, names: list[str] | None) -> tuple[str, ...]:
    """The tables of --accept, by the same grammar as --select, so that a misspelt one is noticed."""
    return select(project.graph, names) if names else ()


def undeclared(project: Project, tables: list[str]) -> list[str]:
    """Tables of the lake that no declaration stands behind (any more)."""
    graph = project.graph
    return [table for table in tables if table not in graph and not graph.keeps(table)]


def same_project(path: Path) -> str:
    """The option that a next command needs to mean the same project."""
    return "" if path.resolve() == Path.cwd() else f" -p {path}"
