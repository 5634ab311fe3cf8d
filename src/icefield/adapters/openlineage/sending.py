"""Where events go: lines of a file, posts to an endpoint, or both."""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from icefield.run.subscribers import Undelivered

if TYPE_CHECKING:
    from pathlib import Path

    from icefield.adapters.openlineage.facets import Json
    from icefield.adapters.posting import Endpoint
    from icefield.project.outlets import OpenLineage

#: Where servers of OpenLineage take events, if an address names no path.
_PATH = "/api/v1/lineage"
#: An endpoint that failed is left alone for so many seconds: no run of many is to wait for it.
REST_SECONDS = 60.0
_failed: dict[str, float] = {}


class Sender:
    """Sends the events of one run."""

    def __init__(self, settings: OpenLineage) -> None:
        self._settings = settings
        self._endpoint: Endpoint | None = None
        self._silent = False

    def send(self, event: Json) -> None:
        """Sends one event, whole."""
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        problems = []
        for target in (self._write, self._post):
            try:
                target(text)
            except Undelivered as problem:
                problems.append(str(problem))
        if problems:
            raise Undelivered("; ".join(problems))

    def _write(self, text: str) -> None:
        if (file := self._settings.file) is not None:
            try:
                _append(file, f"{text}\n")
            except OSError as error:
                raise Undelivered(f"{file} cannot be written: {error.strerror}") from None

    def _post(self, text: str) -> None:
        url = self._settings.url
        if not url or self._silent:
            return
        endpoint = self._opened(url)
        if time.monotonic() - _failed.get(url, -math.inf) < REST_SECONDS:
            self._silent = True
            told = f"{endpoint.host} failed less than {REST_SECONDS:.0f} s ago and is left alone: events were not sent"
            raise Undelivered(told)
        try:
            endpoint.post(text)
        except Undelivered as problem:
            self._silent = True
            _failed[url] = time.monotonic()
            raise Undelivered(f"{problem}; further events were not sent") from None
        _failed.pop(url, None)

    def _opened(self, url: str) -> Endpoint:
        from icefield.adapters.posting import Endpoint  # noqa: PLC0415 - where there is something to send

        if self._endpoint is None:
            address = url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}{_PATH}"
            self._endpoint = Endpoint(address, self._settings.headers, self._settings.timeout_seconds)
        return self._endpoint

    def close(self) -> None:
        """Gives the connection back."""
        if self._endpoint is not None:
            self._endpoint.close()


def _append(file: Path, line: str) -> None:
    """Adds a line by one write, so that those of several processes do not mix."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
