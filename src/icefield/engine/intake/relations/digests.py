"""Digests of rows, which add up: of any rows, in any order, the count and the sum of their digests tell them apart.

A row's digest are 60 bits of the MD5 of its text. A database computes the same ones that Spark does, so that what is
there can be compared with what was read without reading it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icefield.graph.news import RelationCursor

#: So many hexadecimal digits of an MD5 are a row's digest.
DIGITS = 15


@dataclass(frozen=True, slots=True)
class Digest:
    """Some rows: how many, and the sum of their digests."""

    count: int = 0
    total: int = 0

    @classmethod
    def of(cls, digests: Iterable[int]) -> Digest:
        """The sum of some digests."""
        count = total = 0
        for digest in digests:
            count += 1
            total += digest
        return cls(count, total)

    @classmethod
    def of_cursor(cls, cursor: RelationCursor) -> Digest:
        """Everything that was taken in."""
        return cls(cursor.count, int(cursor.digest, 16))

    @classmethod
    def of_ties(cls, cursor: RelationCursor) -> Digest:
        """What was taken in with the cursor's last value."""
        return cls(cursor.tied, int(cursor.tied_digest, 16))

    @property
    def text(self) -> str:
        """The sum as it is stored."""
        return f"{self.total:x}"

    def plus(self, other: Digest) -> Digest:
        """Both together."""
        return Digest(self.count + other.count, self.total + other.total)

    def minus(self, other: Digest) -> Digest:
        """One without the other."""
        return Digest(self.count - other.count, self.total - other.total)


def digest_of_text(text: str) -> int:
    """The digest of a row, from its text."""
    found = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False)
    return int(found.hexdigest()[:DIGITS], 16)
