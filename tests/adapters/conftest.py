"""Puts `tests/` and this folder on the path, so that every test can say `from projects import ...`."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parents[1], Path(__file__).parent):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
