"""Puts this folder on the path, so that its tests can say `from manifests import ...`."""

from __future__ import annotations

import sys
from pathlib import Path

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)
