"""Puts `tests/` on the path, so that every test can say `from projects import ...`."""

from __future__ import annotations

import sys
from pathlib import Path

if (tests := str(Path(__file__).parents[1])) not in sys.path:
    sys.path.append(tests)
