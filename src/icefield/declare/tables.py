"""`table`: a function over DataFrames, declared as a table of the lake."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from icefield.declare.checks import Check, Unique, flatten
from icefield.declare.columns import Column, parse_columns
from icefield.declare.inputs import Ref
from icefield.declare.limits import Limit, limit_of
from icefield.declare.options import Otherwise, must_be_one_of, texts
from icefield.declare.partitions import parse_partition
from icefield.declare.queries import Query
from icefield.declare.refresh import Refresh, append, full
from icefield.declare.registry import Location, caller, current
from icefield.declare.sources import Source
from icefield.errors import InvalidFunction, InvalidName, InvalidOption

if TYPE_CHECKING:
    from typing import TypeAlias

    Input: TypeAlias = "str | Ref | Source | Callable[..., Any]"

F = TypeVar("F", bound="Callable[..., Any]")

NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
#: The two forms that orchestrators and catalogs know.
OWNER = re.compile(r"team:[\w.-]+|[^@\s]+@[^@\s]+\.[^@\s]+")
RESERVED_SCHEMAS = ("ops",)
RESERVED_ENDINGS = ("__quarantine", "__changes", "__state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One declaration: what a function makes, from what, how it is refreshed and what must hold."""

    name: str
    function: Callable[..., Any]
    source: Source | None
    inputs: Mapping[str, Input]
    refresh: Refresh
    checks: tuple[Check, ...]
    otherwise: Otherwise
    columns: tuple[Column, ...] | None
    partitioned_by: tuple[str, ...]
    volatile: tuple[str, ...]
    tags: tuple[str, ...]
    owners: tuple[str, ...]
    max_rejected: Limit | None
    renamed: Mapping[str, str]
    comments: Mapping[str, str]
    comment: str
    location: Location

    @property
    def parameters(self) -> tuple[str, ...]:
        """The inputs' names: the function's parameters without a default."""
        return parameters_of(self.function)


