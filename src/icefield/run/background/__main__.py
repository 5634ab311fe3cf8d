"""The process of an engine; what it is to be comes on its standard input."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from icefield import interrupt


def main() -> None:
    """Serves until it is idle, then leaves at once: nothing of it is needed any more."""
    interrupt.listen()
    settings = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.path[:] = settings["path"]

    from icefield.run.background.place import Place  # noqa: PLC0415 - from the path of the command
    from icefield.run.background.server import Engine  # noqa: PLC0415

    engine = Engine(
        root=Path(settings["root"]),
        profile=settings["profile"],
        place=Place(Path(settings["socket"])),
        identity=settings["identity"],
        keep_warm=settings["keep_warm"],
        listening=socket.socket(fileno=settings["handle"]),
    )
    engine.serve()


main()
