"""Relations in SQL that dbt compiled, made the `{names}` of icefield's `sql`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: A relation by its parts, in lower case: ("analytics", "orders").
Parts = tuple[str, ...]

_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>r?'(?:[^'\\]|\\.|'')*'|r?\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<other>\d+\w*(?:\.\d\w*)?|.)",
    re.DOTALL,
)
#: Words that may follow a table in FROM and are no alias of it.
_NO_ALIAS = re.compile(
    r"anti|cluster|cross|distribute|except|full|group|having|inner|intersect|join|lateral|left|limit|minus"
    r"|natural|offset|on|order|outer|pivot|qualify|right|semi|sort|union|unpivot|using|where|window",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A query with `{names}`, and which relation each of them stands for."""

    query: str
    reads: Mapping[str, Parts]


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def name(self) -> str | None:
        """What it names, in lower case, if it is an identifier."""
        if self.kind == "word":
            return self.text.lower()
        return self.text[1:-1].replace("``", "`").lower() if self.kind == "quoted" else None


def parts_of(relation: str) -> Parts:
    """The parts of a relation as dbt writes it: analytics.orders, `analytics`.`orders` or "lake"."main"."orders"."""
    found = re.findall(r"`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([^\s.`\"]+)", relation)
    return tuple(next(filter(None, groups)).lower() for groups in found)


def placed(sql: str, relations: Mapping[Parts, str]) -> Placed:
    """The query with a `{name}` in place of each known relation; all other braces are doubled.

    In FROM, a relation can be called by its last part (`FROM analytics.orders WHERE orders.id = 1`). A `{name}` cannot,
    so it gets that as an alias, unless the query gives it another.
    """
    tokens = [_Token(match.lastgroup or "other", match.group()) for match in _TOKEN.finditer(sql.strip().rstrip(";"))]
    reads: dict[str, Parts] = {}
    out: list[str] = []
    place = 0
    while place < len(tokens):
        found = _relation_at(tokens, place, relations)
        if found is None:
            out.append(tokens[place].text.replace("{", "{{").replace("}", "}}"))
            place += 1
            continue
        parts, place = found
        name, alias = relations[parts], "`" + parts[-1].replace("`", "``") + "`"
        if _next(tokens, place) == ".":
            out.append(alias)  # a column of it
            continue
        reads[name] = parts
        out.append(f"{{{name}}} AS {alias}" if _needs_alias(tokens, place) else f"{{{name}}}")
    return Placed(query="".join(out), reads=reads)


def _relation_at(tokens: list[_Token], place: int, relations: Mapping[Parts, str]) -> tuple[Parts, int] | None:
    """The longest known relation that begins here, and where it ends."""
    if tokens[place].name is None or (place and tokens[place - 1].text == "."):
        return None
    best: tuple[Parts, int] | None = None
    parts: list[str] = []
    while place < len(tokens) and (name := tokens[place].name) is not None:
        parts.append(name)
        place += 1
        if len(parts) > 1 and tuple(parts) in relations:
            best = tuple(parts), place
        if place >= len(tokens) or tokens[place].text != ".":
            break
        place += 1
    return best


def _needs_alias(tokens: list[_Token], place: int) -> bool:
    """Whether a table that ends here is given no name of its own by what follows."""
    following = next(_following(tokens, place), None)
    if following is None or following.name is None:
        return True
    return following.kind == "word" and _NO_ALIAS.fullmatch(following.text) is not None


def _next(tokens: list[_Token], place: int) -> str:
    return tokens[place].text if place < len(tokens) else ""


def _following(tokens: list[_Token], place: int) -> Iterator[_Token]:
    return (token for token in tokens[place:] if token.kind != "space")
