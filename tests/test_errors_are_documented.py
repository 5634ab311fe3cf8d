"""Every error has a code of its own and a section in the docs."""

import re
from pathlib import Path

from icefield import errors

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"


def all_errors() -> list[type[errors.IcefieldError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.IcefieldError) and kind is not errors.IcefieldError
    ]


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in all_errors()]
    assert len(codes) == len(set(codes))


def test_every_code_has_a_section_and_every_section_a_code() -> None:
    sections = re.findall(r"^### (ICE-\d{3}) (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(sections) == sorted((kind.code, kind.__name__) for kind in all_errors())
