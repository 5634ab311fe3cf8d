"""A session of Spark's; and `tests/` on the path, so that every test can say `from projects import ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from icefield.engine.session.spark import start_session

if (tests := str(Path(__file__).parents[1])) not in sys.path:
    sys.path.append(tests)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from projects import QUICK

    log = tmp_path_factory.mktemp("session") / "spark.log"
    return start_session(app="tests", conf=QUICK, log=log, effort="least")
