"""Hands a message to the command and the webhook that are to have it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from icefield.adapters.posting import Endpoint
from icefield.run.subscribers import Undelivered

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from icefield.project.outlets import Notify


def send(settings: Notify, root: Path, message: Mapping[str, Any], *, show: bool = False) -> None:
    """Sends a message to all that are to have it; `show`: what a command prints is shown."""
    text = json.dumps(message, ensure_ascii=False)
    problems = [settings.problem] if settings.problem else []
    if settings.webhook:
        try:
            _post(settings, text)
        except Undelivered as problem:
            problems.append(f"the webhook failed: {problem}")
    if settings.command:
        try:
            _run(settings, root, text, message, show=show)
        except Undelivered as problem:
            problems.append(f"the command failed: {problem}")
    if problems:
        raise Undelivered("; ".join(problems))


def _post(settings: Notify, text: str) -> None:
    endpoint = Endpoint(settings.webhook, settings.headers, settings.timeout_seconds)
    try:
        endpoint.post(text)
    finally:
        endpoint.close()


def _run(settings: Notify, root: Path, text: str, message: Mapping[str, Any], *, show: bool) -> None:
    """Runs the command in the project's folder: the message is a line of input, its main parts variables."""
    told = {f"ICEFIELD_NOTIFY_{name.upper()}": str(message[name]) for name in ("text", "project", "profile", "run")}
    output = None if show else subprocess.DEVNULL  # what it prints may be a secret
    try:
        process = subprocess.Popen(
            settings.command,
            shell=isinstance(settings.command, str),
            cwd=root,
            env={**os.environ, **told},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        raise Undelivered(error.strerror or type(error).__name__) from None
    try:
        process.communicate(f"{text}\n".encode(), timeout=settings.timeout_seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Undelivered(f"it did not end within {settings.timeout_seconds:g} s and was stopped") from None
    if process.returncode:
        raise Undelivered(f"exit code {process.returncode}")
