"""Did you mean: the nearest of the names that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN = 12


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The names most like `word`, by the whole name or by its last part."""
    import difflib  # noqa: PLC0415 - only a failing load pays for it

    names = sorted(set(known))
    found = difflib.get_close_matches(word, names, count, 0.6)
    last = {name.rpartition(".")[2]: name for name in reversed(names)}
    found += [last[part] for part in difflib.get_close_matches(word.rpartition(".")[2], list(last), count, 0.6)]
    return list(dict.fromkeys(found))[:count]


def did_you_mean(word: str, known: Iterable[str], *, all_of_them: str = "known") -> str:
    """A sentence that offers the nearest names, or lists what there is when none is near."""
    names = sorted(set(known))
    near = nearest(word, names)
    if near:
        return "did you mean " + " or ".join(f"`{name}`" for name in near) + "?"
    if not names:
        return f"{all_of_them}: none"
    more = f", ... ({len(names)} in total)" if len(names) > SHOWN else ""
    return f"{all_of_them}: " + ", ".join(names[:SHOWN]) + more


def one_typo_apart(a: str, b: str) -> bool:
    """Whether one letter was left out, added, changed, or two neighbours swapped."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest_a, rest_b = a[start:], b[start:]
    if len(a) == len(b):
        swapped = rest_a[:2] == rest_b[:2][::-1] and rest_a[2:] == rest_b[2:]
        return swapped or rest_a[1:] == rest_b[1:]
    longer, shorter = (rest_a, rest_b) if len(a) > len(b) else (rest_b, rest_a)
    return longer[1:] == shorter
