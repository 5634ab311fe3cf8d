"""A self-signed certificate for 127.0.0.1, made once by Java's keytool."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from servers.downloads import cached
from servers.jvm import java
from servers.service import HOST, ServiceError

PASSWORD = "icefield"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The key store of a server, and the certificate that its clients trust."""

    key_store: Path
    certificate: Path
    password: str = PASSWORD


def certificate() -> Certificate:
    """The certificate in the cache, valid for ten years; made first where there is none."""
    folder = cached("certificate", _make)
    return Certificate(key_store=folder / "server.p12", certificate=folder / "certificate.pem")


def _make(folder: Path) -> None:
    store = ["-keystore", str(folder / "server.p12"), "-storepass", PASSWORD, "-alias", "server"]
    pair = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-storetype", "PKCS12", "-validity", "3650"]
    names = ["-dname", "CN=localhost", "-ext", f"SAN=ip:{HOST},dns:localhost"]
    _keytool([*pair, *names, *store])
    _keytool(["-exportcert", "-rfc", "-file", str(folder / "certificate.pem"), *store])


def _keytool(arguments: list[str]) -> None:
    tool = java().executable.with_name("keytool")
    try:
        done = subprocess.run([str(tool), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServiceError(f"No certificate could be made: {error}") from error
    if done.returncode:
        raise ServiceError(f"No certificate could be made by {tool}: {done.stdout}{done.stderr}")
