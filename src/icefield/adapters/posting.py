"""Posts JSON to an endpoint and waits a limited time. Addresses and headers may be secret: messages name the host."""

from __future__ import annotations

import http.client
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from icefield.run.subscribers import Undelivered

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a server that closed a kept connection in the meantime causes.
_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class Endpoint:
    """One address; its connection is kept from one message to the next. Redirects are not followed."""

    def __init__(self, url: str, headers: Mapping[str, str], seconds: float) -> None:
        self._url, self._seconds = urlsplit(url), seconds
        self._headers = {"Content-Type": "application/json", **headers}
        self._connection: http.client.HTTPConnection | None = None

    @property
    def host(self) -> str:
        """What may be shown of the address."""
        return self._url.hostname or ""

    def post(self, body: str) -> None:
        """Sends a message; anything but an answer that accepts it is an `Undelivered`."""
        kept = self._connection is not None
        try:
            try:
                status = self._post(body)
            except _STALE:
                if not kept:
                    raise
                status = self._post(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            told = "did not answer in time" if isinstance(error, TimeoutError) else f"cannot be reached: {_told(error)}"
            raise Undelivered(f"{self.host} {told}") from None
        if not 200 <= status < 300:
            self.close()
            raise Undelivered(f"{self.host} answered {status} {http.client.responses.get(status, '')}".rstrip())

    def close(self) -> None:
        """Gives the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def _post(self, body: str) -> int:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
        try:
            connection.request("POST", self._target, body.encode(), self._headers)
            answer = connection.getresponse()
            answer.read()
        except BaseException:
            self.close()
            raise
        return answer.status

    @property
    def _target(self) -> str:
        target = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        return f"http://{self._url.netloc}{target}" if self._proxy and self._url.scheme == "http" else target

    @property
    def _proxy(self) -> str:
        """The proxy that the environment names for this host, if any."""
        return "" if proxy_bypass(self.host) else getproxies().get(self._url.scheme, "")

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        if not (proxy := self._proxy):
            return kind(self.host, self._url.port, timeout=self._seconds)
        at = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        connection = kind(at.hostname or "", at.port, timeout=self._seconds)
        if self._url.scheme == "https":
            connection.set_tunnel(self.host, self._url.port)
        return connection


def _told(error: Exception) -> str:
    """An operating system's own words; of other errors only the kind, since their text may be anything."""
    return error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
