"""Files of any kind as one row each: what the file system tells, the digest, and the content up to a limit."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from icefield.declare.file_source import CONTENT_LIMIT
from icefield.engine.intake.files.digests import digest_of_file

if TYPE_CHECKING:
    from icefield.graph.news import LandedFile


def read_whole(path: str, file: LandedFile) -> tuple[dict[str, pa.Array], str]:
    """The row of a file, and the digest of its content; a file beyond the limit comes without its content."""
    content = Path(path).read_bytes() if file.size <= CONTENT_LIMIT else None
    digest = digest_of_file(Path(path)) if content is None else hashlib.sha256(content).hexdigest()
    return {
        "size": pa.array([file.size], pa.int64()),
        "modified_at": pa.array([file.modified_ns // 1000], pa.timestamp("us", "UTC")),
        "sha256": pa.array([digest], pa.string()),
        "content": pa.array([content], pa.binary()),
    }, digest
