"""What holds for every test: in CI a skip is a failure, failures can be repeated by their seed, servers are shared."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

for folder in ("tests", "scripts"):
    if (path := str(Path(__file__).parents[1] / folder)) not in sys.path:
        sys.path.append(path)

from service_fixtures import connect, kafka, postgres  # noqa: E402, F401 (for every folder, one server a session)

# Sessions that a test starts by itself must not run its functions on the first python3 of the PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# What a script starts in the background ignores Ctrl-C, and so would every process that a test starts to interrupt it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Random histories (tests/run/test_exact.py) are others each time; all processes of one run have the same seed.
EXACT_SEED = os.environ.setdefault("ICEFIELD_EXACT_SEED", str(random.randrange(1_000_000)))
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


#: Folders whose tests take longest, so that no process is left with one of them in the end.
FIRST = ("run", "faults", "engine")
#: Folders whose modules use one session of icefield's after the other: a fifth of the suite's CPU went into new JVMs.
SHARING = ("run", "engine", "adapters", "cdc", "vault")
#: The folder of the module that had Spark last.
_left_by = [""]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {folder: place for place, folder in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(FIRST)))


@pytest.fixture(scope="module", autouse=True)
def _spark_is_left_only_to_modules_that_share_it(request: pytest.FixtureRequest) -> Iterator[None]:
    """Some modules start Spark through icefield and some by themselves, and a process can only have one of both."""
    folder = request.path.parent.name
    sharing = folder in SHARING and request.node.get_closest_marker("own_spark") is None
    if not sharing or _left_by[0] != folder:
        _stop_spark()
    yield
    _left_by[0] = folder
    if not sharing:
        _stop_spark()


def _stop_spark() -> None:
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    from icefield.engine.session import spark as session

    session.stop_session()
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    session._forget_session()


def pytest_report_header() -> str:
    seed = os.environ.get("PYTHONHASHSEED", "random")
    seeds = f"PYTHONHASHSEED={seed} ICEFIELD_EXACT_SEED={EXACT_SEED}"
    return f"icefield: repeat with {seeds}; a skip is {_meaning_of_a_skip()}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if IN_CI and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"In CI a skip is a failure. {reason}"


def _meaning_of_a_skip() -> str:
    return "a failure (CI)" if IN_CI else "a skip"
