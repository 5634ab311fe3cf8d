"""Follows rows from a function's inputs through Spark's plan: which columns tell at each step what a row belongs to.

A row belongs to a key (`by_key`), stands alone (`append`, and below the group of `accumulate`), or carries the value by
which a lookup is followed. These are *anchors*. A step that lets rows meet (a group, a window, a join, a subquery) must
keep the rows of different anchors apart: what it goes by has to determine the anchor. If every step does, computing the
function over the rows of some keys gives exactly those rows of the whole result.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icefield.engine.promises.plan_tree import Tree, everything
from icefield.engine.promises.values import column, first_of, renamed, rewritten, shown, value_of, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from icefield.engine.promises.values import Value

    #: The parts of an anchor (columns of a key, say), each with the forms in which a step's columns tell it.
    Parts = Mapping[str, frozenset[Value]]

#: The inputs of a function are empty ranges of numbers that nobody would write, by which a plan tells them.
MARK = -982_451_653_000
KEY, ROW = "key", "row"
#: Steps that hand on rows as they are.
_SAME = frozenset(
    [
        "SubqueryAlias",
        "View",
        "Sort",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "ResolvedHint",
        "LocalLimit",
        "EventTimeWatermark",
        "CTERelationDef",
        "PipeOperator",
    ]
)
#: Leaves that are the same in every run, and hold rows of no input.
_CONSTANT = frozenset(["OneRowRelation", "LocalRelation", "Range", "LogicalRDD", "EmptyRelation"])
#: Steps that choose among all rows, in the words of an author.
_CHOOSING = {
    "GlobalLimit": "keeps only some of the rows (limit)",
    "Offset": "skips some of the rows (offset)",
    "Tail": "keeps only the last rows (tail)",
    "Sample": "takes a sample of the rows",
}
#: Functions of Python's that see one row at a time.
_ROW_BY_ROW = (100, 101)
_GROUPED_MAPS = {"FlatMapGroupsInPandas": 201, "FlatMapGroupsInArrow": 209}
_LEFT = ("LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle", "ExistenceJoin")


class Refusal(Exception):
    """A step that combines rows of different anchors, or that cannot be analysed.

    `what` completes "its function ...". `anchor` is what could not be kept apart. `known` tells whether the plan shows
    it to be wrong; if not, an author may vouch for it.
    """

    def __init__(self, step: Tree, what: str, anchor: str = KEY, *, known: bool = True) -> None:
        super().__init__(what)
        self.step, self.what, self.anchor, self.known = step, what, anchor, known


@dataclass(frozen=True, slots=True)
class Input:
    """What a parameter receives: `anchors` are values of its columns by name; `carries` names columns that lookups are
    followed by.
    """

    name: str
    columns: tuple[str, ...]
    anchors: Mapping[str, Mapping[str, Value]]
    carries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carried:
    """Columns of a keyed input that lookups are followed by; `optional`: an outer join may have left them NULL."""

    parts: Parts
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that a step gives: its columns (id and name), and what each row belongs to.

    Without anchors they come from lookups and constants alone: they are the same whichever keys are computed.
    """

    columns: tuple[tuple[int, str], ...]
    anchors: Mapping[str, Parts] = field(default_factory=dict)
    carried: tuple[Carried, ...] = ()

    @property
    def names(self) -> dict[int, str]:
        return dict(self.columns)

    @property
    def main(self) -> bool:
        """Whether they come from inputs whose rows arrive, not from lookups alone."""
        return KEY in self.anchors or ROW in self.anchors

    def through(self, known: Mapping[Value, Iterable[Value]], columns: tuple[tuple[int, str], ...]) -> Rows:
        """The same rows with other columns; `known` tells by which of these values of the old ones are told."""
        return Rows(columns, {name: _through(parts, known) for name, parts in self.anchors.items()}, self._kept(known))

    def _kept(self, known: Mapping[Value, Iterable[Value]]) -> tuple[Carried, ...]:
        found = [replace(one, parts=_through(one.parts, known)) for one in self.carried]
        return tuple(one for one in found if all(one.parts.values()))

    def with_equal(self, pairs: Sequence[Equality]) -> Rows:
        """The same where some values are known to be equal."""
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


