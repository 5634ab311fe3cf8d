"""Files that have arrived, as the file system shows them; no Spark, so that a plan can be made without a JVM."""

from __future__ import annotations

import os
import re
import string
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.declare import Column
from icefield.engine.intake.files.digests import digest_of_file
from icefield.errors import FileChanged, FileUnreadable, LandingMissing
from icefield.graph.news import FilesCursor, FilesNews, LandedFile, TakenFile, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from icefield.declare import Files

_WILDCARD = re.compile(r"[*?\[]")


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


def files_news(
    root: Path, source: Files, known: FilesCursor | None, taken: Callable[[], Sequence[TakenFile]]
) -> FilesNews:
    """Compares the folder with what the table has taken; `taken` is asked only when the digests differ."""
    landed = list_landed(root, source)
    columns = known.added if known is not None else ()
    if known is not None and digest_of(landed) == known.digest and not _is_owed(source, landed, known):
        return FilesNews(landed=landed, columns=columns)
    if known is None:  # if files were noted all the same, they were those of a table that was dropped
        return FilesNews(landed=landed, new=landed, former=tuple(taken()))
    noted = [_with_parts(file, source) for file in taken()]
    remembered = {file.path: file for file in noted if not file.withdrawn}
    new: list[LandedFile] = []
    touched: list[LandedFile] = []
    changed: list[LandedFile] = []
    for file in landed:
        before = remembered.get(file.path)
        if before is None:
            new.append(file)
        elif (file.size, file.modified_ns) != (before.size, before.modified_ns):
            same = file.size == before.size and digest_of_file(root / file.path, before.sha256) == before.sha256
            (touched if same else changed).append(file)
    here = {file.path for file in landed}
    absent = tuple(file for file in remembered.values() if file.path not in here)
    withdraws = source.deleted == "withdraw"
    if withdraws:
        _require_absence(root, absent)
    return FilesNews(
        landed=landed,
        new=tuple(new),
        touched=tuple(touched),
        changed=() if source.changed == "ignore" else tuple(changed),
        ignored=tuple(changed) if source.changed == "ignore" else (),
        missing=() if withdraws else absent,
        gone=absent if withdraws else (),
        taken=tuple(remembered.values()),
        withdrawn=tuple(file for file in noted if file.withdrawn),
        columns=columns,
    )


def with_new_columns(root: Path, source: Files, news: FilesNews) -> FilesNews:
    """The news with the undeclared columns that files bring along, where the source is to add them."""
    if source.new_columns != "add":
        return news
    from icefield.engine.intake.files.heads import undeclared_columns  # noqa: PLC0415 - it reads files

    known = {column.name.lower() for column in (*source.columns, *news.columns)}
    added: dict[str, Column] = {}
    for file in (*news.new, *news.changed):
        for column in undeclared_columns(root, file, source):
            if column.name.lower() not in known:
                added.setdefault(column.name.lower(), column)
    return replace(news, added=tuple(added.values()))


def _with_parts(file: TakenFile, source: Files) -> TakenFile:
    match = _parts_pattern(source.path).fullmatch(file.path)
    parts = tuple(match.groupdict().items()) if match else tuple((part, "") for part in source.parts)
    return replace(file, parts=parts)


def _is_owed(source: Files, landed: Sequence[LandedFile], known: FilesCursor) -> bool:
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


def unreadable(path: Path | str, error: Exception) -> FileUnreadable:
    """The error for a file that the operating system will not give."""
    return FileUnreadable(
        f"cannot read {Path(path).name}: {getattr(error, 'strerror', None) or error}",
        where=str(path),
        remedy="give this user read permission, or move the file out of the landing folder",
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
