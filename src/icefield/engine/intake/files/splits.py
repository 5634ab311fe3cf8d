"""Files in splits of whole lines, read in blocks: a file of any size takes a fixed amount of memory.

Reading is a pure function of a split. A split owns the lines that begin in its range of bytes, so that nobody has to
know where the lines of another one end. A line is identified by the offset of its first byte, which orders as lines do;
its number within the split comes for free, and its number within the file once all splits of the file are read.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from icefield.lake.int_sets import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

#: A longer line is not parsed; this much of it is kept, with its length and hash.
LINE_LIMIT = 1 << 20
CHUNK = 4 << 20
UTF8 = "utf-8"
_NEWLINE = ord("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The lines of a file that begin in a range of bytes; without a length: all of them."""

    path: str
    start: int = 0
    length: int | None = None
    encoding: str = UTF8

    @property
    def end(self) -> int | None:
        return None if self.length is None else self.start + self.length

    @property
    def is_seekable(self) -> bool:
        """Whether bytes can be read from anywhere: those of packed files cannot, and others are encoded anew."""
        return not self.path.endswith(".gz") and self.encoding == UTF8


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLine:
    """A line of which only the head was kept in memory."""

    offset: int
    number: int
    head: bytes
    length: int
    sha256: str


class Block:
    """Some whole lines; `offset` is that of the first one in its file, `number` its number in the split, from 1."""

    def __init__(self, data: bytes, offset: int = 0, number: int = 1) -> None:
        self.data = data
        self.offset = offset
        self.number = number
        self.bytes = np.frombuffer(data, np.uint8)
        self.ends = np.flatnonzero(self.bytes == _NEWLINE)
        self.starts = np.concatenate((np.zeros(1, self.ends.dtype), self.ends[:-1] + 1))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def begins_file(self) -> bool:
        """Whether its first line is that of the file."""
        return self.offset == 0

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


def splits(path: str, size: int, encoding: str = UTF8, *, at_most: int) -> list[Split]:
    """A file in splits that can be read side by side; one whose bytes cannot be read from anywhere stays whole."""
    whole = Split(path=path, encoding=encoding)
    if size <= at_most or not whole.is_seekable:
        return [whole]
    return [Split(path=path, start=start, length=min(at_most, size - start)) for start in range(0, size, at_most)]


class SplitReader:
    """The lines of a split; afterwards, how many there are and the digest of the bytes in its range."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.lines = 0
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def blocks(self) -> Iterator[Block | LongLine]:
        """The lines, in order."""
        with _Hashed(self.split, self._hash) as file:
            chunks, offset = self._from_first_line(file)
            number, rest = 1, b""
            for chunk in chunks:
                data = rest + chunk
                cut = data.rfind(b"\n") + 1
                if cut:
                    kept, done = self._own(data[:cut], offset)
                    if kept:
                        block = Block(kept, offset, number)
                        yield block
                        number += len(block)
                    if done:
                        rest = b""
                        break
                    offset, rest = offset + cut, data[cut:]
                elif self._is_past(offset):
                    rest = b""
                    break
                elif len(data) > LINE_LIMIT:
                    line, rest = _read_long(chunks, data, offset, number)
                    yield line
                    number, offset = number + 1, offset + line.length + 1
                else:
                    rest = data
            kept, _ = self._own(rest if rest.endswith(b"\n") else rest + b"\n", offset) if rest else (b"", True)
            if kept:
                block = Block(kept, offset, number)
                yield block
                number += len(block)
            self.lines = number - 1
            file.finish()

    def _from_first_line(self, file: _Hashed) -> tuple[Iterator[bytes], int]:
        """What is read from the first line on that begins in the range, and where that is."""
        start = self.split.start
        if not start:
            return file.chunks(0), 0
        chunks, before = file.chunks(start - 1), start - 1
        for chunk in chunks:
            place = chunk.find(b"\n")
            if place >= 0:
                return _after(chunk[place + 1 :], chunks), before + place + 1
            before += len(chunk)
            if self._is_past(before):
                break
        return iter(()), before

    def _is_past(self, offset: int) -> bool:
        return self.split.end is not None and offset >= self.split.end

    def _own(self, data: bytes, offset: int) -> tuple[bytes, bool]:
        """The lines that begin in the range, and whether those after them are another split's."""
        end = self.split.end
        if end is None or offset + len(data) < end:
            return data, False
        if offset >= end:
            return b"", True
        # The last line of ours is the one that holds the last byte of the range.
        cut = data.find(b"\n", end - 1 - offset) + 1
        return data[:cut] if cut else data, True


