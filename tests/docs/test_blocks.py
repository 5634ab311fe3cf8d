"""What the pages show as JSON or TOML is that, and what they link to is there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("pipelines/*/README.md")])
BLOCK = re.compile(r"^( *)```(json|toml)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
READ = {"json": json.loads, "toml": tomllib.loads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_holds_together(page: Path) -> None:
    text = page.read_text()
    for match in BLOCK.finditer(text):
        try:
            READ[match[2]](dedent(match[3]))
        except ValueError as problem:
            pytest.fail(f"line {text[: match.start()].count(chr(10)) + 1}: {problem}")
    missing = [link for link in LINK.findall(CODE.sub("", text)) if not (page.parent / link).exists()]
    assert not missing
