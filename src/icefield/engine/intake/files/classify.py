"""Classifies lines: parsed by Arrow, certainly malformed, or left to Spark's parser (`parse`)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from icefield.engine.intake.files.cells import is_plain, values_of
from icefield.engine.intake.files.splits import LINE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from icefield.declare import Column, Files
    from icefield.engine.intake.files.splits import Block

_ASCII = 128
BOM = b"\xef\xbb\xbf"
_MOST = LINE_LIMIT * 16
#: A pattern may not ask for more repetitions.
_REPEATS = 1000


@dataclass(slots=True)
class Classified:
    """What became of the lines of a block, by their index in it; a blank line is in none of these."""

    values: list[pa.Array] = field(default_factory=list)
    kept: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    undecided: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    malformed: dict[int, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.kept) + len(self.undecided) + len(self.malformed)


class JsonLines:
    """Classifies lines of JSON: what they say is for `parse` to find out."""

    def classify(self, block: Block) -> Classified:
        """What becomes of the lines of a block."""
        blank, malformed = structure(block)
        undecided = ~blank
        undecided[list(malformed)] = False
        return Classified(undecided=np.flatnonzero(undecided), malformed=malformed)


@dataclass(frozen=True)
class CsvLines:
    """Classifies the lines of CSV files with one header."""

    source: Files
    header: tuple[str, ...]
    header_line: bytes
    zone: str = "UTC"

    @property
    def separator(self) -> str:
        return self.source.sep

    @property
    def quote(self) -> str:
        return self.source.quote

    @cached_property
    def has_plain_form(self) -> bool:
        kinds = {column.type for column in self.source.schema}
        formats = {"DATE": self.source.date_format, "TIMESTAMP": self.source.timestamp_format}
        formats["TIMESTAMP_NTZ"] = self.source.timestamp_format
        in_utc = self.zone == "UTC" or "TIMESTAMP" not in kinds
        usual = in_utc and (self.separator + self.quote).isascii() and not any(formats.get(kind) for kind in kinds)
        return usual and all(is_plain(kind) for kind in kinds)

    def classify(self, block: Block) -> Classified:
        """What becomes of the lines of a block; the header of the file is none of them."""
        blank, malformed = structure(block, self.header_line)
        if block.begins_file and self.source.header:
            blank[0] = True
            malformed.pop(0, None)
        sure = ~blank
        sure[list(malformed)] = False
        undecided = np.zeros(len(block), bool)
        if block.begins_file and block.data.startswith(BOM):  # it is taken off before Spark looks at the line
            undecided[0], sure[0] = sure[0], False
        if self.has_plain_form:
            self._leave(block, sure, undecided)
            self._count_fields(block, sure, malformed)
        else:
            undecided |= sure
            sure[:] = False
        cells = self._cells(block, sure)
        if cells is None:
            undecided |= sure
            return Classified(undecided=np.flatnonzero(undecided), malformed=malformed)
        return self._values(cells, np.flatnonzero(sure), undecided, malformed)

    # -- lines

    def _leave(self, block: Block, sure: NDArray[np.bool_], undecided: NDArray[np.bool_]) -> None:
        """Leaves lines to `parse` that no CSV writer would have written."""
        returns = np.flatnonzero(block.bytes == ord("\r"))
        stray = block.around(returns[block.bytes[returns + 1] != ord("\n")])
        quoted = block.holding(self.quote)
        odd = quoted[~self._well_quoted(block, quoted)] if len(quoted) else quoted
        for lines in (stray, odd):
            undecided[lines] = sure[lines]
        sure[stray], sure[odd] = False, False

    def _well_quoted(self, block: Block, lines: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether every field is quoted as a whole or has no quote in it, and there are as many as the header has."""
        if len(self.header) > _REPEATS:
            return np.zeros(len(lines), bool)
        s, q = re.escape(self.separator), re.escape(self.quote)
        one = f"(?:{q}[^{q}]*(?:{q}{q}[^{q}]*)*{q}|[^{q}{s}\\r\\n]*)"
        texts = pa.array([block.text(at) for at in lines], pa.binary())
        pattern = f"^{one}(?:{s}{one}){{{len(self.header) - 1}}}$"
        found: NDArray[np.bool_] = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
        return found

    def _count_fields(self, block: Block, sure: NDArray[np.bool_], malformed: dict[int, str]) -> None:
        found = block.count(self.separator) + 1
        wrong = sure & (found != len(self.header))
        wrong[block.holding(self.quote)] = False  # they have been counted
        for at in np.flatnonzero(wrong):
            malformed[int(at)] = f"malformed: {found[at]} fields instead of {len(self.header)}"
        sure &= ~wrong

    # -- cells

    def _cells(self, block: Block, sure: NDArray[np.bool_]) -> pa.Table | None:
        """The cells of the lines as text, NULL where empty; None if Arrow saw other lines than we did."""
        names = [str(place) for place in range(len(self.header))]
        count = int(np.count_nonzero(sure))
        if not count:
            return None
        table = pacsv.read_csv(
            pa.BufferReader(block.only(sure)),
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=_MOST),
            parse_options=pacsv.ParseOptions(delimiter=self.separator, quote_char=self.quote),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                null_values=["", *self.source.null_values],
                check_utf8=False,
            ),
        ).combine_chunks()
        return table if table.num_rows == count else None

    def _values(
        self, cells: pa.Table, lines: NDArray[np.intp], undecided: NDArray[np.bool_], malformed: dict[int, str]
    ) -> Classified:
        places = {name: place for place, name in enumerate(self.header)}
        found = [
            cells[places[column.name]].chunk(0) if column.name in places else None for column in self.source.schema
        ]
        return typed(self.source.schema, found, lines, undecided, malformed)


