"""Small projects written to a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

TOML = '[project]\nname = "small"\n'
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """write(root="p", **{"bronze.py": "..."}) makes or changes a project; icefield.toml is there by default."""
    monkeypatch.delenv("ICEFIELD_PROFILE", raising=False)

    def make(root: str = "project", /, **files: str) -> Path:
        folder = tmp_path / root
        folder.mkdir(exist_ok=True)
        if not (folder / "icefield.toml").exists():
            (folder / "icefield.toml").write_text(TOML)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(dedent(text))
        return folder

    return make