class Lineage:
    """Walks one plan, bottom up."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._definitions: dict[int, Tree] = {}
        self._numbers = itertools.count()
        #: The rows that the subqueries around are evaluated for.
        self._outer: list[Rows] = []

    def rows(self, step: Tree) -> Rows:
        """The rows that a step gives; a step that combines rows of different anchors is refused."""
        if (given := self._input(step)) is not None:
            return given
        self.require_plain_expressions(step)
        if step.name in _SAME:
            return self.rows(step.children[0])
        handle = _STEPS.get(step.name)
        if handle is not None:
            return handle(self, step)
        if not step.children:
            return self._leaf(step)
        below = [self.rows(child) for child in step.children]
        if not any(rows.anchors for rows in below):  # whatever it does, it does to lookups alone
            return Rows(_outputs(step, below))
        if step.name in _CHOOSING:
            raise Refusal(step, _CHOOSING[step.name], _first(below))
        raise Refusal(step, f"contains a step that icefield cannot analyse ({step.name})", _first(below), known=False)

    # -- leaves

    def _input(self, step: Tree) -> Rows | None:
        """The rows of a parameter, if this step is one of the frames that were handed to the function."""
        if step.name != "Project" or step.children[0].name != "Range":
            return None
        number = MARK - int(step.children[0].fields["start"])
        if not 0 <= number < len(self._inputs):
            return None
        given = self._inputs[number]
        ids = {name: entry.id for name, entry in zip(given.columns, step.listed("projectList"), strict=True)}
        numbers = {_PLACE + n: ids[name] for n, name in enumerate(given.columns)}
        found = {
            self._named(anchor, given): {part: frozenset([renamed(value, numbers)]) for part, value in parts.items()}
            for anchor, parts in given.anchors.items()
        }
        carried = {name: frozenset([column(ids[name])]) for name in given.carries}
        return Rows(tuple((ids[n], n) for n in given.columns), found, (Carried(carried),) if carried else ())

    def _named(self, anchor: str, given: Input) -> str:
        """Each occurrence of a lookup is an anchor of its own: two of its rows may meet one of an input."""
        return anchor if anchor in (KEY, ROW) else f"{given.name} {next(self._numbers)}"

    def _leaf(self, step: Tree) -> Rows:
        if step.name == "CTERelationRef":
            return self._referenced(step)
        if step.name not in _CONSTANT:
            raise Refusal(step, f"reads data that is not one of its inputs ({step.name})")
        return Rows(_outputs(step, []))

    def _with_definitions(self, step: Tree) -> Rows:
        return self.rows(self.defined(step))

    def defined(self, step: Tree) -> Tree:
        """What a WITH is about, once its common table expressions are known."""
        for child in step.children:
            if child.name == "CTERelationDef":
                self._definitions[int(child.fields["id"])] = child
        return next(child for child in step.children if child.name != "CTERelationDef")

    def definition(self, step: Tree) -> Tree:
        """The common table expression that a query names."""
        found = self._definitions.get(int(step.fields["cteId"]))
        if found is None:
            raise Refusal(step, "uses a recursive query", known=False)
        return found

    def _referenced(self, step: Tree) -> Rows:
        found, outputs = self.rows(self.definition(step)), step.listed("output")
        known = {column(old): {column(new.id)} for (old, _), new in zip(found.columns, outputs, strict=True)}
        return found.through(known, tuple((new.id, new.fields["name"]) for new in outputs))

    # -- steps on each row

    def _project(self, step: Tree) -> Rows:
        entries = step.listed("projectList")
        return self.rows(step.children[0]).through(_told_by(entries), _columns(entries))

    def _filter(self, step: Tree) -> Rows:
        pairs = equalities(step.one("condition"))
        return self._correlated(self._under_filter(step.children[0], pairs), pairs).with_equal(pairs)

    def _under_filter(self, step: Tree, pairs: list[Equality]) -> Rows:
        """Rows of which a filter keeps some: where it stands above inner joins, they meet by what it says, too."""
        if step.name != "Join" or _Join.kind_of(step) not in ("Inner", "Cross"):
            return self.rows(step)
        self.require_plain_expressions(step)
        left, right = (self._under_filter(child, pairs) for child in step.children)
        return self._joined(step, _Join(step, left, right, tuple(pairs)))

    def _correlated(self, rows: Rows, pairs: list[Equality]) -> Rows:
        """Rows of a subquery that have the key of the row which it is evaluated for: whatever becomes of them, it is
        about that key alone.
        """
        if not self._outer or set(rows.anchors) != {KEY}:
            return rows
        outer = self._outer[-1].anchors.get(KEY, {})
        both = [*pairs, *(replace(pair, left=pair.right, right=pair.left) for pair in pairs)]
        own = rows.anchors[KEY]
        met = all(any(p.left in own[part] and p.right in outer.get(part, ()) for p in both) for part in own)
        return Rows(rows.columns) if met and outer else rows

    def _generate(self, step: Tree) -> Rows:
        rows = self.rows(step.children[0])
        generator = step.one("generator")
        if rows.anchors and generator is not None and generator.name == "PythonUDTF":
            raise Refusal(step, "calls a Python user-defined table function", _first([rows]), known=False)
        return replace(rows, columns=(*rows.columns, *_columns(step.listed("generatorOutput"))))

    def _expand(self, step: Tree) -> Rows:
        """One row becomes several, by projections (ROLLUP, CUBE, unpivot); what they all hand on is told by each."""
        rows, outputs = self.rows(step.children[0]), step.listed("output")
        lists = [[*map(value_of, _trees(one))] for one in step.fields.get("projections") or ()]
        columns = tuple((entry.id, entry.fields["name"]) for entry in outputs)
        if not lists:  # a plan inside of another one, of which JSON leaves them out
            if rows.anchors:
                raise Refusal(step, "unpivots rows in a subquery", _first([rows]), known=False)
            return Rows(columns)
        known = [_told(zip(one, (column(number) for number, _ in columns), strict=True)) for one in lists]
        shared = {value: set.intersection(*(set(told.get(value, ())) for told in known)) for value in known[0]}
        return rows.through(shared, columns)

    # -- steps in which rows meet

    def _aggregate(self, step: Tree) -> Rows:
        rows, entries = self.rows(step.children[0]), step.listed("aggregateExpressions")
        by = step.listed("groupingExpressions")
        if rows.anchors and not by:  # gives a row even where there is none
            raise Refusal(step, "aggregates over all rows", _first([rows]))
        self._require_apart(step, rows, by, "groups by {by}")
        grouped = with_fields({value: {value} for value in map(value_of, by)})
        told = {value: forms for value, forms in _told_by(entries).items() if rewritten(value, grouped)}
        return rows.through(told, _columns(entries))

    def _window(self, step: Tree) -> Rows:
        rows, by = self.rows(step.children[0]), step.listed("partitionSpec")
        self._require_apart(
            step, rows, by, "uses a window partitioned by {by}" if by else "uses a window over all rows"
        )
        return replace(rows, columns=(*rows.columns, *_columns(step.listed("windowExpressions"))))

    def _deduplicate(self, step: Tree) -> Rows:
        rows, by = self.rows(step.children[0]), step.listed("keys")
        self._require_apart(step, rows, by, "removes duplicates by {by}")
        return rows

    def _distinct(self, step: Tree) -> Rows:
        rows = self.rows(step.children[0])
        self._require_told(step, rows, "removes duplicate rows")
        return rows

    def _grouped_map(self, step: Tree) -> Rows:
        """Python over the rows of each group. Columns named like those it groups by hold the group's values: icefield
        sees to that when the function is called.
        """
        rows, by = self.rows(step.children[0]), step.listed("groupingAttributes")
        outputs = step.listed("output")
        self._require_apart(step, rows, by, "groups by {by} in Python")
        function = step.one("functionExpr")
        if rows.anchors and (function is None or function.fields.get("evalType") != _GROUPED_MAPS[step.name]):
            raise Refusal(step, f"calls Python in a way that icefield cannot analyse ({step.name})", known=False)
        names = {entry.fields["name"]: entry.id for entry in outputs}
        same = {column(e.id): {column(names[e.fields["name"]])} for e in by if e.fields["name"] in names}
        return rows.through(same, _columns(outputs))

    def _in_batches(self, step: Tree) -> Rows:
        rows = self.rows(step.children[0])
        if rows.anchors:
            called = {"MapInPandas": "mapInPandas", "PythonMapInArrow": "mapInArrow"}.get(step.name, "mapInArrow")
            raise Refusal(step, f"calls Python on batches of rows ({called})", _first([rows]), known=False)
        return Rows(_columns(step.listed("output")))

    def _union(self, step: Tree) -> Rows:
        below = [self.rows(child) for child in step.children]
        if not any(rows.anchors for rows in below):
            return below[0]
        if not all(rows.main for rows in below):
            raise Refusal(step, "adds rows that do not come from a keyed input (union)", _first(below))
        named = [self._under(rows, below[0].columns) for rows in below]
        anchors = {
            anchor: {part: frozenset.intersection(*(r.anchors[anchor][part] for r in named)) for part in parts}
            for anchor, parts in named[0].anchors.items()
        }
        return Rows(below[0].columns, anchors, _carried_by_all([rows.carried for rows in named]))

    def _set_operation(self, step: Tree) -> Rows:
        """INTERSECT and EXCEPT compare whole rows."""
        left, right = (self.rows(child) for child in step.children)
        if not left.anchors and not right.anchors:
            return left
        if not left.main:
            raise Refusal(
                step,
                "compares rows of a lookup with another input (INTERSECT or EXCEPT)",
                _first([left, right]),
            )
        other = self._under(right, left.columns)
        self._require_told(step, left, "compares whole rows of two inputs (INTERSECT or EXCEPT)")
        if right.main:
            shared = {part: left.anchors[KEY][part] & other.anchors[KEY][part] for part in left.anchors.get(KEY, {})}
            if ROW in left.anchors or not all(shared.values()):
                raise Refusal(step, "compares whole rows of two inputs (INTERSECT or EXCEPT) without the key")
            return replace(left, anchors={**left.anchors, KEY: shared})
        if right.anchors:
            raise Refusal(step, "compares whole rows with the rows of a lookup (INTERSECT or EXCEPT)", _first([right]))
        return left

    @staticmethod
    def _under(rows: Rows, columns: tuple[tuple[int, str], ...]) -> Rows:
        """Rows under the columns of others, by their place."""
        known = _told((column(old), column(new)) for (old, _), (new, _) in zip(rows.columns, columns, strict=True))
        return rows.through(known, columns)

    # -- joins

    def _join(self, step: Tree) -> Rows:
        left, right = (self.rows(child) for child in step.children)
        return self._joined(step, _Join(step, left, right))

    def _lateral_join(self, step: Tree) -> Rows:
        """What stands right is a query for each row of the left; `require_plain_expressions` has looked at it."""
        left, inside = self.rows(step.children[0]), step.one("right")
        plan = None if inside is None else inside.fields.get("plan")
        assert isinstance(plan, Tree)
        if left.anchors and any(tree.name == "PythonUDTF" for tree in everything(plan)):
            raise Refusal(step, "calls a Python user-defined table function", _first([left]), known=False)
        return replace(left, columns=(*left.columns, *self._inside(left, plan).columns))

    def _inside(self, outer: Rows, plan: Tree) -> Rows:
        """The rows of a query that is evaluated for each of some rows."""
        self._outer.append(outer)
        try:
            return self.rows(plan)
        finally:
            self._outer.pop()

    def _joined(self, step: Tree, join: _Join) -> Rows:
        left, right = join.left, join.right
        if left.main and right.main:
            self._require_equal_keys(step, join)
            return join.of_keys()
        if left.main or right.main:
            main, other = (left, right) if left.main else (right, left)
            if not join.preserves(main):
                raise Refusal(step, f"keeps unmatched rows of a lookup ({join.spelled})", _first([main]))
            self._require_carried(step, join, main, other)
            return join.with_columns_of_both(main)
        if left.anchors and right.anchors:
            if join.kind not in ("Inner", "Cross"):
                raise Refusal(step, f"joins two lookups with a {join.spelled}", _first([left]))
            return Rows(join.columns, {**left.anchors, **right.anchors})
        anchored = left if left.anchors else right
        if anchored.anchors and not join.preserves(anchored):
            raise Refusal(step, f"keeps rows without a match in a lookup ({join.spelled})", _first([anchored]))
        return Rows(join.columns, anchored.anchors)

    def _require_equal_keys(self, step: Tree, join: _Join) -> None:
        if ROW in join.left.anchors:
            raise Refusal(step, "joins two inputs whose matching rows may arrive in different runs", ROW)
        left, right = join.left.anchors[KEY], join.right.anchors[KEY]
        for part in left:
            if not any(p.left in left[part] and p.right in right[part] for p in join.pairs):
                what = f"joins two keyed inputs {join.told}, but not on the key `{part}` of both"
                raise Refusal(step, what)

    def _require_carried(self, step: Tree, join: _Join, main: Rows, other: Rows) -> None:
        """A lookup that is followed meets rows by the columns that it is followed by."""
        pairs = join.pairs if main is join.left else [replace(p, left=p.right, right=p.left) for p in join.pairs]
        for anchor, parts in other.anchors.items():
            if not any(_is_carried(one, parts, pairs) for one in main.carried):
                raise Refusal(step, f"joins it {join.told}", anchor)

    # -- what steps have in common

    def _require_apart(self, step: Tree, rows: Rows, by: Sequence[Tree], what: str) -> None:
        """What rows are gathered by determines what they belong to."""
        known = {value: {value} for value in map(value_of, by)}
        listed = ", ".join(shown(value, rows.names) for value in known)
        known = with_fields(known)
        for anchor, parts in rows.anchors.items():
            if anchor == ROW or not all(any(rewritten(v, known) for v in values) for values in parts.values()):
                raise Refusal(step, what.format(by=listed), anchor)

    def _require_told(self, step: Tree, rows: Rows, what: str) -> None:
        """All columns together tell what a row belongs to."""
        for anchor, parts in rows.anchors.items():
            if anchor == ROW or not all(parts.values()):
                raise Refusal(step, what, anchor)

    def require_plain_expressions(self, step: Tree) -> None:
        """Expressions that see one row: no query over anything but lookups, no Python over many rows."""
        for holder, plan in step.subqueries():
            outer = self.rows(step.children[0]) if len(step.children) == 1 else Rows(())
            try:
                inside = self._inside(outer, plan)
                anchors = _first([inside]) if inside.anchors and not _is_among(step, holder, outer, inside) else None
            except Refusal as refusal:
                anchors = refusal.anchor
            if anchors is not None:
                raise Refusal(step, f"uses a subquery over {self._sources(plan)}", anchors)
        if step.name in _GROUPED_MAPS or "functionExpr" in step.fields:
            return
        for expression in step.expressions():
            if expression.name == "VariableReference":
                raise Refusal(step, "reads a SQL session variable, whose value may come from other rows")
            if expression.name == "PythonUDF" and expression.fields.get("evalType") not in _ROW_BY_ROW:
                called = expression.fields.get("name")
                raise Refusal(step, f"calls a vectorised Python UDF on batches of rows ({called})", known=False)

    def _sources(self, plan: Tree) -> str:
        """The inputs that a query reads, as the author calls them."""
        names = dict.fromkeys(f"`{name}`" for name in self._names_in(plan))
        return " and ".join(names) or "its inputs"

    def _names_in(self, plan: Tree) -> Iterator[str]:
        for step in plan.walk():
            if step.name == "CTERelationRef" and (found := self._definitions.get(int(step.fields["cteId"]))):
                yield from self._names_in(found)
            elif step.name == "Range" and 0 <= (number := MARK - int(step.fields["start"])) < len(self._inputs):
                yield self._inputs[number].name


@dataclass(frozen=True, slots=True)
class _Join:
    """A join of two sides."""

    step: Tree
    left: Rows
    right: Rows
    #: What a filter above requires to be equal.
    also: tuple[Equality, ...] = ()

    @property
    def kind(self) -> str:
        return self.kind_of(self.step)

    @staticmethod
    def kind_of(step: Tree) -> str:
        """The kind of a join, as Spark calls it."""
        told = step.fields["joinType"]
        return told if isinstance(told, str) else str(told.get("product-class", "")).rpartition(".")[2]

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
        """What the condition requires to be equal, the left side's value first."""
        ours, theirs = set(self.left.names), set(self.right.names)
        found = []
        for pair in (*equalities(self.step.one("condition")), *self.also):
            sides = [set(_columns_of(value)) for value in (pair.left, pair.right)]
            if sides[0] <= ours and sides[1] <= theirs:
                found.append(pair)
            elif sides[0] <= theirs and sides[1] <= ours:
                found.append(replace(pair, left=pair.right, right=pair.left))
        return found

    @property
    def told(self) -> str:
        """What rows meet by, for a message."""
        names = {**self.left.names, **self.right.names}
        listed = [f"{shown(p.left, names)} = {shown(p.right, names)}" for p in self.pairs]
        return f"on {' and '.join(listed)}" if listed else "without an equality condition"

    def preserves(self, side: Rows) -> bool:
        """Whether every row that comes out belongs to a row of this side."""
        if self.kind in ("Inner", "Cross"):
            return True
        return self.kind in _LEFT if side is self.left else self.kind == "RightOuter"

    def with_columns_of_both(self, main: Rows) -> Rows:
        rows = replace(main, columns=self.columns)
        return rows.with_equal(self.pairs) if self.kind == "Inner" else rows

    def of_keys(self) -> Rows:
        """The rows of two keyed sides that meet by the key."""
        left, right = self.left.anchors[KEY], self.right.anchors[KEY]
        if self.kind in ("Inner", "Cross"):
            keys = {part: left[part] | right[part] for part in left}
        elif self.kind in _LEFT:
            keys = dict(left)
        elif self.kind == "RightOuter":
            keys = dict(right)
        elif self.kind == "FullOuter":
            keys = {part: _either(left[part], right[part]) for part in left}
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


