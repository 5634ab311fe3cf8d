"""How a table follows its inputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """How a table follows its inputs; each kind is a subclass and a promise about the function."""

    @property
    def kind(self) -> str:
        """The word for it in plans, listings and the graph's picture."""
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Append(Refresh):
    """The function of the new rows is added; rows do not depend on one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Full(Refresh):
    """Everything is computed again."""


def append() -> Refresh:
    """Add the function of the new rows; for functions where each row stands alone."""
    return Append()


def full() -> Refresh:
    """Compute the table again from all of its inputs whenever one of them changed."""
    return Full()
