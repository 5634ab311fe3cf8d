"""Sections and values of icefield.toml, read strictly; `${env:NAME}` and `${file:PATH}` stand for what is elsewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidConfig
from icefield.words import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "icefield.toml"
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


def duration(value: object, place: str) -> float:
    """The seconds of a duration such as "90s"."""
    try:
        return parse_duration(str(value))
    except ValueError:
        raise wrong(f"{place} = {value!r} is not a duration", 'write "90s", "30m", "12h" or "7d"') from None


def expanded(content: Mapping[str, Any], section: str, root: Path) -> dict[str, Any]:
    """`${env:NAME}` and `${file:PATH}` in any text become what they stand for; what is missing is an error."""

    def expand(value: Any, key: str) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(lambda match: _referenced(match, f"{section} {key}", root), value)
        if isinstance(value, dict):
            return {inner: expand(item, f"{key}.{inner}") for inner, item in value.items()}
        if isinstance(value, list):
            return [expand(item, key) for item in value]
        return value

    return {key: expand(value, key) for key, value in content.items()}


def _referenced(match: re.Match[str], place: str, root: Path) -> str:
    kind, name = match.groups()
    if kind == "file":
        try:
            return (root / Path(name).expanduser()).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as problem:
            told = f"{place} uses ${{file:{name}}}, which cannot be read: {type(problem).__name__}"
            raise wrong(told, "put the value into that file, or name another one") from None
    value = os.environ.get(name)
    if value is None:
        raise wrong(f"{place} uses ${{env:{name}}}, which is not set", f"set it: export {name}=...")
    return value


def table(content: Mapping[str, Any], key: str, section: str) -> dict[str, Any]:
    """A section of the file, empty where it is missing."""
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise wrong(f"{key} = {value!r} is not a section", f"write {section} and its keys below it")
    return value


def text(content: Mapping[str, Any], key: str, default: str, section: str = "[project]") -> str:
    """A text that is not empty."""
    value = content.get(key, default)
    if not isinstance(value, str) or not value:
        raise wrong(f"{section} {key} = {value!r} is not a string", f'write {key} = "{default}"')
    return value


def flag(content: Mapping[str, Any], key: str, section: str, *, default: bool = False) -> bool:
    """True or false."""
    value = content.get(key, default)
    if not isinstance(value, bool):
        raise wrong(f"{section} {key} = {value!r} is neither true nor false", f"write {key} = true")
    return value


def only(content: Mapping[str, Any], known: tuple[str, ...], section: str) -> None:
    """Refuses keys that are not known."""
    for key in content:
        if key not in known:
            place = f"{section} has an unknown key" if section else "unknown section"
            raise wrong(f"{place} `{key}`", did_you_mean(key, known, all_of_them="keys"))


def wrong(what: str, remedy: str) -> InvalidConfig:
    """What is wrong with the file, and what to write instead."""
    return InvalidConfig(what, where=FILE, remedy=remedy)
