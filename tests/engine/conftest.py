"""A session of Spark's; and `tests/` on the path, so that every test can say `from projects import ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from icefield.engine.session import start_session

if (tests := str(Path(__file__).parents[1])) not in sys.path:
    sys.path.append(tests)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return start_session(app="tests", conf={}, log=tmp_path_factory.mktemp("session") / "spark.log")
