"""Files as numbered lines: whatever the sizes of chunks and pieces, every line is seen once, under its own number."""

from __future__ import annotations

import gzip
import hashlib
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from icefield.engine.intake import lines
from icefield.engine.intake.lines import Block, LongLine, Piece, fetch_lines, pieces, read_blocks
from icefield.errors import FileChanged

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = range(40)


def seen(found: list[Piece]) -> dict[int, bytes]:
    """Every line by its number, of a long one its head."""
    told: dict[int, bytes] = {}
    for piece in found:
        for block in read_blocks(piece):
            if isinstance(block, LongLine):
                here = {block.number: block.head}
            else:
                here = {block.first + at: block.text(at) for at in range(len(block))}
            assert not told.keys() & here.keys()
            told |= here
    return told


@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_is_seen_once_under_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(lines, "CHUNK", chance.choice([1, 7, 64, 1000]))
    monkeypatch.setattr(lines, "LINE_LIMIT", chance.choice([20, 200]))
    texts = [bytes(chance.choices(b'ab,"\r\xc3', k=chance.choice([0, 1, 9, 60, 300]))) for _ in range(60)]
    content = b"\n".join(texts) + chance.choice([b"", b"\n"])
    path = tmp_path / "f.csv"
    path.write_bytes(content)
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    found = seen(pieces(path, len(content), chance.choice([1, 50, 500, 10**6])))
    assert list(found) == list(range(1, len(expected) + 1))
    for number, line in enumerate(expected, 1):
        text = line.rstrip(b"\r")
        assert found[number] == text or (len(line) > lines.LINE_LIMIT and found[number] == line[: lines.LINE_LIMIT])
    some = np.array(sorted(chance.sample(range(1, len(expected) + 1), 10)))
    assert fetch_lines(path, some) == [found[int(number)][: lines.LINE_LIMIT] for number in some]


def test_a_long_line_is_told_by_its_length_and_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK", 100)
    monkeypatch.setattr(lines, "LINE_LIMIT", 50)
    long = bytes(range(97, 123)) * 40
    path = tmp_path / "f.csv"
    path.write_bytes(b"first\n" + long + b"\nlast")
    blocks = list(read_blocks(Piece(path=path)))
    (found,) = [block for block in blocks if isinstance(block, LongLine)]
    assert (found.number, found.length, found.head) == (2, len(long), long[:50])
    assert found.sha256 == hashlib.sha256(long).hexdigest()
    assert [b.text(0) for b in blocks if isinstance(b, Block)] == [b"first", b"last"]


def test_a_packed_file_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f.csv.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert seen(pieces(path, path.stat().st_size, 1)) == {1: b"one", 2: b"two"}
    assert fetch_lines(path, np.array([2])) == [b"two"]


def test_a_line_that_is_gone_is_told(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"one\n")
    with pytest.raises(FileChanged, match="changed while it was being read"):
        fetch_lines(path, np.array([1, 2]))
