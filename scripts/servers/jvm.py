"""Java command lines for small servers that start fast and log little."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from icefield.engine.session.java import Java, find_java
from icefield.errors import IcefieldError
from servers.service import ServiceError

LOG_SETTINGS = """\
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1} %m%n
"""


def java() -> Java:
    """The Java that icefield itself runs on."""
    try:
        return find_java()
    except IcefieldError as error:
        raise ServiceError(str(error)) from error


def java_command(folder: Path, class_path: Sequence[Path], megabytes: int) -> list[str]:
    """Everything before the main class; the log's settings are written into the folder."""
    settings = folder / "log4j2.properties"
    settings.write_text(LOG_SETTINGS, encoding="utf-8")
    return [
        str(java().executable),
        f"-Xmx{megabytes}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={settings}",
        "-cp",
        os.pathsep.join(map(str, class_path)),
    ]
