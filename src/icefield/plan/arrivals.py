"""What the news of a source mean for a table: rows that come, rows that leave, and what stands in the way. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from icefield.errors import AllFilesGone, FileChanged, FileMissing
from icefield.graph.news import FilesNews, FramesNews

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.declare import Files
    from icefield.graph import Node
    from icefield.graph.news import LandedFile, News, TakenFile

_NAMED_AT_MOST = 3


class Arrivals(Protocol):
    """What `decide` asks about the news of a source, whatever its kind; texts are reasons, empty if there is none."""

    #: Whether a row tells by its column `source_file` with what it came.
    by_file: bool

    @property
    def came(self) -> str:
        """What rows came from."""

    @property
    def left(self) -> str:
        """What rows leave with, or are replaced by."""

    @property
    def noted(self) -> str:
        """What is only to be remembered."""

    def require_sound(self) -> None:
        """Refuses news that no run may take in."""

    def require_everything(self, due: str, otherwise: str = "") -> None:
        """Refuses a rebuild that could not read all that was read before; `otherwise`: what else could be done."""


def arrivals_of(node: Node, news: News) -> Arrivals:
    """The rules for the kind of source that the news come from."""
    return FileArrivals(node, news) if isinstance(news, FilesNews) else FrameArrivals(news)


class FrameArrivals:
    """Rows that a function makes."""

    by_file = False

    def __init__(self, news: FramesNews) -> None:
        self._news = news

    @property
    def came(self) -> str:
        count = self._news.total - self._news.known
        return f"{count} new {'row' if count == 1 else 'rows'}" if count > 0 and not self._news.replaced else ""

    @property
    def left(self) -> str:
        return "its function returns different rows" if self._news.replaced else ""

    @property
    def noted(self) -> str:
        return ""

    def require_sound(self) -> None:
        return

    def require_everything(self, due: str, otherwise: str = "") -> None:
        return


class FileArrivals:
    """Files that are new, touched, corrected, deleted, or gone without a word."""

    by_file = True

    def __init__(self, node: Node, news: FilesNews) -> None:
        self._node = node
        self._news = news

    @property
    def _source(self) -> Files:
        source: Files = self._node.source  # type: ignore[assignment]
        return source

    @property
    def came(self) -> str:
        if not self._news.new:
            return ""
        return f"{named(self._news.new)} arrived{self._with_columns}"

    @property
    def _with_columns(self) -> str:
        """Undeclared columns that the files bring along."""
        added = [f"{column.name} {column.type}" for column in self._news.added]
        return f" with new columns: {', '.join(added)}" if added else ""

    @property
    def left(self) -> str:
        told = [f"{named(self._news.changed)} corrected"] if self._news.changed else []
        return "; ".join([*told, *self._gone])

    @property
    def noted(self) -> str:
        return f"{named(self._news.touched)} touched, content unchanged" if self._news.touched else ""

    @property
    def _gone(self) -> list[str]:
        gone = self._news.gone
        if not gone:
            return []
        count = "1 file" if len(gone) == 1 else f"{len(gone)} files"
        return [f"{count} removed" + (f": {named(gone)}" if len(gone) <= _NAMED_AT_MOST else "")]

    @property
    def _where(self) -> str:
        return f"{self._node.name}, {self._node.location}"

    def require_sound(self) -> None:
        if self._news.changed and self._source.changed == "fail":
            raise FileChanged(
                f"the content of {named(self._news.changed)} has changed since ingestion",
                where=self._where,
                remedy='give the corrected file a new name, or declare files(..., changed="replace" or "ignore")',
            )
        if self._news.gone and not self._news.landed:  # a disk that is not mounted looks like an empty folder
            raise AllFilesGone(
                f"{self._gone[0]}, and no other files are left; the rows of {self._node.name} were not changed",
                where=self._where,
                remedy="restore the files (is their disk mounted?); to remove all rows, leave an empty file there",
            )

    def require_everything(self, due: str, otherwise: str = "") -> None:
        if self._news.ignored:
            raise FileChanged(
                f"{self._node.name} must be rebuilt ({due}), but the content of {named(self._news.ignored)} has changed"
                " since ingestion",
                where=self._where,
                remedy="restore the old content, "
                + (otherwise or 'or ingest the new one: files(..., changed="replace")'),
            )
        if self._news.missing:
            raise FileMissing(
                f"{self._node.name} must be rebuilt ({due}), but {named(self._news.missing)}, ingested earlier, cannot"
                " be found",
                where=self._where,
                remedy="restore the files, " + (otherwise or 'or remove their rows: files(..., deleted="withdraw")'),
            )


def named(files: Sequence[LandedFile | TakenFile]) -> str:
    """Some files in words."""
    if len(files) > _NAMED_AT_MOST:
        return f"{len(files)} files"
    return ", ".join(file.path for file in files)
