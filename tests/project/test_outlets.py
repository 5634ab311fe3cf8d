"""Settings of OpenLineage and notifications: read strictly, and never shown where they may be secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from icefield.errors import InvalidConfig
from icefield.project.config import read_config
from icefield.project.outlets import Notify, OpenLineage

if TYPE_CHECKING:
    from .conftest import Write

SECRET = "c4n4ry-s3cr3t"
FULL = """
[notify]
webhook = "https://hooks.example.com/${env:ICEFIELD_TEST_SECRET}"
command = ["notify.sh", "${env:ICEFIELD_TEST_SECRET}"]
headers = { "X-Key" = "${env:ICEFIELD_TEST_SECRET}" }
quarantine_share = 0.05

[profile.local.openlineage]
file = "lineage.jsonl"
url = "https://${env:ICEFIELD_TEST_SECRET}@example.com"
api_key = "${env:ICEFIELD_TEST_SECRET}"
timeout = "2s"

[profile.prod.notify]
webhook = "https://other.example.com/"
failure = false
timeout = "1s"

[profile.quiet]
notify = false
"""


def test_everything_is_read_and_a_profile_may_differ(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFIELD_TEST_SECRET", SECRET)
    root = write(**{"icefield.toml": FULL})
    local, prod, quiet = (read_config(root, name).profile for name in ("local", "prod", "quiet"))
    assert local.openlineage == OpenLineage(
        file=root / "lineage.jsonl",
        url=f"https://{SECRET}@example.com",
        headers={"Authorization": f"Bearer {SECRET}"},
        timeout_seconds=2,
    )
    told = Notify(
        webhook=f"https://hooks.example.com/{SECRET}",
        command=("notify.sh", SECRET),
        headers={"X-Key": SECRET},
        quarantine_share=0.05,
    )
    assert local.notify == told
    assert prod.notify == Notify(
        webhook="https://other.example.com/",
        command=told.command,
        headers=told.headers,
        quarantine_share=0.05,
        failure=False,
        timeout_seconds=1,
    )
    assert (quiet.notify, prod.openlineage) == (None, None)
    assert SECRET not in repr([local, prod])


def test_a_variable_that_is_not_set_stops_no_command(write: Write) -> None:
    root = write(**{"icefield.toml": FULL.partition("[profile")[0]})
    found = read_config(root).profile.notify
    assert found == Notify(problem="[notify] webhook uses ${env:ICEFIELD_TEST_SECRET}, which is not set")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[notify]\nwebhok = 'x'", "did you mean `webhook`"),
        ("[profile.local.notify]\nfailures = true", "did you mean `failure`"),
        ("[notify]\nfailure = true", "has neither command nor webhook"),
        (f"[notify]\nwebhook = '{SECRET}'", "webhook is not an address"),
        (f"[notify]\nwebhook = ['{SECRET}']", "webhook is not a string"),
        (f"[notify]\ncommand = [3, '{SECRET}']", "command is neither a string nor a list of strings"),
        (f"[notify]\ncommand = 'x'\nheaders = '{SECRET}'", "headers are not strings"),
        ("[notify]\ncommand = 'x'\nquarantine_share = 5", "is not a share of the rows"),
        ("[notify]\ncommand = 'x'\ntimeout = 'soon'", "is not a duration"),
        ("[notify]\ncommand = 'x'\nchecks = 'no'", "is neither true nor false"),
        ("[profile.local.openlineage]\nnamespace = 'x'", "has neither file nor url"),
        ("[profile.local.openlineage]\nurl = 'ftp://x'", "url is not an address"),
        (f"[profile.local.openlineage]\nurl = 'http://x'\napi_key = ['{SECRET}']", "api_key is not a string"),
        ("[profile.local.openlineage]\nfile = ''", "is not a string"),
        ("[profile.local]\nopenlineage = 'x'", "is not a section"),
    ],
)
def test_what_it_does_not_know_is_refused_without_secrets(write: Write, text: str, says: str) -> None:
    root = write(**{"icefield.toml": text})
    with pytest.raises(InvalidConfig) as refused:
        read_config(root)
    assert says in str(refused.value)
    assert SECRET not in str(refused.value)
