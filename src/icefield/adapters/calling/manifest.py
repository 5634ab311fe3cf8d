"""What a project declares, as `icefield ls --manifest` tells it; kept until a file that it was read from changes."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.errors import IcefieldError, NoProject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from icefield.adapters.calling.command import Command

_PROJECT_FILE = "icefield.toml"
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


def find_root(path: Path) -> Path:
    """The project's folder: the given one, or the nearest above it with an icefield.toml."""
    start = path.expanduser().resolve()
    for folder in (start, *start.parents):
        if (folder / _PROJECT_FILE).is_file():
            return folder
    raise NoProject(
        f"there is no {_PROJECT_FILE} in {start} or in any folder above it",
        where=str(path),
        remedy="name the project's folder; a relative path starts at the folder of the DAG's file",
    )


def read_manifest(
    command: Command, root: Path, *, options: Sequence[str] = (), even_if_stale: bool = False
) -> dict[str, Any]:
    """The manifest of a project, from the cache where that still holds.

    `options` are those of `icefield ls`. `even_if_stale`: the last one that was known, where the project does not load.
    `gone` is added to it: tables that were declared at some time, as far as this cache knows, and no longer are.
    """
    kept, settings = list(_kept(root, options)), _settings(root, {**os.environ, **command.environment})
    for one in kept:
        if one.get("settings") == settings and _holds(root, one["manifest"]):
            return _told(one)
    try:
        found: dict[str, Any] = command.json(["ls", "--manifest", "--project", str(root), *options])
    except IcefieldError:
        if even_if_stale and kept:
            return _told(kept[0])
        raise
    known = {*_names(found), *(name for one in kept for name in (*one.get("known", ()), *_names(one["manifest"])))}
    content = {"settings": settings, "manifest": found, "known": sorted(known)}
    _keep(root, options, content)
    return _told(content)


def _told(kept: dict[str, Any]) -> dict[str, Any]:
    manifest = dict(kept["manifest"])
    return {**manifest, "gone": sorted(set(kept.get("known", ())) - set(_names(manifest)))}


def _names(manifest: dict[str, Any]) -> list[str]:
    return [one["table"] for one in manifest["tables"]]


def _holds(root: Path, manifest: dict[str, Any]) -> bool:
    """Whether the files and listings that a manifest was made from are as they were."""
    try:
        files, listings = manifest["made_from"]["files"], manifest["made_from"]["listings"]
        return all(_digest((root / name).read_bytes()) == digest for name, digest in files.items()) and all(
            _listing(root, pattern) == names for pattern, names in listings.items()
        )
    except (OSError, KeyError, TypeError, AttributeError):
        return False


def _listing(root: Path, pattern: str) -> list[str]:
    return sorted(file.relative_to(root).as_posix() for file in root.glob(pattern))


def _settings(root: Path, environment: Mapping[str, str]) -> str:
    """A digest of what the project's file refers to, which a declaration may depend on."""
    text = (root / _PROJECT_FILE).read_text(encoding="utf-8")
    named = sorted(set(_REFERENCE.findall(text)))
    values = [environment.get(name) if kind == "env" else _content(root, name) for kind, name in named]
    return _digest(json.dumps([environment.get("ICEFIELD_PROFILE"), named, values]).encode())


def _content(root: Path, name: str) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return (root / Path(name).expanduser()).read_text(encoding="utf-8")
    return None


def _kept(root: Path, options: Sequence[str]) -> Iterator[dict[str, Any]]:
    for file in _places(root, options):
        with suppress(OSError, ValueError):
            content = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(content, dict) and isinstance(content.get("manifest"), dict):
                yield content


def _keep(root: Path, options: Sequence[str], content: dict[str, Any]) -> None:
    """Written whole, by a rename, to the first place that can be written to; no matter if there is none."""
    for file in _places(root, options):
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_suffix(f".{os.getpid()}.draft")
            draft.write_text(json.dumps(content), encoding="utf-8")
            draft.replace(file)
            return


def _places(root: Path, options: Sequence[str]) -> Iterator[Path]:
    """Beside the project, in the folder that icefield has there, or in icefield's cache where that is read-only."""
    name = f"manifest-{_digest(json.dumps([str(root), *options]).encode())[:16]}.json"
    if (own := root / ".icefield").is_dir():  # made by icefield itself, which also tells git to leave it alone
        yield own / name
    yield _cache_folder() / "manifests" / name


def _cache_folder() -> Path:
    if chosen := os.environ.get("ICEFIELD_CACHE"):
        return Path(chosen).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home).absolute() if home else Path("~/.cache").expanduser()) / "icefield"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