def _after(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


class _Hashed:
    """A file that is read once: for its lines, and for the digest of what lies in the range of a split."""

    def __init__(self, split: Split, digest: Any) -> None:
        self._split = split
        self._digest = digest

    def __enter__(self) -> _Hashed:
        self._raw = _HashedFile(self._split, self._digest)
        file = cast("BinaryIO", self._raw)
        if self._split.path.endswith(".gz"):
            file = cast("BinaryIO", gzip.GzipFile(fileobj=file, mode="rb"))
        self._file = _in_utf8(file, self._split.encoding)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()

    def chunks(self, start: int) -> Iterator[bytes]:
        """Its bytes from a place on, unpacked and in UTF-8."""
        if start:
            self._raw.seek(start)
        while data := self._file.read(CHUNK):
            yield data

    def finish(self) -> None:
        """Reads what lies in the range and nobody asked for: it counts for the digest."""
        self._raw.finish()


class _HashedFile(io.RawIOBase):
    """A file whose bytes are hashed as they are read, in order, as far as they lie in a range."""

    def __init__(self, split: Split, digest: Any) -> None:
        super().__init__()
        self._file = Path(split.path).open("rb")  # noqa: SIM115 - closed with this object
        self._digest = digest
        self._end = split.end
        self._hashed = split.start
        self._at = 0

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = self._file.seek(offset, whence)
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        first = max(0, self._hashed - self._at)
        last = len(data) if self._end is None else min(len(data), self._end - self._at)
        if first < last:
            self._digest.update(memoryview(data)[first:last])
            self._hashed = self._at + last
        self._at += len(data)
        return len(data)

    def finish(self) -> None:
        buffer = bytearray(CHUNK)
        while (self._end is None or self._at < self._end) and self.readinto(buffer):
            pass

    def close(self) -> None:
        self._file.close()
        super().close()


def open_file(path: str | Path, encoding: str = UTF8) -> BinaryIO:
    """A file's bytes: unpacked where it is packed, in UTF-8 whatever it is encoded in."""
    if str(path).endswith(".gz"):
        return _in_utf8(cast("BinaryIO", gzip.open(path)), encoding)
    return _in_utf8(Path(path).open("rb"), encoding)


def _in_utf8(file: BinaryIO, encoding: str) -> BinaryIO:
    return file if encoding == UTF8 else cast("BinaryIO", io.BufferedReader(_Transcoded(file, encoding)))


class _Transcoded(io.RawIOBase):
    """Text of another encoding as UTF-8. What is no text in it becomes bytes that are no UTF-8, and so is found."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        super().__init__()
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            data = self._file.read(CHUNK)
            text = self._decoder.decode(data, final=not data)
            self._rest = text.encode("utf-8", "surrogateescape")
            if not data:
                break
        taken, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        self._file.close()
        super().close()


def fetch_lines(path: str, offsets: Sequence[int], encoding: str = UTF8) -> list[bytes] | None:
    """The lines that begin at these offsets, which ascend, each cut at the limit; None if the file is too short."""
    found: list[bytes] = []
    at, is_seekable = 0, Split(path=path, encoding=encoding).is_seekable
    with open_file(path, encoding) as file:
        for offset in offsets:
            if is_seekable:
                file.seek(offset)
            elif not _skip(file, offset - at):
                return None
            line = _line(file)
            if not line:
                return None
            at = offset + len(line)
            found.append(line.rstrip(b"\n").rstrip(b"\r")[:LINE_LIMIT])
    return [line.decode().encode(encoding) if _is_text(line) else line for line in found] if encoding != UTF8 else found


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _line(file: BinaryIO) -> bytes:
    """One line, with its end; of one beyond the limit as much as is kept, and at least so much is left behind."""
    return file.readline(LINE_LIMIT + 2)


def _skip(file: BinaryIO, count: int) -> bool:
    while count > 0:
        data = file.read(min(CHUNK, count))
        if not data:
            return False
        count -= len(data)
    return True


def _read_long(chunks: Iterator[bytes], head: bytes, offset: int, number: int) -> tuple[LongLine, bytes]:
    digest, length, rest = hashlib.sha256(head), len(head), b""
    for chunk in chunks:
        line, end, rest = chunk.partition(b"\n")
        digest.update(line)
        length += len(line)
        if end:
            break
    return LongLine(
        offset=offset, number=number, head=head[:LINE_LIMIT], length=length, sha256=digest.hexdigest()
    ), rest
