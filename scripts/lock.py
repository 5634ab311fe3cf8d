"""Resolves the dependencies of pyproject.toml into the two locks, with hashes, for every platform.

python scripts/lock.py              # keeps the versions that still fit
python scripts/lock.py --upgrade    # takes the newest
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Each lock with the extra it is for. The second is resolved to agree with the first.
LOCKS = {"requirements.lock": "java", "requirements-dev.lock": "dev"}


def main() -> int:
    """Writes both locks; their comments at the top stay."""
    for name, extra in LOCKS.items():
        lock = ROOT / name
        head = "".join(line for line in lock.read_text().splitlines(keepends=True) if line.startswith("#"))
        resolve(extra, lock)
        lock.write_text(head + lock.read_text())
    return 0


def resolve(extra: str, lock: Path) -> None:
    """Lets uv write one lock; the versions that it has are kept where they still fit."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", "--quiet", "pyproject.toml", "--extra", extra, "--output-file", lock.name]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-emit-index-url", "--no-annotate", "--no-header"]
    if lock.name != next(iter(LOCKS)):
        command += ["--constraints", next(iter(LOCKS))]
    subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
