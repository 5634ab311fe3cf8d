"""Files that have arrived, as the file system shows them; no Spark, so that a plan can be made without a JVM."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import re
import string
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.declare.sources import PACKED, SUFFIXES
from icefield.errors import FileChanged, FileUnreadable, LandingMissing, WrongHeader
from icefield.graph.state import Arrivals, FilesTaken, LandedFile, TakenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from io import BufferedIOBase

    from icefield.declare import Files

_WILDCARD = re.compile(r"[*?\[]")
_HEADER_BYTES = 1 << 20
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A file to be read by this run: its place in the order of arrival, and when it first arrived."""

    file: LandedFile
    arrival: int
    taken_ms: int
    format: str
    header: tuple[str, ...] = ()
    header_line: str = ""


def list_landed(root: Path, source: Files) -> tuple[LandedFile, ...]:
    """Every file the source's path matches, sorted by path; hidden files and files being written are not there yet."""
    folder = root / _fixed_folder(source.glob)
    if not folder.is_dir():
        raise LandingMissing(
            f"the folder {folder.relative_to(root)} does not exist",
            where=f'files("{source.path}") in {root}',
            remedy=f"create the folder ({folder}) and put files there, or correct the path",
        )
    pattern = _parts_pattern(source.path)
    found = []
    for path in sorted(root.glob(source.glob)):
        relative = path.relative_to(root).as_posix()
        if path.name.startswith((".", "_")) or not path.is_file() or not (match := pattern.fullmatch(relative)):
            continue
        stat = path.stat()
        parts = tuple(match.groupdict().items())
        found.append(LandedFile(path=relative, size=stat.st_size, modified_ns=stat.st_mtime_ns, parts=parts))
    return tuple(found)


def files_taken(arrivals: Arrivals) -> FilesTaken:
    """What a table stores of the files whose rows it holds, once it has taken in what arrived."""
    return FilesTaken(count=len(arrivals.landed) + len(arrivals.missing), digest=_digest(arrivals.landed))


