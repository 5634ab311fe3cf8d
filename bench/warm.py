"""Runs a project once for each folder of new files, all in one process, and writes the seconds each run took.

python bench/warm.py PROJECT OUTPUT.json FOLDER ...
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

from icefield import Lake


def main(project: Path, output: Path, folders: list[Path]) -> None:
    seconds = []
    for folder in folders:
        for file in folder.rglob("*.csv"):
            shutil.move(file, project / "landing" / file.parent.name / file.name)
        begun = time.monotonic()
        result = Lake(project).run()
        seconds.append(round(time.monotonic() - begun, 3))
        if not result.ok:
            sys.exit(result.error)
    output.write_text(json.dumps(seconds), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
