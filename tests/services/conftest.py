"""Puts this folder, `tests/e2e` and `tests/` on the path: tests on servers share what the others compare with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "e2e", HERE.parent):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@pytest.fixture(autouse=True)
def _what_a_failed_test_has_started_is_ended() -> Iterator[None]:
    yield
    from watchers import STARTED

    while STARTED:
        STARTED.pop().kill()