def _is_among(step: Tree, holder: Tree, outer: Rows, inside: Rows) -> bool:
    """Whether a query tells of each row only whether its key is among those that the query gives.

    As a condition alone: elsewhere, and where it is negated, a NULL that any row of the query has makes a difference.
    """
    condition = step.one("condition")
    if step.name != "Filter" or condition is None or set(inside.anchors) != {KEY}:
        return False
    compared = next((one for one in _required(condition) if one.name == "InSubquery" and holder in one.walk()), None)
    if compared is None:
        return False
    values = [value_of(child) for child in compared.children if child is not holder]
    keys, given = inside.anchors[KEY], [column(number) for number, _ in inside.columns]
    places = dict(zip(values, given, strict=False))
    own = outer.anchors.get(KEY, {})
    return all(any(v in own.get(part, ()) and places[v] in keys[part] for v in values) for part in keys)


def _required(condition: Tree) -> Iterator[Tree]:
    """All that a condition requires."""
    if condition.name == "And":
        for side in condition.children:
            yield from _required(side)
    else:
        yield condition


def _either(left: frozenset[Value], right: frozenset[Value]) -> frozenset[Value]:
    """The key of rows that may have only one side, as `coalesce` gives it.

    Columns alone: what is computed may have a value where the side is missing and its columns are NULL.
    """
    pairs = itertools.product([v for v in left if v[0] == "column"], [v for v in right if v[0] == "column"])
    return frozenset(first_of(order) for pair in itertools.islice(pairs, _SIDES) for order in (pair, pair[::-1]))


