"""Who is notified of what: of each change once, by a webhook or a command, and never at the cost of a run."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icefield.adapters.notifications import notifier, subscriber
from icefield.project import open_project
from icefield.run import journal, publishing
from icefield.run.events import RunDied
from icefield.run.watch import Failed, Ran, Watch
from projects import ORDERS, TinyProject, order, tiny
from receiver import Receiver, receiving

pytestmark = pytest.mark.spark

CANARY = "c4n4ry-s3cr3t"
WARNING = ORDERS.replace('checks=[unique("customer")]', 'checks=[expect("fine", "orders NOT IN (2, 3)", "warn")]')
STRICT = ORDERS.replace('checks=[unique("customer")]', 'checks=[expect("not so much", "amount < 100")]')


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    notifier._unrecorded.clear()
    with receiving() as found:
        yield found


def notified(receiver: Receiver) -> list[tuple[str, str, str]]:
    """What was told since it was last asked: kind, status and subject of each notice."""
    told = [notice for body in receiver.bodies for notice in body["notices"]]
    receiver.requests.clear()
    return [(one["kind"], one["status"], one.get("check") or one.get("table", "")) for one in told]


def hooked(root: Path, receiver: Receiver, source: str = ORDERS, more: str = "") -> TinyProject:
    return tiny(root, source, more=f'[notify]\nwebhook = "{receiver.url}/{CANARY}"\n{more}')


def test_a_failure_is_told_once_until_it_is_over(tmp_path: Path, receiver: Receiver) -> None:
    project = hooked(tmp_path, receiver, STRICT)
    project.land("1.csv", [order(1, amount="1.00")])
    project.run()
    assert notified(receiver) == [], "nothing changed"
    project.land("2.csv", [order(2, "verysecretname", "100.00")])
    failed = project.run()
    (body,) = receiver.bodies
    told = "ICE-601 gold.by_customer: check `not so much` failed for 1 row"
    assert body["text"].splitlines()[0] == f"tiny (local): run {failed.run} failed: {told}"
    assert (body["project"], body["profile"], body["run"], body["status"]) == ("tiny", "local", failed.run, "failed")
    assert "verysecretname" not in json.dumps(body)
    assert notified(receiver) == [("failure", "firing", ""), ("check", "firing", "not so much")]
    assert project.run().status == "failed"
    assert notified(receiver) == [], "the same again"
    project.land("2.csv", [order(2, amount="1.00")])
    assert project.run().status == "published"
    assert notified(receiver) == [("failure", "resolved", ""), ("check", "resolved", "not so much")]


def test_a_check_that_warns_is_told_when_it_turns(tmp_path: Path, receiver: Receiver) -> None:
    project = hooked(tmp_path, receiver, WARNING)
    turns = []
    for number in range(4):
        project.land(f"{number}.csv", [order(number)])
        assert project.run().status == "published"
        turns.append(notified(receiver))
    assert turns == [[], [("check", "firing", "fine")], [], [("check", "resolved", "fine")]]


def test_many_quarantined_rows_are_told_once_until_there_are_few(tmp_path: Path, receiver: Receiver) -> None:
    project = hooked(tmp_path, receiver, more="quarantine_share = 0.5\n")
    turns = []
    for number, bad in enumerate([1, 2, 3, 0]):
        rows = [order(10 * number + n, amount="-1.00" if n < bad else "1.00") for n in range(3)]
        project.land(f"{number}.csv", rows)
        assert project.run().status == "published"
        turns.append(notified(receiver))
    firing, resolved = ("quarantine", "firing", "bronze.orders"), ("quarantine", "resolved", "bronze.orders")
    assert turns == [[], [firing], [], [resolved]]


@pytest.mark.thorough
def test_a_killed_run_is_told_by_the_next_one(tmp_path: Path, receiver: Receiver) -> None:
    project = hooked(tmp_path, receiver)
    project.land("1.csv", [order(1)])
    assert project.spawn("audit.before=kill").end().killed
    assert project.run().status == "published"
    died, over = receiver.bodies
    assert (died["status"], died["run"] < over["run"]) == ("died", True)
    assert notified(receiver) == [("failure", "firing", ""), ("failure", "resolved", "")]

    told = subscriber(open_project(project.root))
    for run in ("29990101T000000-aaaaaa", "29990101T000001-bbbbbb"):
        publishing.record(project.lake, journal.of_deaths("tiny", {run: 0}))
        told.hear(RunDied(run=run, started_ms=0), dt.datetime.now(dt.UTC))
    assert notified(receiver) == [("failure", "firing", "")], "dying again is no news"


class Enough(KeyboardInterrupt):
    """Ends a loop as Ctrl-C does."""


class Steps:
    """A clock on which each wait does the next thing of a list, and then ends the loop."""

    def __init__(self, *steps: Any) -> None:
        self.steps, self.time = list(steps), 0.0

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        if seconds > 0:
            self.time += seconds
            if not self.steps:
                raise Enough
            self.steps.pop(0)()


def test_a_loop_tells_of_what_keeps_it_from_running_once(tmp_path: Path, receiver: Receiver) -> None:
    project, told = hooked(tmp_path, receiver), []
    project.land("1.csv", [order(1)])
    project.run()
    folder, elsewhere = project.root / "landing" / "orders", project.root / "landing" / "elsewhere"
    folder.rename(elsewhere)

    def back() -> None:
        assert notified(receiver) == [("failure", "firing", "")], "though it was tried several times"
        elsewhere.rename(folder)

    clock = Steps(*[lambda: None] * 6, back, lambda: None)
    Watch(open_again=lambda: open_project(project.root), tell=told.append, clock=clock).carry_out()
    assert [type(one) for one in told] == [Failed, Failed, Failed]
    assert notified(receiver) == [("failure", "resolved", "")], "though there was nothing to do"


def test_a_loop_tells_of_a_run_that_keeps_failing_once(tmp_path: Path, receiver: Receiver) -> None:
    project, told = hooked(tmp_path, receiver, STRICT, more="checks = false\n"), []
    project.land("1.csv", [order(1, amount="100.00")])
    clock = Steps(*[lambda: None] * 2, lambda: project.land("1.csv", [order(1)]), lambda: None)
    Watch(open_again=lambda: open_project(project.root), tell=told.append, clock=clock).carry_out()
    assert [type(one) for one in told] == [Failed, Failed, Ran]
    assert notified(receiver) == [("failure", "firing", ""), ("failure", "resolved", "")]


KEEPING = f"""'{sys.executable}' -c "import json, os, sys; open('told.json', 'w').write(json.dumps(
[json.load(sys.stdin), os.environ['ICEFIELD_NOTIFY_TEXT'], os.environ['ICEFIELD_NOTIFY_RUN']]))" """.replace("\n", "")


