"""`sql`: Spark's own parametrised SQL turned into a function of DataFrames."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from icefield.declare.registry import Location, caller, caller_folder, current
from icefield.errors import InvalidQuery

_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query as a function: its {names} are the parameters, calling it runs it on the frames' own session."""

    text: str = field(repr=False)
    parameters: tuple[str, ...]
    location: Location
    #: The tables that it was declared as.
    declares: list[Any] = field(default_factory=list, repr=False, compare=False)

    @property
    def __name__(self) -> str:
        return "sql"

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.parameters])

    @property
    def comment(self) -> str:
        """The comment lines the query begins with."""
        lines: list[str] = []
        for line in self.text.strip().splitlines():
            if not line.lstrip().startswith("--"):
                break
            lines.append(line.strip().lstrip("-").strip())
        return " ".join(lines).strip()

    def __call__(self, *frames: Any, **named: Any) -> Any:
        """Run the query over the given frames."""
        bound = self.__signature__.bind(*frames, **named).arguments
        return next(iter(bound.values())).sparkSession.sql(self.text, **bound)


def sql(query_or_file: str) -> Callable[..., Any]:
    """A function from a query or a .sql file beside this one: `table("gold.daily")(sql("daily.sql"))`."""
    text, file = _read(query_or_file)
    place = caller() if file is None else Location(_shown(file), 1)
    return Query(text=text, parameters=_parameters(text, place, in_file=file is not None), location=place)


def _read(query_or_file: str) -> tuple[str, str | None]:
    if not isinstance(query_or_file, str) or not query_or_file.strip():
        raise InvalidQuery(
            f"sql({query_or_file!r}) contains no query",
            where=str(caller()),
            remedy='write sql("file.sql") or the query',
        )
    if not query_or_file.rstrip().endswith(".sql") or "\n" in query_or_file.strip():
        return query_or_file, None
    from pathlib import Path  # noqa: PLC0415 - only a query in a file pays for it

    file = Path(caller_folder(), query_or_file.strip()).resolve()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        beside = sorted(path.name for path in file.parent.glob("*.sql"))
        raise InvalidQuery(
            f"the query file {query_or_file} cannot be read: {getattr(problem, 'strerror', None) or problem}",
            where=str(caller()),
            remedy=f"next to the declaring file there is: {', '.join(beside) or 'no .sql file'}",
        ) from None
    registry = current()
    if registry is not None:
        registry.files.add(str(file))
    if not text.strip():
        raise InvalidQuery(f"{query_or_file} is empty", where=str(caller()), remedy="write a query into it")
    return text, str(file)


def _parameters(text: str, place: Location, *, in_file: bool) -> tuple[str, ...]:
    """The {names} of the query; braces that mean something else are the classic trap and get their line."""
    for match in _BRACED.finditer(text):
        if match[1] is None:
            continue
        name = _NAME.match(match[1])
        rest = match[1][name.end() :] if name else match[1]
        if name is None or not (rest == "" or rest[0] in ".["):
            line = place.line + (text.count("\n", 0, match.start()) if in_file else 0)
            raise InvalidQuery(
                f"{match[0]} in the query is not a table name",
                where=f"{place.file}:{line}",
                remedy=f"braces contain inputs; for literal braces write {{{match[0]}}}",
            )
    try:
        fields = [part for _, part, _, _ in string.Formatter().parse(text) if part is not None]
    except ValueError as problem:
        raise InvalidQuery(
            f"the braces in the query cannot be parsed: {problem}",
            where=str(place),
            remedy="write {{ and }} for literal braces",
        ) from None
    names = tuple(dict.fromkeys(re.split(r"[.\[]", part)[0] for part in fields))
    if not names:
        raise InvalidQuery(
            "the query has no input, so its table would depend on nothing",
            where=str(place),
            remedy="write FROM {table_name} where it reads a table in the project",
        )
    return names


def _shown(file: str) -> str:
    registry = current()
    return registry.relative(file) if registry else file.rpartition("/")[2]
