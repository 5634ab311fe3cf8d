"""What an engine must have in common with a command to do its work just as the command itself would."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from icefield.version import VERSION

if TYPE_CHECKING:
    from icefield.project.config import Profile

#: Variables that tell of a terminal, a shell or a login, and mean nothing to a run.
_OF_A_TERMINAL = re.compile(
    r"_|PWD|OLDPWD|SHLVL|COLUMNS|LINES|TERM.*|COLORTERM|NO_COLOR|FORCE_COLOR|CLICOLOR.*|LS_COLORS|WINDOWID|DISPLAY"
    r"|WAYLAND_DISPLAY|XAUTHORITY|XDG_(SESSION|VTNR|SEAT).*|DBUS_.*|SSH_.*|TMUX.*|STY|VTE_.*|ITERM_.*|KITTY_.*|WT_.*"
    r"|VSCODE_.*|SECURITYSESSIONID|INVOCATION_ID|JOURNAL_STREAM|PS1|PAGER|LESS.*|EDITOR|VISUAL|MAKE.*|MFLAGS"
    r"|PYTEST_CURRENT_TEST|ICEFIELD_PROFILE"
)


def identity(profile: Profile) -> str:
    """A digest of version, Python, folder, environment, and the settings that Spark is started with."""
    databases = {name: asdict(database) for name, database in profile.jdbc.items()}
    parts = [
        VERSION,
        [sys.version, sys.executable, sys.path],
        [os.getcwd(), _umask()],  # noqa: PTH109 - as text
        {name: value for name, value in os.environ.items() if not _OF_A_TERMINAL.fullmatch(name)},
        dict(profile.spark),
        databases,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
