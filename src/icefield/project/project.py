"""A project on disk, opened: its profile and its graph, from the cache where that still holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icefield.declare import Accumulate, Check, Frames, Table
from icefield.errors import ProjectChanged
from icefield.graph import Edge, Graph, build_graph
from icefield.project.cache import digests, made_from, read_graph, write_graph
from icefield.project.config import Config, Profile, find_project, read_config, table_files
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
    #: The files that the graph was read from, by their paths inside of the project, with digests of their content.
    files: Mapping[str, str] = field(default_factory=dict)


def open_project(path: Path | str = ".", profile: str | None = None) -> Project:
    """Find, read and wire a project; the author's code is imported only if a file of it changed."""
    config = read_config(find_project(path), profile)
    graph, files = read_graph(config) or _read(config)
    return Project(root=config.root, name=config.name, profile=config.profile, graph=graph, files=files)


def _read(config: Config) -> tuple[Graph, dict[str, str]]:
    """The graph from the author's files, which are imported for it, and these files; kept for next time."""
    with _loading:
        loaded = load(config)
        try:
            graph = _graph_of(loaded, config)
            files = made_from(config, loaded.files())
            write_graph(config, graph, files)
        finally:
            loaded.package.unload()
    return graph, files


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
    """Import the author's files and give the function of each table; refused if they changed since the plan.

    A process of many runs imports them once for each content that they have: every import makes modules of its own.
    """
    config = read_config(project.root, project.profile.name)
    with _loading:
        known = _known.get(config.root)
        if known is None or not known.holds(config, project):
            known = _known[config.root] = _import(config)
    known.require_same(project)
    return known.functions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Imported:
    """What was imported, and the content of the files it was imported from."""

    config: Config
    graph: Graph
    functions: Functions
    content: Mapping[Path, str]

    def holds(self, config: Config, project: Project) -> bool:
        """Whether importing again would give the same."""
        try:
            current = config == self.config and set(table_files(config)) <= set(self.content)
            return current and digests(self.content) == self.content and not self._changed(project)
        except OSError:
            return False

    def require_same(self, project: Project) -> None:
        """Refuses code that is not what the plan was made for."""
        for name in self._changed(project):
            raise ProjectChanged(
                f"the declaration of {name} changed while icefield was running",
                where=str(self.graph[name].location),
                remedy="run the command again to use the current files",
            )

    def _changed(self, project: Project) -> list[str]:
        known = {name: node.fingerprint for name, node in project.graph.nodes.items()}
        return [name for name, node in self.graph.nodes.items() if known.get(name) != node.fingerprint]


_known: dict[Path, _Imported] = {}
#: One project is imported at a time: what they import, such as PySpark, may not stand being imported by two threads.
_loading = threading.RLock()


def _import(config: Config) -> _Imported:
    loaded = load(config)
    graph = _graph_of(loaded, config)
    ship_by_value(loaded.package.modules())
    content = digests({*loaded.files(), *table_files(config)})
    return _Imported(config=config, graph=graph, functions=Functions(loaded.tables), content=content)


def _graph_of(loaded: Loaded, config: Config) -> Graph:
    code = Code(config.root, loaded.package.find)

    def fingerprints(table: Table, edges: tuple[Edge, ...], checks: tuple[Check, ...]) -> tuple[str, str]:
        return fingerprint(table, edges, code, config.profile.spark), checks_fingerprint(checks)

    return build_graph(loaded.tables, fingerprints)
