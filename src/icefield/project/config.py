"""icefield.toml: where the project's tables are declared, and its profiles."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidConfig, MasterNotLocal, NoProject, UnknownProfile

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "icefield.toml"
PROFILE_VARIABLE = "ICEFIELD_PROFILE"
DEFAULT_PROFILE = "local"
NOT_TABLES = ("test_*.py", "*_test.py", "conftest.py", "setup.py")
TOP_KEYS = ("project", "profile")
PROJECT_KEYS = ("name", "tables", "default_profile")
PROFILE_KEYS = ("lake", "shared", "spark", "settings")
_VARIABLE = re.compile(r"\$\{env:([^}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One set of settings: where the lake is, which Spark runs it, what `setting` gives."""

    name: str
    lake: Path
    #: Whether every worker of Spark's sees the lake's folder, under the same path.
    shared: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What icefield.toml says, with one profile chosen."""

    root: Path
    name: str
    tables: tuple[str, ...]
    profile: Profile


def require_reachable_lake(profile: Profile) -> None:
    """Refuses workers that may not see the lake's folder: what they write there would be lost to everyone else."""
    master = profile.spark.get("spark.master", "local[*]")
    if not _LOCAL.fullmatch(master) and not profile.shared:
        raise MasterNotLocal(master, profile.lake, profile.name)


_LOCAL = re.compile(r"local(\[[^\]]*\])?")


def find_project(path: Path | str = ".") -> Path:
    """The project's folder: the given one or the nearest above it that holds an icefield.toml."""
    start = Path(path).expanduser().absolute()
    if start.name == FILE:
        start = start.parent
    if not start.exists():
        raise NoProject(f"the folder {path} does not exist", remedy="check the path given with -p")
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            return folder
    raise NoProject(
        f"there is no {FILE} in {start} or in any folder above it",
        remedy="change to a project folder, name one with -p DIR, or create one: icefield init DIR",
    )


def read_config(root: Path, profile: str | None = None) -> Config:
    """Read and check icefield.toml; the profile is the given one, else ICEFIELD_PROFILE, else the file's default."""
    file = root / FILE
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise InvalidConfig(f"{FILE} is not valid TOML: {problem}", where=FILE, remedy="fix that line") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidConfig(f"{FILE} cannot be read: {problem}", where=str(file), remedy="check the file") from None
    _only(content, TOP_KEYS, "")
    project = _table(content, "project", "[project]")
    _only(project, PROJECT_KEYS, "[project]")
    profiles = _table(content, "profile", "[profile.NAME]")
    chosen = profile or os.environ.get(PROFILE_VARIABLE) or _text(project, "default_profile", DEFAULT_PROFILE)
    return Config(
        root=root,
        name=_text(project, "name", root.name),
        tables=_patterns(project.get("tables", ["*.py"])),
        profile=_profile(root, chosen, profiles),
    )


def table_files(config: Config) -> tuple[Path, ...]:
    """The files that declare tables, in the order of the patterns, each once."""
    found: dict[Path, None] = {}
    for pattern in config.tables:
        matches = sorted(path for path in config.root.glob(pattern) if path.is_file())
        if not any(sign in pattern for sign in "*?[") and not matches:
            near = did_you_mean(pattern, (p.name for p in config.root.glob("*.py")), all_of_them="Python files here")
            raise _wrong(f"tables lists {pattern}, which does not exist", near)
        for path in matches:
            if pattern == path.name or not any(path.match(other) for other in NOT_TABLES):
                found[path] = None
    return tuple(found)


def _profile(root: Path, name: str, profiles: Mapping[str, Any]) -> Profile:
    if name not in profiles:
        if name != DEFAULT_PROFILE or profiles:
            raise UnknownProfile(
                f"{FILE} has no profile `{name}`",
                where=FILE,
                remedy=did_you_mean(name, profiles or [DEFAULT_PROFILE], all_of_them="profiles"),
            )
        return Profile(name=name, lake=root / "lake")
    section = f"[profile.{name}]"
    content = _expanded(_table(profiles, name, section), section)
    _only(content, PROFILE_KEYS, section)
    lake = Path(_text(content, "lake", "lake", section)).expanduser()
    spark = _table(content, "spark", f"[profile.{name}.spark]")
    return Profile(
        name=name,
        lake=Path(os.path.normpath(root / lake)),
        shared=_flag(content, "shared", section),
        spark={key: _spark_value(key, value, name) for key, value in sorted(_flat(spark).items())},
        settings=_table(content, "settings", f"[profile.{name}.settings]"),
    )


def _flat(spark: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`spark.driver.memory = ...` without quotes is nested tables in TOML; authors mean the dotted name."""
    found: dict[str, Any] = {}
    for key, value in spark.items():
        found.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return found


def _spark_value(key: str, value: object, profile: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise _wrong(f"[profile.{profile}.spark] {key} = {value!r} is not valid", "write a string, a number, true or false")


def _expanded(content: Mapping[str, Any], section: str) -> dict[str, Any]:
    """`${env:NAME}` in any text becomes the variable's value; a missing one is an error, never an empty text."""

    def expand(value: Any, key: str) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: _variable(match[1], f"{section} {key}"), value)
        if isinstance(value, dict):
            return {inner: expand(item, f"{key}.{inner}") for inner, item in value.items()}
        if isinstance(value, list):
            return [expand(item, key) for item in value]
        return value

    return {key: expand(value, key) for key, value in content.items()}


def _variable(name: str, place: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise _wrong(f"{place} uses ${{env:{name}}}, which is not set", f"set it: export {name}=...")
    return value


def _table(content: Mapping[str, Any], key: str, section: str) -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise _wrong(f"{key} = {value!r} is not a section", f"write {section} and its keys below it")
    return value


def _text(content: Mapping[str, Any], key: str, default: str, section: str = "[project]") -> str:
    value = content.get(key, default)
    if not isinstance(value, str) or not value:
        raise _wrong(f"{section} {key} = {value!r} is not a string", f'write {key} = "{default}"')
    return value


def _flag(content: Mapping[str, Any], key: str, section: str) -> bool:
    value = content.get(key, False)
    if not isinstance(value, bool):
        raise _wrong(f"{section} {key} = {value!r} is neither true nor false", f"write {key} = true")
    return value


def _patterns(value: object) -> tuple[str, ...]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise _wrong(
            f"[project] tables = {value!r} is not a list of files", 'write tables = ["bronze.py", "silver.py"]'
        )
    return tuple(patterns)


def _only(content: Mapping[str, Any], known: tuple[str, ...], section: str) -> None:
    for key in content:
        if key not in known:
            place = f"{section} has an unknown key" if section else "unknown section"
            raise _wrong(f"{place} `{key}`", did_you_mean(key, known, all_of_them="keys"))


def _wrong(what: str, remedy: str) -> InvalidConfig:
    return InvalidConfig(what, where=FILE, remedy=remedy)
