"""Joins: which rows may meet, and what the joined rows belong to."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icefield.engine.promises.anchors import KEY, ROW, Equality, Refusal, Rows, first_anchor
from icefield.engine.promises.values import columns_in, first_of, shown, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.engine.promises.anchors import Carried, Parts
    from icefield.engine.promises.plan_tree import Tree
    from icefield.engine.promises.values import Value

#: Kinds of joins whose output rows all have a row of the left side.
_LEFT = ("LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle", "ExistenceJoin")
#: How many ways to pair equal columns are looked at.
SIDES = 16


def joined(join: Join) -> Rows:
    """The output of a join; one that lets rows of different anchors meet is refused."""
    step, left, right = join.step, join.left, join.right
    if left.main and right.main:
        _require_equal_keys(join)
        return join.of_keys()
    if left.main or right.main:
        main, other = (left, right) if left.main else (right, left)
        if not join.preserves(main):
            raise Refusal(step, f"keeps unmatched rows of a lookup ({join.spelled})", first_anchor([main]))
        _require_carried(join, main, other)
        return join.with_columns_of_both(main)
    if left.anchors and right.anchors:
        if join.kind not in ("Inner", "Cross"):
            raise Refusal(step, f"joins two lookups with a {join.spelled}", first_anchor([left]))
        return Rows(join.columns, {**left.anchors, **right.anchors})
    anchored = left if left.anchors else right
    if anchored.anchors and not join.preserves(anchored):
        raise Refusal(step, f"keeps rows without a match in a lookup ({join.spelled})", first_anchor([anchored]))
    return Rows(join.columns, anchored.anchors)


def _require_equal_keys(join: Join) -> None:
    if ROW in join.left.anchors:
        raise Refusal(join.step, "joins two inputs whose matching rows may arrive in different runs", ROW)
    left, right = join.left.anchors[KEY], join.right.anchors[KEY]
    for part in left:
        if not any(p.left in left[part] and p.right in right[part] for p in join.pairs):
            what = f"joins two keyed inputs {join.condition}, but not on the key `{part}` of both"
            raise Refusal(join.step, what)


def _require_carried(join: Join, main: Rows, other: Rows) -> None:
    """A lookup with `on` is joined on exactly these columns."""
    pairs = join.pairs if main is join.left else [replace(p, left=p.right, right=p.left) for p in join.pairs]
    for anchor, parts in other.anchors.items():
        if not any(_is_carried(one, parts, pairs) for one in main.carried):
            raise Refusal(join.step, f"joins it {join.condition}", anchor)


def _is_carried(carried: Carried, parts: Parts, pairs: Sequence[Equality]) -> bool:
    """Whether the join requires every `on` column of a lookup to equal the input's column of that name."""
    return all(
        any(
            pair.left in carried.parts.get(part, ())
            and pair.right in values
            and not (pair.null_safe and carried.optional)
            for pair in pairs
        )
        for part, values in parts.items()
    )


@dataclass(frozen=True, slots=True)
class Join:
    """A join of the rows of two steps."""

    step: Tree
    left: Rows
    right: Rows
    #: Equalities that a filter above the join requires.
    also: tuple[Equality, ...] = ()

    @property
    def kind(self) -> str:
        return self.kind_of(self.step)

    @staticmethod
    def kind_of(step: Tree) -> str:
        """The kind of a join, as Spark calls it."""
        kind = step.fields["joinType"]
        return kind if isinstance(kind, str) else str(kind.get("product-class", "")).rpartition(".")[2]

    @property
    def spelled(self) -> str:
        """The kind of join as SQL has it."""
        words = "".join(f" {letter}" if letter.isupper() else letter for letter in self.kind).split()
        return " ".join([*(word.upper() for word in words), "JOIN"])

    @property
    def columns(self) -> tuple[tuple[int, str], ...]:
        if self.kind in ("LeftSemi", "LeftAnti"):
            return self.left.columns
        return (*self.left.columns, *self.right.columns)

    @property
    def pairs(self) -> list[Equality]:
        """Equalities between both sides, the left side's value first."""
        ours, theirs = set(self.left.names), set(self.right.names)
        found = []
        for pair in (*equalities(self.step.one("condition")), *self.also):
            sides = [set(columns_in(value)) for value in (pair.left, pair.right)]
            if sides[0] <= ours and sides[1] <= theirs:
                found.append(pair)
            elif sides[0] <= theirs and sides[1] <= ours:
                found.append(replace(pair, left=pair.right, right=pair.left))
        return found

    @property
    def condition(self) -> str:
        """The equalities of the join condition, for a message."""
        names = {**self.left.names, **self.right.names}
        listed = [f"{shown(p.left, names)} = {shown(p.right, names)}" for p in self.pairs]
        return f"on {' and '.join(listed)}" if listed else "without an equality condition"

    def preserves(self, side: Rows) -> bool:
        """Whether every output row has a row of this side."""
        if self.kind in ("Inner", "Cross"):
            return True
        return self.kind in _LEFT if side is self.left else self.kind == "RightOuter"

    def with_columns_of_both(self, main: Rows) -> Rows:
        rows = replace(main, columns=self.columns)
        return rows.with_equal(self.pairs) if self.kind == "Inner" else rows

    def of_keys(self) -> Rows:
        """The output of a join of two keyed sides on the key."""
        left, right = self.left.anchors[KEY], self.right.anchors[KEY]
        if self.kind in ("Inner", "Cross"):
            keys = {part: left[part] | right[part] for part in left}
        elif self.kind in _LEFT:
            keys = dict(left)
        elif self.kind == "RightOuter":
            keys = dict(right)
        elif self.kind == "FullOuter":
            keys = {part: _coalesced(left[part], right[part]) for part in left}
        else:
            raise Refusal(self.step, f"uses a {self.spelled}, which icefield cannot analyse", known=False)
        optional = [self.kind in ("RightOuter", "FullOuter"), self.kind in (*_LEFT, "FullOuter")]
        carried = [
            replace(one, optional=one.optional or lost)
            for side, lost in zip((self.left, self.right), optional, strict=True)
            for one in side.carried
        ]
        rows = Rows(self.columns, {KEY: keys}, tuple(carried))
        return rows.with_equal(self.pairs) if self.kind == "Inner" else rows


def equalities(condition: Tree | None) -> list[Equality]:
    """The equalities among the conjuncts of a condition."""
    if condition is None:
        return []
    if condition.name == "And":
        return [pair for side in condition.children for pair in equalities(side)]
    if condition.name not in ("EqualTo", "EqualNullSafe"):
        return []
    left, right = (value_of(side) for side in condition.children)
    if "literal" in (left[0], right[0]):  # a column with one value is still a column
        return []
    return [Equality(left, right, condition.name == "EqualNullSafe")]


def _coalesced(left: frozenset[Value], right: frozenset[Value]) -> frozenset[Value]:
    """The key of an outer join as `coalesce` gives it: rows may have only one side.

    Of columns alone: an expression may have a value even where its side is missing and its columns are NULL.
    """
    pairs = itertools.product([v for v in left if v[0] == "column"], [v for v in right if v[0] == "column"])
    return frozenset(first_of(order) for pair in itertools.islice(pairs, SIDES) for order in (pair, pair[::-1]))
