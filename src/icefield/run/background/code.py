"""The code that a process has loaded, and whether its files are still the same."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from icefield.project.modules import PREFIX


@dataclass(slots=True)
class LoadedCode:
    """Modules of icefield, of installed packages and of whatever else a project imports; its own are loaded anew."""

    _files: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    _since: float = field(default_factory=time.time)

    def note(self) -> None:
        """Takes down the files of modules that were loaded since the last time."""
        begun, self._since = self._since, time.time()
        for name, module in sys.modules.copy().items():
            file = getattr(module, "__file__", None)
            if file and file not in self._files and not name.startswith(PREFIX):
                found = _stamp(file)
                # Written since: what was loaded may be what was there before.
                self._files[file] = found if found is None or found[0] < begun * 1e9 else (0, 0)

    def changed(self) -> bool:
        """Whether one of them is another by now."""
        return any(_stamp(file) != known for file, known in self._files.items())


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
