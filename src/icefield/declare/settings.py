"""Values of the profile that a project's code may depend on."""

from __future__ import annotations

from typing import TypeVar

from icefield.declare.registry import caller, current
from icefield.errors import InvalidSetting

T = TypeVar("T")


def setting(name: str, default: T) -> T:
    """The profile's value of `name`, or the default; read once, at module level, so that it is part of fingerprints."""
    registry = current()
    if registry is None or name not in registry.settings:
        if registry is not None:
            registry.used_settings[name] = default
        return default
    value = _as_type_of(name, registry.settings[name], default)
    registry.used_settings[name] = value
    return value


def _as_type_of(name: str, value: object, default: T) -> T:
    wanted = type(default)
    if default is None or type(value) is wanted:
        return value  # type: ignore[return-value]
    if wanted is float and type(value) is int:
        return float(value)  # type: ignore[return-value]
    if wanted is tuple and isinstance(value, list):
        return tuple(value)  # type: ignore[return-value]
    raise InvalidSetting(
        f"setting `{name}` is {value!r} ({type(value).__name__}) in the profile, but its default {default!r} "
        f"has type {wanted.__name__}",
        where=str(caller()),
        remedy=f"write {name} in icefield.toml as {wanted.__name__}, or change the default here",
    )