def table(
    name: str,
    *,
    source: Source | None = None,
    inputs: Mapping[str, Input] | None = None,
    refresh: Refresh | None = None,
    checks: Sequence[Check] = (),
    otherwise: Otherwise = "fail",
    columns: str | None = None,
    partitioned_by: Sequence[str] = (),
    volatile: Sequence[str] = (),
    tags: Sequence[str] = (),
    owners: Sequence[str] = (),
    max_rejected: int | str | None = None,
    renamed: Mapping[str, str] | None = None,
    comments: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """Declare the table that a function makes; the function itself is returned unchanged.

    `owners=["ann@example.com", "team:finance"]`: whom to ask about it. `max_rejected=100` or `"5%"`: if checks reject
    more rows than that, the run fails. `renamed={"amount": "price"}`: the column `amount` used to be called `price`,
    and keeps its stored values. `comments={"amount": "in euros"}` describes columns where `columns=` does not.
    """
    location = caller()
    _must_be_a_name(name)
    must_be_one_of("otherwise", otherwise)
    _must_be(Source, "source", source, 'files("landing/*.csv", schema="...")')
    _must_be(Refresh, "refresh", refresh, "append(), by_key(...), accumulate(...) or full()")
    kept = _checks(checks, otherwise, has_source=source is not None or _a_source_in(inputs))
    build = functools.partial(
        Table,
        name=name,
        source=source,
        inputs=_inputs(inputs),
        refresh=refresh or (append() if source is not None and source.grows else full()),
        checks=kept,
        otherwise=otherwise,
        columns=None if columns is None else parse_columns(columns),
        partitioned_by=tuple(str(parse_partition(part)) for part in texts("partitioned_by", partitioned_by)),
        volatile=texts("volatile", volatile),
        tags=texts("tags", tags),
        owners=_owners(owners),
        max_rejected=limit_of("max_rejected", max_rejected),
        renamed=_renamed(renamed),
        comments=_comments(comments),
        location=location,
    )
    return _waiting_for_its_function(name, location, build)


def _waiting_for_its_function(name: str, location: Location, build: Callable[..., Table]) -> Callable[[F], F]:
    """The decorator: until it is applied, the load knows that a declaration is unfinished."""
    registry = current()
    token = object()
    if registry is not None:
        registry.unapplied[token] = (name, location)

    def declare(function: F) -> F:
        _must_be_a_function(name, function, location)
        declared: Table = build(function=function, comment=_comment_of(function))
        if registry is not None:
            registry.unapplied.pop(token, None)
            registry.tables.append(declared)
        _remember(function, declared)
        return function

    return declare


#: Where a function keeps what it declares, for tests that call it; nothing of it is part of what the function means.
DECLARES = "__icefield_tables__"


def _remember(function: Any, declared: Table) -> None:
    if isinstance(function, Query):
        function.declares.append(declared)
        return
    try:
        vars(function).setdefault(DECLARES, []).append(declared)
    except TypeError:  # a callable without attributes of its own declares as well, and is asked for its refresh kind
        return


def declarations_of(function: Any) -> tuple[Table, ...]:
    """The tables that a function declares."""
    found = function.declares if isinstance(function, Query) else getattr(function, DECLARES, ())
    return tuple(found)


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Parameters without a default; annotations are never evaluated, on no version of Python."""
    return tuple(p.name for p in _signature(function).parameters.values() if p.default is p.empty)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format  # noqa: PLC0415 - exists from 3.14 on

        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)


def _comment_of(function: Callable[..., Any]) -> str:
    if isinstance(function, Query):
        return function.comment
    target = function.func if isinstance(function, functools.partial) else function
    return inspect.cleandoc(getattr(target, "__doc__", None) or "")


def _must_be_a_name(name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} is not a valid table name" if isinstance(name, str) else f"table({name!r}) has no name",
            where=str(caller()),
            remedy='write schema.table in lower snake case, as in table("silver.orders")',
        )
    schema, _, last = name.partition(".")
    if schema in RESERVED_SCHEMAS or last.endswith(RESERVED_ENDINGS):
        raise InvalidName(
            f"{name} is reserved for icefield's own tables (ops.*, *__quarantine, *__changes, *__state)",
            where=str(caller()),
            remedy="give the table another name",
        )


def _must_be(kind: type, option: str, value: object, example: str) -> None:
    if value is None or isinstance(value, kind):
        return
    forgotten = " (are the parentheses missing?)" if callable(value) else ""
    raise InvalidOption(
        f"{option}={value!r} is not a valid {option}{forgotten}", where=str(caller()), remedy=f"write {example}"
    )


def _inputs(inputs: Mapping[str, Input] | None) -> dict[str, Input]:
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        raise InvalidOption(
            f"inputs={inputs!r} is not a mapping",
            where=str(caller()),
            remedy='write inputs={"parameter": "schema.table"}',
        )
    for parameter, given in inputs.items():
        if not (isinstance(given, str | Ref | Source) or callable(given)):
            raise InvalidOption(
                f"inputs[{parameter!r}] is {given!r}, which is not a table name, ref(), lookup(), source or "
                "declared function",
                where=str(caller()),
                remedy=f'write {{"{parameter}": "schema.table"}}',
            )
    return dict(inputs)


def _owners(owners: Sequence[str]) -> tuple[str, ...]:
    found = texts("owners", owners)
    for owner in found:
        if not OWNER.fullmatch(owner):
            raise InvalidOption(
                f"owners holds {owner!r}, which is neither an e-mail address nor a team",
                where=str(caller()),
                remedy='write owners=["ann@example.com", "team:finance"]',
            )
    return found


def _renamed(renamed: Mapping[str, str] | None) -> dict[str, str]:
    if renamed is None:
        return {}
    pairs = list(renamed.items()) if isinstance(renamed, Mapping) else [(renamed, None)]
    for new, old in pairs:
        if not isinstance(new, str) or not isinstance(old, str) or not new or not old or new == old:
            raise InvalidOption(
                f"renamed={renamed!r} does not map new column names to old ones",
                where=str(caller()),
                remedy='write renamed={"amount": "price"} for a column `amount` that was formerly called `price`',
            )
    if len({old for _, old in pairs}) < len(pairs) or set(renamed) & set(renamed.values()):
        raise InvalidOption(
            f"renamed={dict(renamed)!r} uses a column name twice",
            where=str(caller()),
            remedy="map each new name to a different old name",
        )
    return dict(renamed)


def _comments(comments: Mapping[str, str] | None) -> dict[str, str]:
    if comments is None:
        return {}
    pairs = list(comments.items()) if isinstance(comments, Mapping) else [(comments, None)]
    if not all(isinstance(column, str) and column and isinstance(comment, str) for column, comment in pairs):
        raise InvalidOption(
            f"comments={comments!r} does not map column names to texts",
            where=str(caller()),
            remedy='write comments={"amount": "in euros"}',
        )
    return dict(comments)


def _a_source_in(inputs: Mapping[str, Input] | None) -> bool:
    return isinstance(inputs, Mapping) and any(isinstance(given, Source) for given in inputs.values())


def _checks(checks: Sequence[Check], otherwise: Otherwise, *, has_source: bool) -> tuple[Check, ...]:
    if isinstance(checks, Check):
        raise InvalidOption(
            f"checks= is a single check, `{checks.name}`, not a list of checks",
            where=str(caller()),
            remedy="put it in brackets: checks=[...]",
        )
    for check in checks:
        if not isinstance(check, Check):
            raise InvalidOption(
                f"checks= contains {check!r}, which is not a check",
                where=str(caller()),
                remedy='write checks=[not_null("id"), expect("amount is positive", "amount > 0")]',
            )
    kept = flatten(tuple(checks))
    names = [check.name for check in kept]
    for check in kept:
        if names.count(check.name) > 1:
            raise InvalidOption(
                f"two different checks are named `{check.name}`",
                where=str(caller()),
                remedy="give each check a unique name: results and reasons are listed by name",
            )
        _refuse_impossible_outcome(check, otherwise, has_source=has_source)
    return kept


def _refuse_impossible_outcome(check: Check, default: Otherwise, *, has_source: bool) -> None:
    if check.otherwise is not None and check.otherwise not in check.outcomes:
        raise InvalidOption(
            f"check `{check.name}` has otherwise={check.otherwise!r}, but it applies to the whole table, so there is "
            "no single row to reject",
            where=str(caller()),
            remedy='write otherwise="warn" or otherwise="fail"',
        )
    if check.at_most is not None and (check.otherwise or default) in ("drop", "quarantine"):
        raise InvalidOption(
            f"check `{check.name}` has at_most=, but rejects the rows that fail it",
            where=str(caller()),
            remedy='set otherwise="warn" or otherwise="fail", or limit how many rows the table may reject:'
            ' table(..., max_rejected="5%")',
        )
    if isinstance(check, Unique) and not has_source and (check.otherwise or default) in ("drop", "quarantine"):
        raise InvalidOption(
            f"check `{check.name}` would keep the row that arrived first, which only tables with a source know",
            where=str(caller()),
            remedy=f'write unique({", ".join(repr(c) for c in check.columns)}, otherwise="fail"), or deduplicate in '
            "the function",
        )


def _must_be_a_function(name: str, function: object, location: Location) -> None:
    def wrong(what: str, remedy: str) -> InvalidFunction:
        return InvalidFunction(f'table("{name}"): {what}', where=str(location), remedy=remedy)

    if not callable(function):
        raise wrong(f"{function!r} is not a function", "apply it to a function that takes and returns DataFrames")
    if getattr(function, "__name__", "") == "<lambda>":
        raise wrong("a lambda has no name that messages could show", "write it as a def")
    try:
        signature = _signature(function)
    except (TypeError, ValueError):
        raise wrong(f"the parameters of {function!r} cannot be inspected", "wrap it in a def") from None
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise wrong(f"its inputs cannot be determined from *{parameter.name}", "declare each input as a parameter")
    if not any(p.default is p.empty for p in signature.parameters.values()):
        raise wrong(
            "the function has no parameter without a default, so it reads no input",
            "declare each input as a parameter, as in def orders(raw_orders: DataFrame) -> DataFrame",
        )