def typed(
    columns: Sequence[Column],
    cells: Sequence[pa.Array | None],
    lines: NDArray[np.intp],
    undecided: NDArray[np.bool_],
    malformed: dict[int, str],
) -> Classified:
    """Cells as values of the declared types; lines of which one does not fit are malformed, or left to `parse`."""
    good = np.ones(len(lines), bool)
    found = []
    for column, texts in zip(columns, cells, strict=True):
        if texts is None:
            found.append(pa.nulls(len(lines), values_of(pa.array([], pa.string()), column.type).column.type))
            continue
        values = values_of(texts, column.type)
        found.append(values.column)
        for at in values.wrong[good[values.wrong]]:  # the first reason counts
            malformed[int(lines[at])] = f"malformed: {column.name} is not a valid {column.type}"
        undecided[lines[values.unsure[good[values.unsure]]]] = True
        good[values.wrong], good[values.unsure] = False, False
    if not good.all():
        chosen = pa.array(good)
        found = [column.filter(chosen) for column in found]
    return Classified(values=found, kept=lines[good], undecided=np.flatnonzero(undecided), malformed=malformed)


def structure(block: Block, header: bytes = b"") -> tuple[NDArray[np.bool_], dict[int, str]]:
    """Which lines are blank, and which are malformed whatever their fields are."""
    lengths = block.ends - block.starts
    malformed: dict[int, str] = {}
    blank = lengths == 0
    first = block.bytes[block.starts]
    for at in np.flatnonzero(np.isin(first, (ord(" "), ord("\t"), ord("\r")))).tolist():
        blank[at] = not block.text(at).strip(b" \t")
    for at in _not_utf8(block):
        malformed[at] = "malformed: the line is not UTF-8"
    for at in np.flatnonzero(lengths > LINE_LIMIT).tolist():
        malformed[at] = _too_long(block, at)
    if header:
        near = (lengths >= len(header)) & (lengths <= len(header) + 1) & (first == header[0])
        again = [at for at in np.flatnonzero(near).tolist() if block.text(at) == header]
        malformed.update(dict.fromkeys(again, "malformed: repeated header line"))
    return blank, malformed


def _too_long(block: Block, at: int) -> str:
    """The problem of a line beyond the limit."""
    line = block.data[block.starts[at] : block.ends[at]]
    return long_problem(len(line), hashlib.sha256(line).hexdigest())


def long_problem(length: int, sha256: str) -> str:
    """How a line beyond the limit is told."""
    return f"malformed: the line has {length} bytes, sha256 {sha256}"


def _not_utf8(block: Block) -> list[int]:
    try:
        block.data.decode()
    except UnicodeDecodeError:
        holding = block.around(np.flatnonzero(block.bytes >= _ASCII)).tolist()
        return [at for at in holding if not _is_utf8(block.text(at))]
    return []


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
