"""`python scripts/environments lock TOOL ...`: resolves the locks of environments again."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from environments import TOOLS, lock


def main() -> int:
    """Resolves the locks that are named, or all."""
    if sys.argv[1:2] != ["lock"] or not set(sys.argv[2:]) <= set(TOOLS):
        sys.stderr.write(f"usage: python scripts/environments lock [{'|'.join(TOOLS)}] ...\n")
        return 2
    for tool in sys.argv[2:] or TOOLS:
        lock(tool)
    return 0


if __name__ == "__main__":
    sys.exit(main())