def _digest(files: Iterable[LandedFile]) -> str:
    lines = sorted(f"{file.path}\t{file.size}\t{file.modified_ns}" for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def sha256(path: Path) -> str:
    """The digest of a file's content."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def arrivals(root: Path, source: Files, known: FilesTaken | None, taken: Callable[[], Sequence[TakenFile]]) -> Arrivals:
    """Compares the folder with what the table has taken; `taken` is asked only when the digests differ."""
    landed = list_landed(root, source)
    if known is not None and _digest(landed) == known.digest and not _is_owed(source, landed, known):
        return Arrivals(landed=landed)
    if known is None:  # if files were noted all the same, they were those of a table that was dropped
        return Arrivals(landed=landed, new=landed, former=tuple(taken()))
    noted = taken()
    remembered = {file.path: file for file in noted if not file.withdrawn}
    new: list[LandedFile] = []
    touched: list[LandedFile] = []
    changed: list[LandedFile] = []
    for file in landed:
        before = remembered.get(file.path)
        if before is None:
            new.append(file)
        elif (file.size, file.modified_ns) != (before.size, before.modified_ns):
            same = file.size == before.size and sha256(root / file.path) == before.sha256
            (touched if same else changed).append(file)
    here = {file.path for file in landed}
    absent = tuple(file for file in remembered.values() if file.path not in here)
    withdraws = source.deleted == "withdraw"
    if withdraws:
        _require_absence(root, absent)
    return Arrivals(
        landed=landed,
        new=tuple(new),
        touched=tuple(touched),
        changed=tuple(changed),
        missing=() if withdraws else absent,
        gone=absent if withdraws else (),
        taken=tuple(remembered.values()),
        withdrawn=tuple(file for file in noted if file.withdrawn),
    )


def _is_owed(source: Files, landed: Sequence[LandedFile], known: FilesTaken) -> bool:
    """Whether rows of files that went earlier are still to be withdrawn: the author has said so since."""
    return source.deleted == "withdraw" and known.count != len(landed)


def _require_absence(root: Path, files: Iterable[TakenFile]) -> None:
    """A file in a folder that cannot be looked into is not gone, and its rows must stay."""
    for folder in sorted({(root / file.path).parent for file in files}):
        try:
            with os.scandir(folder) as entries:
                next(entries, None)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise FileUnreadable(
                f"cannot list {folder.relative_to(root)}, so icefield cannot tell whether its files were deleted:"
                f" {error.strerror or error}",
                where=str(folder),
                remedy="give this user permission to read the folder, or remount its disk, and run again",
            ) from error


def take(root: Path, file: LandedFile, source: Files, *, arrival: int, taken_ms: int) -> Intake:
    """Looks into a file's head: its format, and its columns where it names them itself."""
    kind = source.format or _format(file, source)
    header: tuple[str, ...] = ()
    line = ""
    if kind == "csv":
        header, line = read_header(root, file, source)
    elif kind == "parquet" and file.size:
        if ":" in file.path:
            raise FileUnreadable(
                f"{file.path} has a colon in its name, which Spark interprets as the end of a URL scheme",
                where=file.path,
                remedy="rename the file, or move it out of the landing folder",
            )
        header = _match_header(file, _parquet_columns(root / file.path), source)
    return Intake(file=file, arrival=arrival, taken_ms=taken_ms, format=kind, header=header, header_line=line)


def _format(file: LandedFile, source: Files) -> str:
    suffixes = [suffix.lower() for suffix in Path(file.path).suffixes if suffix.lower() not in PACKED]
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    raise FileUnreadable(
        f"the format of {file.path} cannot be determined from its name",
        where=f'{file.path}, files("{source.path}")',
        remedy='name files .csv, .json, .jsonl or .parquet, or declare files(..., format="csv")',
    )


def _parquet_columns(path: Path) -> list[str]:
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 - only where such files arrive

    try:
        return list(parquet.read_schema(path).names)
    except (OSError, ArrowException) as error:
        raise FileUnreadable(
            f"{path.name} is not a Parquet file: {str(error).splitlines()[0]}",
            where=str(path),
            remedy="move the file out of the landing folder, or write it again",
        ) from error


def read_header(root: Path, file: LandedFile, source: Files) -> tuple[tuple[str, ...], str]:
    """A CSV file's columns in its own order, as declared names ("" for one to leave out), and its first line."""
    path = root / file.path
    try:
        with open_file(path) as handle:
            line = handle.readline(_HEADER_BYTES)
    except (OSError, EOFError) as error:
        raise unreadable(path, error) from error
    if not line.strip():
        if file.size:
            raise _wrong_header(file, "its first line is blank", source)
        return (), ""
    try:
        text = line.decode().rstrip("\r\n").removeprefix(_BOM)  # Spark's lines come without it, too
    except UnicodeDecodeError:
        raise _wrong_header(file, "its first line is not UTF-8", source) from None
    separator, quote = source.options.get("sep", ","), source.options.get("quote", '"')
    try:
        names = next(csv.reader([text], delimiter=separator, quotechar=quote))
    except csv.Error as error:
        raise _wrong_header(file, f"its first line cannot be split into column names ({error})", source) from None
    return _match_header(file, [name.strip() for name in names], source), text


def open_file(path: Path) -> BufferedIOBase:
    """A file's bytes, unpacked where it is packed."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def require_unchanged(root: Path, files: Iterable[LandedFile]) -> None:
    """Stops the run where a file is not what it was when the run looked at it first."""
    for file in files:
        try:
            stat = (root / file.path).stat()
        except OSError as error:
            raise unreadable(root / file.path, error) from error
        if (stat.st_size, stat.st_mtime_ns) != (file.size, file.modified_ns):
            raise changed(file.path)


def changed(path: str) -> FileChanged:
    """The error for a file that is not what it was when the run looked at it first."""
    return FileChanged(
        f"{path} changed while it was being read",
        where=path,
        remedy="write files under a temporary name and rename them when they are complete, then run again",
    )


def unreadable(path: Path, error: OSError | EOFError) -> FileUnreadable:
    """The error for a file that the operating system will not give."""
    return FileUnreadable(
        f"cannot read {path.name}: {getattr(error, 'strerror', None) or error}",
        where=str(path),
        remedy="give this user read permission, or move the file out of the landing folder",
    )


def _match_header(file: LandedFile, names: list[str], source: Files) -> tuple[str, ...]:
    known = {column.name.lower(): column.name for column in source.schema}
    for column, former in source.aliases.items():
        known.update({name.lower(): column for name in former})
    matched = [known.get(name.lower(), "") for name in names]
    unknown = [name for name, column in zip(names, matched, strict=True) if not column]
    if unknown and source.new_columns == "fail":
        raise _wrong_header(file, f"it has unknown columns: {', '.join(unknown)}", source)
    repeated = sorted({column for column in matched if column and matched.count(column) > 1})
    if repeated:
        raise _wrong_header(file, f"it has duplicate columns: {', '.join(repeated)}", source)
    missing = [column.name for column in source.schema if column.name not in matched]
    if missing and source.new_columns == "fail":
        raise _wrong_header(file, f"it has missing columns: {', '.join(missing)}", source)
    return tuple(matched)


def _wrong_header(file: LandedFile, problem: str, source: Files) -> WrongHeader:
    declared = ",".join(column.name for column in source.schema)
    return WrongHeader(
        f"the header of {file.path} does not match the declared columns: {problem}",
        where=f"{file.path}:1",
        remedy=f"the first line must list the columns {declared}; fix the file, or declare aliases= or new_columns=",
    )


def _fixed_folder(glob: str) -> str:
    """The part of a path before its first wildcard."""
    fixed = []
    for part in Path(glob).parts[:-1]:
        if _WILDCARD.search(part):
            break
        fixed.append(part)
    return str(Path(*fixed)) if fixed else "."


def _parts_pattern(path: str) -> re.Pattern[str]:
    """The path as a regular expression with a group for each {part}."""
    pieces = []
    for text, part, _, _ in string.Formatter().parse(path):
        pieces.append(_glob_to_regex(text))
        if part is not None:
            pieces.append(f"(?P<{part}>[^/]*)")
    return re.compile("".join(pieces), re.DOTALL)


def _glob_to_regex(text: str) -> str:
    escaped = re.escape(text)
    escaped = escaped.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return re.sub(r"\\\[(.*?)\\\]", lambda match: f"[{match.group(1)}]", escaped)
