"""Files as numbered lines: read in blocks of whole lines, so that a file of any size takes a fixed amount of memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from icefield.engine.intake.landing import changed, open_file
from icefield.lake.numbers import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase
    from pathlib import Path

    from numpy.typing import NDArray

#: A longer line is not parsed; this much of it is kept, with its length and hash.
LINE_LIMIT = 1 << 20
CHUNK = 4 << 20
_NEWLINE = ord("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a file that begins and ends with whole lines; `first` is the number of its first line, from 1."""

    path: Path
    start: int = 0
    end: int | None = None
    first: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLine:
    """A line of which only the head was kept in memory."""

    number: int
    head: bytes
    length: int
    sha256: str


class Block:
    """Some whole lines; `first` is the number of the first one in its file, from 1."""

    def __init__(self, data: bytes, first: int) -> None:
        self.data = data
        self.first = first
        self.bytes = np.frombuffer(data, np.uint8)
        self.ends = np.flatnonzero(self.bytes == _NEWLINE)
        self.starts = np.concatenate((np.zeros(1, self.ends.dtype), self.ends[:-1] + 1))

    def __len__(self) -> int:
        return len(self.ends)

    def text(self, index: int) -> bytes:
        """A line without its end."""
        return self.data[self.starts[index] : self.ends[index]].rstrip(b"\r")

    def holding(self, byte: str) -> NDArray[np.intp]:
        """Indexes of the lines that have this character in them."""
        return self.around(np.flatnonzero(self.bytes == ord(byte)))

    def around(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Indexes of the lines that these bytes are in."""
        return distinct(np.searchsorted(self.ends, places))

    def count(self, byte: str) -> NDArray[np.intp]:
        """How often each line has this character."""
        places = np.flatnonzero(self.bytes == ord(byte))
        before = np.searchsorted(places, self.ends)
        return np.diff(before, prepend=0)

    def only(self, chosen: NDArray[np.bool_]) -> bytes:
        """The chosen lines, one after the other."""
        if chosen.all():
            return self.data
        steps = np.diff(chosen.astype(np.int8), prepend=0, append=0)
        begin, end = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
        view = memoryview(self.data)
        return b"".join(view[a : b + 1] for a, b in zip(self.starts[begin], self.ends[end], strict=True))


def read_blocks(piece: Piece) -> Iterator[Block | LongLine]:
    """The lines of a piece, in order."""
    with open_file(piece.path) as file:
        number, rest, chunks = piece.first, b"", _chunks(file, piece.start, piece.end)
        for chunk in chunks:
            data = rest + chunk
            cut = data.rfind(b"\n") + 1
            if cut:
                block = Block(data[:cut], number)
                yield block
                number, rest = number + len(block), data[cut:]
            elif len(data) > LINE_LIMIT:
                line, rest = _read_long(chunks, data, number)
                yield line
                number += 1
            else:
                rest = data
        if rest:
            yield Block(rest if rest.endswith(b"\n") else rest + b"\n", number)


def pieces(path: Path, size: int, at_most: int) -> list[Piece]:
    """A file cut where lines begin, so that several can read it at once; one that is packed stays whole."""
    if size <= at_most or path.suffix == ".gz":
        return [Piece(path=path)]
    starts = sorted({_line_start(path, at) for at in range(at_most, size, at_most)} - {size})
    found, first = [], 1
    for start, end in zip([0, *starts], [*starts, None], strict=True):
        found.append(Piece(path=path, start=start, end=end, first=first))
        if end is not None:
            first += _count_lines(path, start, end)
    return found


def fetch_lines(path: Path, wanted: NDArray[np.int64]) -> list[bytes]:
    """The lines with these numbers, which are sorted; each cut at the limit."""
    found: list[bytes] = []
    for block in read_blocks(Piece(path=path)):
        if isinstance(block, LongLine):
            found += [block.head[:LINE_LIMIT]] * int(np.count_nonzero(wanted == block.number))
            continue
        here = wanted[(wanted >= block.first) & (wanted < block.first + len(block))]
        found += [block.text(int(number) - block.first)[:LINE_LIMIT] for number in here]
    if len(found) != len(wanted):
        raise changed(str(path))
    return found


def _chunks(file: BufferedIOBase, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    if start:
        file.seek(start)
    left = CHUNK if end is None else end - start
    while left > 0 and (data := file.read(min(CHUNK, left))):
        yield data
        left = CHUNK if end is None else left - len(data)


def _read_long(chunks: Iterator[bytes], head: bytes, number: int) -> tuple[LongLine, bytes]:
    digest, length, rest = hashlib.sha256(head), len(head), b""
    for chunk in chunks:
        line, end, rest = chunk.partition(b"\n")
        digest.update(line)
        length += len(line)
        if end:
            break
    return LongLine(number=number, head=head[:LINE_LIMIT], length=length, sha256=digest.hexdigest()), rest


def _line_start(path: Path, at: int) -> int:
    """Where the first line begins at or after a place, which is not the first of the file."""
    before = at - 1
    with path.open("rb") as file:
        for chunk in _chunks(file, before):
            place = chunk.find(b"\n")
            if place >= 0:
                return before + place + 1
            before += len(chunk)
    return before


def _count_lines(path: Path, start: int, end: int) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in _chunks(file, start, end))
