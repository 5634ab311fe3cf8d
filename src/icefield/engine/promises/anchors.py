"""What each row of a step belongs to, and which columns determine it.

A row belongs to a key (`by_key`), stands alone (`append`, and below the group of `accumulate`), or has the columns on
which a lookup is joined. These are *anchors*.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icefield.engine.promises.values import column, rewritten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from icefield.engine.promises.plan_tree import Tree
    from icefield.engine.promises.values import Value

    #: The parts of an anchor (the columns of a key, say), each with the values of a step's columns that equal it.
    Parts = Mapping[str, frozenset[Value]]

#: Inputs of a function are empty ranges that start at numbers nobody would write, so that a plan shows which is which.
MARK = -982_451_653_000
KEY, ROW = "key", "row"
#: Columns of an input are numbered from here on until their ids in a plan are known.
_PLACE = -(10**9)


class Refusal(Exception):
    """A step that combines rows of different anchors, or that cannot be analysed.

    `what` completes "its function ...". `anchor` is what could not be kept apart. `known`: the plan shows that it is
    wrong; if not, an author may vouch for it.
    """

    def __init__(self, step: Tree, what: str, anchor: str = KEY, *, known: bool = True) -> None:
        super().__init__(what)
        self.step, self.what, self.anchor, self.known = step, what, anchor, known


@dataclass(frozen=True, slots=True)
class Input:
    """A parameter of the function: its columns, its anchors as values of these, and the columns that lookups are joined
    on (`carries`).
    """

    name: str
    columns: tuple[str, ...]
    anchors: Mapping[str, Mapping[str, Value]]
    carries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carried:
    """Columns of a keyed input that lookups are joined on; `optional`: an outer join may have left them NULL."""

    parts: Parts
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """The output of a step: its columns (id and name), and by which of them each anchor is known.

    Without anchors the rows come from lookups and constants alone: they are the same whichever keys are computed.
    """

    columns: tuple[tuple[int, str], ...]
    anchors: Mapping[str, Parts] = field(default_factory=dict)
    carried: tuple[Carried, ...] = ()

    @property
    def names(self) -> dict[int, str]:
        return dict(self.columns)

    @property
    def main(self) -> bool:
        """Whether the rows come from an input that is no lookup."""
        return KEY in self.anchors or ROW in self.anchors

    def through(self, known: Mapping[Value, Iterable[Value]], columns: tuple[tuple[int, str], ...]) -> Rows:
        """The rows with other columns; `known` maps values of the old columns to values of the new ones."""
        return Rows(columns, {name: _through(parts, known) for name, parts in self.anchors.items()}, self._kept(known))

    def _kept(self, known: Mapping[Value, Iterable[Value]]) -> tuple[Carried, ...]:
        found = [replace(one, parts=_through(one.parts, known)) for one in self.carried]
        return tuple(one for one in found if all(one.parts.values()))

    def with_equal(self, pairs: Sequence[Equality]) -> Rows:
        """The rows once a condition requires some values to be equal."""
        known = {pair.left: {pair.right} for pair in pairs} | {pair.right: {pair.left} for pair in pairs}
        if not known:
            return self
        anchors = {name: _more(parts, known) for name, parts in self.anchors.items()}
        return Rows(self.columns, anchors, tuple(replace(one, parts=_more(one.parts, known)) for one in self.carried))


@dataclass(frozen=True, slots=True)
class Equality:
    """Two values that a condition requires to be equal; `null_safe`: or both NULL."""

    left: Value
    right: Value
    null_safe: bool


def _through(parts: Parts, known: Mapping[Value, Iterable[Value]]) -> Parts:
    return {
        name: frozenset(form for value in values for form in rewritten(value, known)) for name, values in parts.items()
    }


def _more(parts: Parts, known: Mapping[Value, Iterable[Value]]) -> Parts:
    return {
        name: values | {other for value in values for other in known.get(value, ())} for name, values in parts.items()
    }


def first_anchor(below: Sequence[Rows]) -> str:
    """The anchor that a message names: the key before any lookup."""
    names = [name for rows in below for name in rows.anchors]
    return next((name for name in names if name in (KEY, ROW)), next(iter(names), KEY))


def placed(number: int) -> Value:
    """A column of an input, by its place among the input's columns."""
    return column(_PLACE + number)


def place_of(number: int) -> int:
    """The number that stands for a column of an input, by its place."""
    return _PLACE + number
