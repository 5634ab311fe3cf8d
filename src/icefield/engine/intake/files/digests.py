"""Digests of files: from those of their splits, which come with reading, or from the whole file."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from icefield.errors import FileUnreadable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SPLITS = "splits-of-"
_CHUNK = 4 << 20


def joined_digest(digests: Sequence[str], split_bytes: int) -> str:
    """The digest of a file from those of its splits; if there is one, it is that of the content."""
    if len(digests) == 1:
        return digests[0]
    return f"{_SPLITS}{split_bytes}:{hashlib.sha256(''.join(digests).encode()).hexdigest()}"


def digest_of_file(path: Path, like: str = "") -> str:
    """The digest of a file's content, in the form of another one."""
    try:
        with path.open("rb") as file:
            if not like.startswith(_SPLITS):
                return hashlib.file_digest(file, "sha256").hexdigest()
            size = int(like.removeprefix(_SPLITS).partition(":")[0])
            found = []
            while (digest := _digest_of_next(file, size)) is not None:
                found.append(digest)
            return joined_digest(found or [""], size)
    except OSError as error:
        raise FileUnreadable(
            f"cannot read {path.name}: {error.strerror or error}",
            where=str(path),
            remedy="give this user read permission, or move the file out of the landing folder",
        ) from error


def _digest_of_next(file, size: int) -> str | None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - an opened file
    digest, left = hashlib.sha256(), size
    while left and (data := file.read(min(_CHUNK, left))):
        digest.update(data)
        left -= len(data)
    return None if left == size else digest.hexdigest()
