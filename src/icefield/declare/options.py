"""Closed sets of words, checked the same way wherever an author writes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from icefield.declare.registry import caller
from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

Otherwise = Literal["warn", "drop", "quarantine", "fail"]
Format = Literal["csv", "json", "parquet", "binary"]
NewColumns = Literal["add", "ignore", "fail"]
Changed = Literal["fail", "replace", "ignore"]
Deleted = Literal["ignore", "withdraw"]

_SETS: Mapping[str, tuple[str, ...]] = {
    "otherwise": get_args(Otherwise),
    "format": get_args(Format),
    "new_columns": get_args(NewColumns),
    "changed": get_args(Changed),
    "deleted": get_args(Deleted),
}


def must_be_one_of(option: str, value: object) -> None:
    """Refuse a word outside of the option's set, and offer the words it has."""
    words = _SETS[option]
    if value in words:
        return
    near = did_you_mean(str(value), words)
    raise InvalidOption(
        f"{option}={value!r} is not one of {', '.join(words)}",
        where=str(caller()),
        remedy=near if near.startswith("did") else f"write {option}={words[0]!r} or one of the others",
    )


def texts(option: str, values: Any) -> tuple[str, ...]:
    """A sequence of strings as a tuple; a lone string is the common slip and is named as such."""
    if isinstance(values, str):
        raise InvalidOption(
            f"{option}={values!r} is a single string, but a list is expected",
            where=str(caller()),
            remedy=f"write {option}=[{values!r}]",
        )
    found = tuple(values)
    for value in found:
        if not isinstance(value, str) or not value:
            raise InvalidOption(
                f"{option} holds {value!r}, which is not a name",
                where=str(caller()),
                remedy=f"make {option} a list of strings",
            )
    return found
