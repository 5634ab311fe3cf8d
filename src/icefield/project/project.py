"""A project on disk, opened: its profile and its graph, from the cache where that still holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icefield.declare import Accumulate, Check, Frames, Table
from icefield.errors import ProjectChanged
from icefield.graph import Edge, Graph, build_graph
from icefield.project.cache import read_graph, write_graph
from icefield.project.config import Config, Profile, find_project, read_config
from icefield.project.fingerprint import checks_fingerprint, fingerprint
from icefield.project.load import Loaded, load, ship_by_value
from icefield.project.meaning import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A folder with an icefield.toml, seen through one of its profiles."""

    root: Path
    name: str
    profile: Profile
    graph: Graph


def open_project(path: Path | str = ".", profile: str | None = None) -> Project:
    """Find, read and wire a project; the author's code is imported only if a file of it changed."""
    config = read_config(find_project(path), profile)
    graph = read_graph(config)
    if graph is None:
        loaded = load(config)
        try:
            graph = _graph_of(loaded, config)
            write_graph(config, graph, loaded.files())
        finally:
            loaded.package.unload()
    return Project(root=config.root, name=config.name, profile=config.profile, graph=graph)


class Functions(dict[str, Callable[..., Any]]):
    """The function of each table by its name, the `finish` of those that accumulate, and what makes rows of sources."""

    def __init__(self, tables: Sequence[Table]) -> None:
        super().__init__({table.name: table.function for table in tables})
        kept = {table.name: table.refresh for table in tables if isinstance(table.refresh, Accumulate)}
        self.finishes = {name: refresh.finish for name, refresh in kept.items() if refresh.finish is not None}
        self.frames = {table.name: made for table in tables if (made := _made(table)) is not None}


def _made(table: Table) -> Callable[[], Any] | None:
    sources = [table.source, *(given for given in table.inputs.values() if isinstance(given, Frames))]
    return next((source.function for source in sources if isinstance(source, Frames)), None)


def load_functions(project: Project) -> Functions:
    """Import the author's files and give the function of each table; refused if they changed since the plan."""
    config = read_config(project.root, project.profile.name)
    loaded = load(config)
    for name, node in _graph_of(loaded, config).nodes.items():
        opened = project.graph.nodes.get(name)
        if opened is None or opened.fingerprint != node.fingerprint:
            raise ProjectChanged(
                f"the declaration of {name} changed while icefield was running",
                where=str(node.location),
                remedy="run the command again to use the current files",
            )
    ship_by_value(loaded.package.modules())
    return Functions(loaded.tables)


def _graph_of(loaded: Loaded, config: Config) -> Graph:
    code = Code(config.root, loaded.package.find)

    def fingerprints(table: Table, edges: tuple[Edge, ...], checks: tuple[Check, ...]) -> tuple[str, str]:
        return fingerprint(table, edges, code, config.profile.spark), checks_fingerprint(checks)

    return build_graph(loaded.tables, fingerprints)
