"""Files in splits: whatever their sizes, every line is seen once, at its offset, under its number."""

from __future__ import annotations

import gzip
import hashlib
import random
from typing import TYPE_CHECKING

import pytest

from icefield.engine.intake.files import splits as module
from icefield.engine.intake.files.digests import digest_of_file, joined_digest
from icefield.engine.intake.files.splits import Block, LongLine, Split, SplitReader, fetch_lines, splits

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = range(60)


def seen(found: list[Split]) -> tuple[dict[int, tuple[int, bytes]], list[str]]:
    """Every line by its offset, with its number in the file, of a long one its head; and the digests of the splits."""
    told: dict[int, tuple[int, bytes]] = {}
    before, digests = 0, []
    for split in found:
        reader = SplitReader(split)
        for block in reader.blocks():
            if isinstance(block, LongLine):
                here = {block.offset: (before + block.number, block.head)}
            else:
                places = range(len(block))
                here = {block.offset + int(block.starts[n]): (before + block.number + n, block.text(n)) for n in places}
            assert not told.keys() & here.keys()
            told |= here
        before += reader.lines
        digests.append(reader.digest)
    return told, digests


@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_is_seen_once_at_its_offset_under_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(module, "CHUNK", chance.choice([1, 7, 64, 1000]))
    monkeypatch.setattr(module, "LINE_LIMIT", chance.choice([20, 200]))
    texts = [bytes(chance.choices(b'ab,"\r\xc3', k=chance.choice([0, 1, 9, 60, 300]))) for _ in range(60)]
    content = b"\n".join(texts) + chance.choice([b"", b"\n"])
    path = tmp_path / "f.csv"
    path.write_bytes(content)
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    size = chance.choice([1, 50, 500, 10**6])
    found, digests = seen(splits(str(path), len(content), at_most=size))
    offset = 0
    for number, line in enumerate(expected, 1):
        own, text = found.pop(offset)
        assert own == number
        assert text == line.rstrip(b"\r") or (len(line) > module.LINE_LIMIT and text == line[: module.LINE_LIMIT])
        offset += len(line) + 1
    assert not found
    assert joined_digest(digests, size) == digest_of_file(path, joined_digest(digests, size))
    if len(digests) == 1:
        assert digests == [hashlib.sha256(content).hexdigest()]


def test_lines_are_fetched_by_their_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_LIMIT", 5)
    content = b"one\r\ntwo\n\nlong enough\nlast"
    path = tmp_path / "f.csv"
    path.write_bytes(content)
    offsets = [0, 5, 9, 10, 22]
    assert fetch_lines(str(path), offsets) == [b"one", b"two", b"", b"long ", b"last"]
    assert fetch_lines(str(path), [*offsets, 26]) is None, "the file is too short"
    packed = tmp_path / "f.csv.gz"
    packed.write_bytes(gzip.compress(content))
    assert fetch_lines(str(packed), offsets) == [b"one", b"two", b"", b"long ", b"last"]


def test_a_long_line_is_told_by_its_length_and_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 100)
    monkeypatch.setattr(module, "LINE_LIMIT", 50)
    long = bytes(range(97, 123)) * 40
    path = tmp_path / "f.csv"
    path.write_bytes(b"first\n" + long + b"\nlast")
    blocks = list(SplitReader(Split(path=str(path))).blocks())
    (found,) = [block for block in blocks if isinstance(block, LongLine)]
    assert (found.number, found.offset, found.length, found.head) == (2, 6, len(long), long[:50])
    assert found.sha256 == hashlib.sha256(long).hexdigest()
    assert [b.text(0) for b in blocks if isinstance(b, Block)] == [b"first", b"last"]


def test_a_packed_file_is_one_split_and_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f.csv.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    found, digests = seen(splits(str(path), path.stat().st_size, at_most=1))
    assert found == {0: (1, b"one"), 4: (2, b"two")}
    assert digests == [digest_of_file(path)], "that of the file, not of what is packed in it"


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "utf-8-sig"])
def test_another_encoding_is_read_as_utf_8_and_fetched_as_it_was(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes("größe\nzwölf\n".encode(encoding))
    found, digests = seen(splits(str(path), path.stat().st_size, encoding, at_most=1))
    assert [text.decode() for _, text in found.values()] == ["größe", "zwölf"]
    assert digests == [digest_of_file(path)]
    (line,) = fetch_lines(str(path), [list(found)[1]], encoding) or []
    assert line.decode(encoding) == "zwölf"


def test_what_is_no_text_of_an_encoding_is_no_utf_8_either(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"good\nb\x81d\n")
    found, _ = seen(splits(str(path), 9, "cp1252", at_most=100))
    with pytest.raises(UnicodeDecodeError):
        found[5][1].decode()
