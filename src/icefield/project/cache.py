"""The loaded graph, kept beside the project, so that listing tables imports none of the author's code."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.graph import Graph
from icefield.project.config import FILE, Config, table_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER = ".icefield"
KEPT = 8


def read_graph(config: Config) -> tuple[Graph, dict[str, str]] | None:
    """The cached graph, if nothing it was made from has changed, and the files it was made from with their digests."""
    file = _file(config)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["tables"] != _declaring(config) or content["names"] != _names(config.root):
            return None
        if any(_digest_of(Path(config.root, name)) != digest for name, digest in content["files"].items()):
            return None
        return Graph.from_json(content["graph"]), content["files"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_graph(config: Config, graph: Graph, files: Mapping[str, str]) -> None:
    """Keep the graph with the files that loading it read; no matter if it cannot be written."""
    content = {
        "tables": _declaring(config),
        "names": _names(config.root),
        "files": dict(files),
        "graph": graph.to_json(),
    }
    target = _file(config)
    try:
        folder(config.root)
        draft = target.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(json.dumps(content), encoding="utf-8")
        draft.replace(target)  # atomic: a reader sees the old file or the new one
        _forget_old(target.parent)
    except OSError:
        return


def folder(root: Path) -> Path:
    """The project's own scratch folder, which git leaves alone."""
    path = root / FOLDER
    path.mkdir(exist_ok=True)
    ignore = path / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return path


def _file(config: Config) -> Path:
    """One file a profile, its settings and version: what is known before any file of the project is opened."""
    known = [
        _own_code(),
        sys.version,
        str(config.root),
        (config.root / FILE).read_text(encoding="utf-8"),
        config.profile.name,
        json.dumps(config.profile.settings, sort_keys=True, default=repr),
    ]
    return config.root / FOLDER / f"graph-{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]}.json"


def _own_code() -> list[str]:
    """Sizes and times of the modules that make a graph: a changed icefield makes its own graphs."""
    package = Path(__file__).parent.parent
    found = []
    for part in ("declare", "graph", "project"):
        for entry in sorted(os.scandir(package / part), key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                stat = entry.stat()
                found.append(f"{part}/{entry.name} {stat.st_size} {stat.st_mtime_ns}")
    return found


def _declaring(config: Config) -> list[str]:
    return [file.relative_to(config.root).as_posix() for file in table_files(config)]


def _names(root: Path) -> list[str]:
    """What `import` could find in the project: a new file may hide an installed module of its name."""
    packages = (file.parent.name for file in root.glob("*/__init__.py"))
    return sorted([file.name for file in root.glob("*.py")] + list(packages))


def made_from(config: Config, files: Iterable[Path]) -> dict[str, str]:
    """Files of a project, by their paths inside of it, with their digests."""
    return {os.path.relpath(file, config.root): _digest_of(file) for file in files}


def listings(config: Config) -> dict[str, list[str]]:
    """What else a graph depends on: the files that patterns find. A new one may declare tables, or hide a module."""
    patterns = dict.fromkeys((*config.tables, "*.py", "*/__init__.py"))
    return {
        pattern: sorted(file.relative_to(config.root).as_posix() for file in config.root.glob(pattern))
        for pattern in patterns
    }


def digests(files: Iterable[Path]) -> dict[Path, str]:
    """The content of some files, each as a digest."""
    return {file: _digest_of(file) for file in files}


def _digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:32]


def _forget_old(path: Path) -> None:
    graphs = sorted(path.glob("graph-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in graphs[KEPT:]:
        file.unlink(missing_ok=True)
