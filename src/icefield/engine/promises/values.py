"""Expressions as values that can be compared: two that are equal give the same result for the same row."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from icefield.engine.promises.plan_tree import trees_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from icefield.engine.promises.plan_tree import Tree

#: A column is ("column", its id), a constant ("literal", ...); anything else is its name, its fields and its operands.
Value = tuple[Any, ...]

#: Expressions whose result depends on more than their operands.
NONDETERMINISTIC = frozenset(
    [
        "CurrentTimestamp",
        "Now",
        "LocalTimestamp",
        "CurrentDate",
        "CurrentTime",
        "CurrentBatchTimestamp",
        "Uuid",
        "Rand",
        "Randn",
        "RandStr",
        "Uniform",
        "Shuffle",
        "MonotonicallyIncreasingID",
        "SparkPartitionID",
        "InputFileName",
        "InputFileBlockStart",
        "InputFileBlockLength",
        "CurrentUser",
        "CallMethodViaReflection",
    ]
)
#: Fields that do not change what an expression gives: where its operands stand, and what Spark keeps for itself.
_IGNORED = frozenset(
    [
        "exprId",
        "resultId",
        "metadata",
        "qualifier",
        "nullable",
        "nonInheritableMetadataKeys",
        "explicitMetadata",
        "evalMode",
        # what `typed` adds
        "type",
        "function",
        "sql",
        "renames",
        "evalContext",
        "timeZoneId",
        "ansiEnabled",
        "failOnError",
        "hint",
    ]
)
#: Of a column's rewritten forms so many are followed: a key needs one.
_FORMS = 8
_unique = itertools.count()


def value_of(expression: Tree) -> Value:
    """An expression as a value; one that gives something else each time equals nothing."""
    name = expression.name
    if name == "AttributeReference":
        return column(expression.id)
    if name == "Literal":
        return ("literal", str(expression.fields.get("dataType")), expression.fields.get("value"))
    if name == "Alias":
        return value_of(expression.children[0])
    if name == "OuterReference":
        inside = expression.one("e")
        return opaque() if inside is None else value_of(inside)
    if name == "NamedLambdaVariable":
        return ("variable", expression.id)
    if name in NONDETERMINISTIC or "plan" in expression.fields:
        return opaque()
    if name in ("PythonUDF", "PythonUDAF", "ScalaUDF"):  # JSON does not hold the function itself
        return _called(expression)
    return _function(expression)


def _called(expression: Tree) -> Value:
    """A function of Python's or Scala's: known only as the one that is called here."""
    result = expression.fields.get("resultId")
    same = result["id"] if isinstance(result, dict) and expression.fields.get("udfDeterministic", True) else None
    return (expression.name, next(_unique) if same is None else same, *map(value_of, expression.children))


#: Functions of which JSON leaves out options or patterns, so that two that differ look the same.
_LEFT_OUT = frozenset(
    [
        "CsvToStructs",
        "JsonToStructs",
        "StructsToCsv",
        "StructsToJson",
        "XmlToStructs",
        "StructsToXml",
        "Like",
        "ILike",
        "LikeAll",
        "LikeAny",
        "NotLikeAll",
        "NotLikeAny",
    ]
)


def _function(expression: Tree) -> Value:
    if expression.name in _LEFT_OUT:
        return opaque()
    name, children = expression.name, tuple(map(value_of, expression.children))
    if "replacement" in expression.fields and len(children) == 1:  # another spelling of what stands below it
        return children[0]
    if name == "Cast":
        return _cast(expression, str(expression.fields.get("dataType")), children[0])
    if name in ("ParseToDate", "ParseToTimestamp") and len(children) == 1:  # without a format: a cast
        return _cast(expression, "date" if name == "ParseToDate" else str(expression.fields["dataType"]), children[0])
    if name in ("TruncTimestamp", "TruncDate"):
        children = tuple(_unit(child) for child in children)
    if name == "GetStructField":
        return _field(children[0], int(expression.fields["ordinal"]))
    if name == "Coalesce":
        return first_of(children)
    told = {key: value for key, value in expression.fields.items() if key not in _IGNORED and not any(trees_in(value))}
    if not children and len(told) < len(expression.fields.keys() - _IGNORED):
        return opaque()  # made of something that is no operand
    return (name, json.dumps(told, sort_keys=True, default=str), *children)


def _cast(expression: Tree, kind: str, operand: Value) -> Value:
    """A cast; to the same type, or to a larger one of whole numbers, it changes nothing."""
    before = str(expression.children[0].fields.get("dataType"))
    if before == kind or (before in _WHOLE and kind in _WHOLE and _WHOLE.index(before) < _WHOLE.index(kind)):
        return operand
    return ("Cast", kind, operand)


_WHOLE = ("byte", "short", "integer", "long")


def first_of(operands: Iterable[Value]) -> Value:
    """The first of some values that is not NULL, however `coalesce` was nested."""
    flat = [part for one in operands for part in (one[1:] if one[0] == "Coalesce" else (one,))]
    return ("Coalesce", *flat)


def _field(struct: Value, ordinal: int) -> Value:
    """A field of a struct; of one that is made right there, what it was made of."""
    if struct[0] == "CreateNamedStruct":  # names and values by turns
        return struct[2:][2 * ordinal + 1]  # type: ignore[no-any-return]
    return ("GetStructField", ordinal, struct)


def with_fields(known: dict[Value, set[Value]]) -> dict[Value, set[Value]]:
    """What is known of values, and of those that structs among them are made of: each is a field of its struct."""
    found = {value: set(forms) for value, forms in known.items()}
    for value, forms in known.items():
        if value[0] == "CreateNamedStruct":
            for ordinal, part in enumerate(value[2:][1::2]):
                found.setdefault(part, set()).update(_field(form, ordinal) for form in forms)
    return found


#: Units that a time is truncated to under other names.
_UNITS = {"MON": "MONTH", "MM": "MONTH", "YYYY": "YEAR", "YY": "YEAR", "DD": "DAY"}


def _unit(operand: Value) -> Value:
    """The unit that a time is truncated to: MINUTE is minute."""
    if operand[0] == "literal" and isinstance(operand[2], str):
        unit = operand[2].upper()
        return (*operand[:2], _UNITS.get(unit, unit))
    return operand


def column(number: int) -> Value:
    """A column, by its id."""
    return ("column", number)


def opaque() -> Value:
    """Something that equals nothing else."""
    return ("opaque", next(_unique))


def rewritten(value: Value, known: Mapping[Value, Iterable[Value]]) -> frozenset[Value]:
    """The forms that a value has in terms of others; `known` tells how parts of it are called there.

    Empty where it cannot be worked out from them.
    """
    found = set(known.get(value, ()))
    if value[0] == "literal":
        found.add(value)
    elif value[0] not in ("column", "opaque", "variable"):
        found |= set(itertools.islice(_remade(value, known), _FORMS))
    return frozenset(found)


def _remade(value: Value, known: Mapping[Value, Iterable[Value]]) -> Iterator[Value]:
    parts = [rewritten(part, known) if isinstance(part, tuple) else (part,) for part in value]
    return (tuple(made) for made in itertools.product(*(sorted(part, key=repr) for part in parts)))


def renamed(value: Value, ids: Mapping[int, int]) -> Value:
    """The same with other columns."""
    if value[0] == "column":
        return column(ids.get(value[1], value[1]))
    return tuple(renamed(part, ids) if isinstance(part, tuple) else part for part in value)


def columns_in(value: Value) -> Iterator[int]:
    """The columns that a value is made of."""
    if value[0] == "column":
        yield value[1]
    else:
        for part in value:
            if isinstance(part, tuple):
                yield from columns_in(part)


def shown(value: Value, names: Mapping[int, str]) -> str:
    """A value as an author may recognise it."""
    if value[0] == "column":
        return f"`{names.get(value[1], '?')}`"
    if value[0] == "literal":
        return repr(value[2])
    operands = ", ".join(shown(part, names) for part in value[1:] if isinstance(part, tuple))
    return f"{_spelled(value[0])}({operands})"


def _spelled(name: str) -> str:
    """CamelCase as functions are written."""
    return "".join(f"_{letter.lower()}" if letter.isupper() and n else letter.lower() for n, letter in enumerate(name))
