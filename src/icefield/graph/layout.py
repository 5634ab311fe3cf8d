"""Places for a graph's picture: columns from left to right, few crossings, the same result every time."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SWEEPS = 12
RELAXATIONS = 24


@dataclass(slots=True, kw_only=True)
class Item:
    """Something that takes room in a column: a box, or a long line on its way past one."""

    key: str
    column: int
    height: float
    y: float = 0.0
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where each item stands (the middle of its height), and each line as the items it passes."""

    items: Mapping[str, Item]
    lines: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    height: float


def arrange(
    columns: Mapping[str, int], edges: Sequence[tuple[str, str]], *, box: float, line: float, gap: float
) -> Layout:
    """Order every column and give every item its height on the page."""
    items = {key: Item(key=key, column=column, height=box) for key, column in columns.items()}
    lines = tuple(_line(start, end, items, line) for start, end in edges)
    for path in lines:
        for left, right in pairwise(path):
            items[left].after.append(right)
            items[right].before.append(left)
    rows: list[list[str]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    for key, item in items.items():
        rows[item.column].append(key)
    _uncross(rows, items)
    height = _place(rows, items, gap)
    return Layout(items=items, lines=lines, columns=tuple(tuple(row) for row in rows), height=height)


def _line(start: str, end: str, items: dict[str, Item], height: float) -> tuple[str, ...]:
    """The items of one edge: a long one gets a place of its own in every column it passes."""
    passed = []
    for column in range(items[start].column + 1, items[end].column):
        key = f"{start}>{end}>{column}"
        items[key] = Item(key=key, column=column, height=height)
        passed.append(key)
    return (start, *passed, end)


def _uncross(rows: list[list[str]], items: Mapping[str, Item]) -> None:
    """Barycentre sweeps to and fro; the order with the fewest crossings is kept."""
    best, fewest = [list(row) for row in rows], _crossings(rows, items)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for row in rows[1:] if forward else rows[-2::-1]:
            rank = {key: position for other in rows for position, key in enumerate(other)}
            here = {key: position for position, key in enumerate(row)}

            def centre(key: str, rank: dict[str, int] = rank, *, forward: bool = forward) -> float:
                near = items[key].before if forward else items[key].after
                return sum(rank[other] for other in near) / len(near) if near else float(rank[key])

            row.sort(key=lambda key, here=here: (centre(key), here[key]))  # type: ignore[misc]
        crossings = _crossings(rows, items)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    for row, order in zip(rows, best, strict=True):
        row[:] = order


def _crossings(rows: list[list[str]], items: Mapping[str, Item]) -> int:
    count = 0
    for row, following in pairwise(rows):
        rank = {key: position for position, key in enumerate(following)}
        ends = [sorted(rank[other] for other in items[key].after) for key in row]
        flat = [end for group in ends for end in group]
        count += sum(a > b for position, a in enumerate(flat) for b in flat[position + 1 :])
    return count


def _place(rows: list[list[str]], items: Mapping[str, Item], gap: float) -> float:
    """Stack every column, then let items drift towards their neighbours without passing one another."""
    tallest = max((_stacked(row, items, gap) for row in rows), default=0.0)
    for row in rows:
        top = (tallest - _stacked(row, items, gap)) / 2
        for key in row:
            items[key].y = top + items[key].height / 2
            top += items[key].height + gap
    for step in range(RELAXATIONS):
        for row in rows if step % 2 == 0 else reversed(rows):
            wanted = []
            for key in row:
                near = items[key].before + items[key].after
                wanted.append(sum(items[other].y for other in near) / len(near) if near else items[key].y)
            _settle(row, wanted, items, gap)
    top = min((item.y - item.height / 2 for item in items.values()), default=0.0)
    for item in items.values():
        item.y -= top
    return max((item.y + item.height / 2 for item in items.values()), default=0.0)


def _stacked(row: list[str], items: Mapping[str, Item], gap: float) -> float:
    return sum(items[key].height for key in row) + gap * max(len(row) - 1, 0)


def _settle(row: list[str], wanted: list[float], items: Mapping[str, Item], gap: float) -> None:
    """As near to the wanted heights as the order allows: pushed down, pushed up, and the mean of both."""
    apart = [0.0, *((items[a].height + items[b].height) / 2 + gap for a, b in pairwise(row))]
    down, up = list(wanted), list(wanted)
    for position in range(1, len(row)):
        down[position] = max(down[position], down[position - 1] + apart[position])
    for position in range(len(row) - 2, -1, -1):
        up[position] = min(up[position], up[position + 1] - apart[position + 1])
    for key, low, high in zip(row, down, up, strict=True):
        items[key].y = (low + high) / 2
