"""`icefield notify` shows who is notified, without secrets, and sends a test message."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import icefield

from projects import tiny
from receiver import receiving

CANARY = "c4n4ry-s3cr3t"


def test_it_shows_who_is_notified_of_what_and_no_secret(tmp_path: Path) -> None:
    more = f'[notify]\nwebhook = "https://hooks.example.com/{CANARY}"\ncommand = "mail.sh {CANARY}"\nchecks = false\n'
    tiny(tmp_path, more=f"{more}quarantine_share = 0.05\n")
    done = icefield("notify", "-p", str(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "webhook   hooks.example.com\n"
        "command   mail.sh\n"
        "on        failures, more than 5.0% of a run's rows quarantined\n"
        "timeout   10 s\n"
    )


def test_it_sends_a_test_message(tmp_path: Path) -> None:
    with receiving() as receiver:
        tiny(tmp_path, more=f'[notify]\nwebhook = "{receiver.url}/{CANARY}"\ncommand = "cat > told.json"\n')
        done = icefield("notify", "--test", "-p", str(tmp_path))
        assert (done.code, done.err) == (0, "")
        assert done.out.endswith("The test message was accepted.\n")
        (body,) = receiver.bodies
    assert body["text"] == "tiny (local): this is a test message"
    assert body["notices"] == [{"kind": "test", "status": "firing", "message": "this is a test message"}]
    assert "this is a test message" in (tmp_path / "told.json").read_text()


@pytest.mark.parametrize("test", [False, True])
def test_it_says_that_nobody_is_notified(tmp_path: Path, test: bool) -> None:
    tiny(tmp_path)
    done = icefield("notify", *(["--test"] if test else []), "-p", str(tmp_path))
    assert (done.code, done.out.startswith("Nobody is notified")) == (int(test), True)


def test_a_message_that_is_not_accepted_is_an_error(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.status = 403
        tiny(tmp_path, more=f'[notify]\nwebhook = "{receiver.url}/{CANARY}"\n')
        done = icefield("notify", "--test", "-p", str(tmp_path))
    assert done.code == 2
    assert "ICE-840 the test message was not accepted: the webhook failed: 127.0.0.1 answered 403" in done.err
    assert CANARY not in done.out + done.err