#: Of what may be paired in several ways so many pairs are looked at.
_SIDES = 16


def _is_carried(carried: Carried, parts: Parts, pairs: Sequence[Equality]) -> bool:
    """Whether every column of a lookup is equal to the one of that name that rows of an input have."""
    return all(
        any(
            pair.left in carried.parts.get(part, ())
            and pair.right in values
            and not (pair.null_safe and carried.optional)
            for pair in pairs
        )
        for part, values in parts.items()
    )


def _carried_by_all(sides: Sequence[tuple[Carried, ...]]) -> tuple[Carried, ...]:
    """What the rows of every side carry in the same columns."""
    found = []
    for some in itertools.islice(itertools.product(*sides), _SIDES):
        shared = set.intersection(*(set(one.parts) for one in some)) if some else set()
        parts = {name: frozenset.intersection(*(one.parts[name] for one in some)) for name in shared}
        if parts and all(parts.values()):
            found.append(Carried(parts, optional=any(one.optional for one in some)))
    return tuple(found)


def equalities(condition: Tree | None) -> list[Equality]:
    """What a condition requires to be equal, of all that it requires."""
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


def _first(below: Sequence[Rows]) -> str:
    """The anchor to speak of: the key before any lookup."""
    names = [name for rows in below for name in rows.anchors]
    return next((name for name in names if name in (KEY, ROW)), next(iter(names), KEY))


