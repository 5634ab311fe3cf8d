"""The shape of the source: modules that can be read at once."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "icefield"
LINES = 400


def test_no_module_but_the_errors_is_longer_than_can_be_read_at_once() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {path for path, lines in lengths.items() if lines > LINES} <= {SOURCE / "errors.py"}


def test_the_architecture_page_names_packages_and_modules_that_exist() -> None:
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    named = [word for word in page.split("`")[1::2] if "/" in word and "*" not in word and not word.startswith("src")]
    assert named
    for word in named:
        places = [SOURCE, SOURCE / "engine"] if word.split("/")[0] in rooms else [SOURCE / "engine"]
        found = [place / word.rstrip("/") for place in places]
        assert any(at.is_dir() or at.with_suffix(".py").is_file() for at in found), word