def test_a_command_gets_the_message_and_runs_in_the_projects_folder(tmp_path: Path) -> None:
    project = tiny(tmp_path, STRICT, more=f"[notify]\ncommand = '''{KEEPING}'''\n")
    project.land("1.csv", [order(1, amount="100.00")])
    result = project.run()
    assert (result.status, result.warnings) == ("failed", ())
    body, text, run = json.loads((project.root / "told.json").read_text())
    assert (body["run"], body["text"]) == (result.run, text) == (run, text)
    assert [notice["kind"] for notice in body["notices"]] == ["failure", "check"]


TROUBLES = {
    f'webhook = "http://127.0.0.1:1/{CANARY}"': "the webhook failed: 127.0.0.1 cannot be reached: Connection refused",
    f'command = "echo {CANARY} >&2; exit 3"': "the command failed: exit code 3",
    f'command = ["no-such-{CANARY}"]': "the command failed: No such file or directory",
    f'command = "sleep 60 # {CANARY}"': "the command failed: it did not end within 0.5 s and was stopped",
    'webhook = "${env:NO_SUCH_VARIABLE}"': "[notify] webhook uses ${env:NO_SUCH_VARIABLE}, which is not set",
}


@pytest.mark.parametrize("setting", TROUBLES)
def test_a_notification_that_fails_is_a_warning_without_secrets(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], setting: str
) -> None:
    project = tiny(tmp_path, STRICT, more=f'[notify]\n{setting}\ntimeout = "500ms"\n')
    project.land("1.csv", [order(1, amount="100.00")])
    begun = time.monotonic()
    result = project.run()
    assert time.monotonic() - begun - result.seconds < 5
    assert (result.status, result.warnings) == ("failed", (f"notify: {TROUBLES[setting]}",))
    shown = repr([result, open_project(project.root)]) + "".join(capfd.readouterr())
    stored = [file for file in project.root.rglob("*") if file.is_file() and file.name != "icefield.toml"]
    assert CANARY not in shown
    assert not [file for file in stored if CANARY.encode() in file.read_bytes()]


def test_a_profile_says_otherwise(tmp_path: Path, receiver: Receiver) -> None:
    project = hooked(tmp_path, receiver, STRICT)
    file = project.root / "icefield.toml"
    file.write_text(file.read_text() + "[profile.local.notify]\nchecks = false\n")
    project.land("1.csv", [order(1, amount="100.00")])
    project.run()
    assert notified(receiver) == [("failure", "firing", "")]
    silenced = file.read_text().replace('lake = "lake"', 'lake = "lake"\nnotify = false')
    file.write_text(silenced.split("[profile.local.notify]")[0])
    assert open_project(project.root).profile.notify is None
