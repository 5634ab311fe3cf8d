"""Distinct and repeated numbers, against Python's own sets and counters."""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from icefield.lake import int_sets as numbers
from icefield.lake.int_sets import Arrived, Marks, Ordered, distinct, repeated


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_told_apart(seed: int) -> None:
    chance = random.Random(seed)
    given = [chance.randint(-5, 5) * chance.choice([1, 2**60]) for _ in range(chance.randint(0, 30))]
    values = np.array(given, np.int64)
    assert distinct(values).tolist() == sorted(set(given))
    cut = chance.randint(0, len(given))
    several = sorted(n for n, times in Counter(given).items() if times > 1)
    assert Arrived.of([values[:cut], values[cut:]]).repeated.tolist() == repeated(values).tolist() == several
    assert values.tolist() == given, "what is given stays as it is"


@pytest.mark.parametrize("seed", range(40))
def test_spans_have_all_numbers_and_leave_out_the_widest_gaps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(numbers, "_GAPS", 3)
    monkeypatch.setattr(numbers, "_AT_ONCE", chance.choice([1, 4, 100]))
    given = [chance.randint(-50, 50) * chance.choice([1, 1, 2**50]) for _ in range(chance.randint(0, 30))]
    spans = Arrived.of([np.array(given, np.int64)]).spans
    assert all(any(least <= value <= most for least, most in spans) for value in given)
    ordered = sorted(given)
    gaps = sorted((b - a for a, b in pairwise(ordered)), reverse=True)
    left_out = sum(after[0] - before[1] for before, after in pairwise(spans))
    assert left_out == sum(gaps[:3])


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_found_among_others(seed: int) -> None:
    chance = random.Random(seed)
    spread = chance.choice([1, 5, 2**58])
    known = np.array([chance.randint(-9, 9) * spread for _ in range(chance.randint(1, 30))], np.int64)
    values = np.array([chance.randint(-12, 12) * spread for _ in range(50)], np.int64)
    wanted = [value in set(known.tolist()) for value in values.tolist()]
    assert Ordered(distinct(known)).has(values).tolist() == wanted
    marks = Marks.of([known[:3], known[3:]])
    assert (marks is None) == (int(known.max()) - int(known.min()) > 8 * len(known))
    if marks is not None:
        assert marks.has(values).tolist() == wanted


def test_no_numbers_have_no_marks() -> None:
    assert Marks.of([]) is Marks.of([np.array([], np.int64)]) is None


def test_many_numbers_take_no_longer_than_sorting_them() -> None:
    """numpy 2.4's unique takes a hundred times as long."""
    values = np.arange(3_000_000, dtype=np.int64)
    values[::1000] = 7

    def seconds(work: object) -> float:
        begun = time.process_time()
        work(values)  # type: ignore[operator]
        return time.process_time() - begun

    assert min(seconds(distinct) for _ in range(3)) < 20 * min(seconds(np.sort) for _ in range(3))