def _told_by(entries: Sequence[Tree]) -> dict[Value, set[Value]]:
    """Which column of a projection tells each value that it computes."""
    return _told((value_of(entry), column(entry.id)) for entry in entries if "exprId" in entry.fields)


def _told(pairs: Iterable[tuple[Value, Value]]) -> dict[Value, set[Value]]:
    found: dict[Value, set[Value]] = {}
    for value, form in pairs:
        found.setdefault(value, set()).add(form)
    return with_fields(found)


def _columns(entries: Sequence[Tree]) -> tuple[tuple[int, str], ...]:
    return tuple((entry.id, str(entry.fields["name"])) for entry in entries if "exprId" in entry.fields)


def _columns_of(value: Value) -> list[int]:
    if value[0] == "column":
        return [value[1]]
    return [number for part in value if isinstance(part, tuple) for number in _columns_of(part)]


def _trees(value: object) -> list[Tree]:
    return [item for item in value if isinstance(item, Tree)] if isinstance(value, list) else []


def _outputs(step: Tree, below: Sequence[Rows]) -> tuple[tuple[int, str], ...]:
    """The columns of a step that needs no more to be known of it."""
    if own := step.listed("output"):
        return _columns(own)
    return tuple(pair for rows in below for pair in rows.columns)


_STEPS: Mapping[str, Callable[[Lineage, Tree], Rows]] = {
    "Aggregate": Lineage._aggregate,
    "Deduplicate": Lineage._deduplicate,
    "Distinct": Lineage._distinct,
    "Except": Lineage._set_operation,
    "Expand": Lineage._expand,
    "Filter": Lineage._filter,
    "FlatMapGroupsInArrow": Lineage._grouped_map,
    "FlatMapGroupsInPandas": Lineage._grouped_map,
    "Generate": Lineage._generate,
    "Intersect": Lineage._set_operation,
    "Join": Lineage._join,
    "LateralJoin": Lineage._lateral_join,
    "MapInArrow": Lineage._in_batches,
    "MapInPandas": Lineage._in_batches,
    "Project": Lineage._project,
    "PythonMapInArrow": Lineage._in_batches,
    "Union": Lineage._union,
    "Window": Lineage._window,
    "WithCTE": Lineage._with_definitions,
}
#: Columns of an input, before it is known by which ids a plan calls them, are numbered from here on.
_PLACE = -(10**9)


def placed(number: int) -> Value:
    """A column of an input, by its place among the input's columns."""
    return column(_PLACE + number)
