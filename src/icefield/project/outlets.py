"""Settings of what hears of runs: OpenLineage and notifications."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.errors import InvalidConfig
from icefield.project.sections import duration, expanded, flag, only, table, text, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

OPENLINEAGE_KEYS = ("file", "url", "api_key", "headers", "namespace", "timeout")
NOTIFY_KEYS = ("command", "webhook", "headers", "failure", "checks", "quarantine_share", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLineage:
    """Where events of runs go: to a file, to an endpoint, or both. Address, key and headers may be secret."""

    file: Path | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The namespace of jobs.
    namespace: str = "icefield"
    timeout_seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Who is notified of what. The address of a webhook, headers and what a command has in it may be secret."""

    command: str | tuple[str, ...] = field(default="", repr=False)
    webhook: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    failure: bool = True
    checks: bool = True
    #: The share of a run's rows of a table in quarantine, above which it is notified; None: never.
    quarantine_share: float | None = None
    timeout_seconds: float = 10.0
    #: Why it cannot be used: a variable or a file that it refers to is missing.
    problem: str = ""


def openlineage(root: Path, profile: Mapping[str, Any], section: str) -> OpenLineage | None:
    """Where a profile sends events of its runs to; None: nowhere."""
    if "openlineage" not in profile:
        return None
    content = table(profile, "openlineage", section)
    only(content, OPENLINEAGE_KEYS, section)
    if "file" not in content and "url" not in content:
        raise wrong(f"{section} has neither file nor url", 'write file = "lineage.jsonl" or url = "https://..."')
    file = text(content, "file", "lineage.jsonl", section) if "file" in content else ""
    key = {"Authorization": f"Bearer {_secret(content, 'api_key', section)}"} if "api_key" in content else {}
    return OpenLineage(
        file=Path(os.path.normpath(root / Path(file).expanduser())) if file else None,
        url=_address(content, "url", section),
        headers={**_headers(content, section), **key},
        namespace=text(content, "namespace", "icefield", section),
        timeout_seconds=duration(content.get("timeout", "5s"), f"{section} timeout"),
    )


def notify(root: Path, everywhere: Mapping[str, Any], profile: Mapping[str, Any], section: str) -> Notify | None:
    """What the project says, and where it differs the profile. A reference that leads nowhere stops no command."""
    if profile.get("notify") is False or not (everywhere or "notify" in profile):
        return None
    own = table(profile, "notify", section)
    only(everywhere, NOTIFY_KEYS, "[notify]")
    only(own, NOTIFY_KEYS, section)
    section = section if own else "[notify]"
    try:
        content = expanded({**everywhere, **own}, section, root)
    except InvalidConfig as problem:
        return Notify(problem=problem.what)
    if "command" not in content and "webhook" not in content:
        raise wrong(f"{section} has neither command nor webhook", 'write command = "..." or webhook = "https://..."')
    return Notify(
        command=_command(content, section),
        webhook=_address(content, "webhook", section),
        headers=_headers(content, section),
        failure=flag(content, "failure", section, default=True),
        checks=flag(content, "checks", section, default=True),
        quarantine_share=_share(content, "quarantine_share", section),
        timeout_seconds=duration(content.get("timeout", "10s"), f"{section} timeout"),
    )


def _command(content: Mapping[str, Any], section: str) -> str | tuple[str, ...]:
    """A line for the shell, or a program and its arguments."""
    value = content.get("command", "")
    words = value if isinstance(value, list) else [value]
    if "command" in content and not (words and all(isinstance(word, str) and word for word in words)):
        raise wrong(f"{section} command is neither a string nor a list of strings", 'write command = "..."')
    return tuple(value) if isinstance(value, list) else value


def _address(content: Mapping[str, Any], key: str, section: str) -> str:
    """The address of an endpoint, "" where there is none; it is shown nowhere, since it may be a secret."""
    if key not in content:
        return ""
    value = _secret(content, key, section)
    if not re.fullmatch(r"https?://[^\s/?#]+\S*", value):
        raise wrong(f"{section} {key} is not an address", f'write {key} = "https://..."')
    return value


def _secret(content: Mapping[str, Any], key: str, section: str) -> str:
    """A text that may be secret, and is not shown where it is wrong."""
    value = content[key]
    if not isinstance(value, str) or not value or not value.isprintable():
        raise wrong(f"{section} {key} is not a string of one line", f'write {key} = "${{env:NAME}}"')
    return value


def _headers(content: Mapping[str, Any], section: str) -> dict[str, str]:
    headers = content.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(v, str) and v.isprintable() for v in headers.values()):
        raise wrong(f"{section} headers are not strings of one line each", 'write headers = { "X-Key" = "..." }')
    return dict(headers)


def _share(content: Mapping[str, Any], key: str, section: str) -> float | None:
    value = content.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise wrong(f"{section} {key} = {value!r} is not a share of the rows", f"write {key} = 0.05 for 5 %")
    return float(value)
