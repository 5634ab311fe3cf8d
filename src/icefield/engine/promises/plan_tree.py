"""Spark's analysed plan as a tree of plain values, parsed from its JSON: rules over it need neither Spark nor a JVM."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A step of a plan, or an expression in one: the name of Spark's class, its fields, and what is below it.

    Fields hold scalars, trees, and lists of them. `path` leads from the plan's root to a step, by the number of the
    child; it is empty in expressions and in subqueries.
    """

    name: str
    fields: Mapping[str, Any]
    children: tuple[Tree, ...] = ()
    path: tuple[int, ...] = field(default=(), compare=False)

    @property
    def id(self) -> int:
        """What Spark tells this column from all others by."""
        return int(self.fields["exprId"]["id"])

    def walk(self) -> Iterator[Tree]:
        """This one and everything below it, top down."""
        yield self
        for child in self.children:
            yield from child.walk()

    def expressions(self) -> Iterator[Tree]:
        """The expressions of a step, each before what it is made of; not those of other steps or of subqueries."""
        for value in self.fields.values():
            for tree in trees_in(value):
                yield from tree.walk()

    def listed(self, name: str) -> list[Tree]:
        """The trees of a field that is a list of them."""
        return list(trees_in(self.fields.get(name)))

    def one(self, name: str) -> Tree | None:
        """The tree of a field that is one or none."""
        return next(iter(trees_in(self.fields.get(name))), None)

    def subqueries(self) -> Iterator[tuple[Tree, Tree]]:
        """The queries inside of a step's expressions, each with the expression that holds it."""
        for expression in self.expressions():
            if isinstance(plan := expression.fields.get("plan"), Tree):
                yield expression, plan


def trees_in(value: Any) -> Iterator[Tree]:
    """The trees that a field's value is made of."""
    if isinstance(value, Tree):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from trees_in(item)


def everything(plan: Tree) -> Iterator[Tree]:
    """Every step and every expression of a plan, those of subqueries as well."""
    for step in plan.walk():
        yield step
        for value in step.fields.values():
            for tree in trees_in(value):
                yield from everything(tree)


def parse(text: str) -> Tree:
    """The tree that Spark's `toJSON` describes."""
    return _tree(json.loads(text), ())


def _tree(nodes: list[dict[str, Any]], path: tuple[int, ...] | None) -> Tree:
    """JSON lists a tree's nodes top down, each with the number of its children."""
    rest = iter(nodes)

    def following(path: tuple[int, ...] | None) -> Tree:
        node = next(rest)
        count, name = node["num-children"], node["class"].rpartition(".")[2]
        children = tuple(following(None if path is None else (*path, n)) for n in range(count))
        values = {key: _value(value) for key, value in node.items() if key not in ("class", "num-children")}
        return Tree(name, values, children, path or ())

    return following(path)


def _value(value: Any) -> Any:
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and "num-children" in value[0]:
            return _tree(value, None)
        return [_value(item) for item in value]
    if isinstance(value, dict) and set(value) == {"object"}:  # one of Scala's, such as the kind of a join
        return value["object"].rpartition(".")[2].rstrip("$")
    if isinstance(value, dict) and "product-class" in value and len(value) == 1:
        return value["product-class"].rpartition(".")[2]
    return value
