"""What the news of a source mean for a table: rows that come, rows that leave, and what stands in the way. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from icefield.errors import AllFilesGone, FileChanged, FileMissing, MessagesLost, RowsChanged
from icefield.graph.news import FilesNews, FramesNews, RelationNews
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.declare import Files
    from icefield.graph import Node
    from icefield.graph.news import LandedFile, News, TakenFile, TopicsNews

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

    def require_sound(self, *, accepted: bool) -> None:
        """Refuses news that no run may take in, unless a person has accepted what can be accepted."""

    def require_everything(self, due: str, otherwise: str = "") -> None:
        """Refuses a rebuild that could not read all that was read before; `otherwise`: what else could be done."""


def arrivals_of(node: Node, news: News) -> Arrivals:
    """The rules for the kind of source that the news come from."""
    if isinstance(news, FilesNews):
        return FileArrivals(node, news)
    if isinstance(news, RelationNews):
        return RelationArrivals(node, news)
    return FrameArrivals(news) if isinstance(news, FramesNews) else TopicArrivals(node, news)


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

    def require_sound(self, *, accepted: bool) -> None:
        return

    def require_everything(self, due: str, otherwise: str = "") -> None:
        return


class TopicArrivals:
    """Messages of topics: they only ever come, unless Kafka has removed them before they were taken in."""

    by_file = False
    left = ""

    def __init__(self, node: Node, news: TopicsNews) -> None:
        self._node = node
        self._news = news

    @property
    def came(self) -> str:
        count = self._news.new_messages
        return f"{plural(count, 'new message')}{self._accepted}" if count else ""

    @property
    def noted(self) -> str:
        return self._accepted.removeprefix("; ")

    @property
    def _accepted(self) -> str:
        return f"; loss accepted: {'; '.join(self._news.lost)}" if self._news.lost else ""

    @property
    def _where(self) -> str:
        return f"{self._node.name}, {self._node.location}"

    def require_sound(self, *, accepted: bool) -> None:
        if self._news.lost and not accepted:
            raise MessagesLost(
                f"messages were lost before {self._node.name} took them in: {'; '.join(self._news.lost)}",
                where=self._where,
                remedy=f"restore the topic, or go on without them: icefield run --accept {self._node.name}"
                " (the loss is recorded)",
            )

    def require_everything(self, due: str, otherwise: str = "") -> None:
        if self._news.gone:
            raise MessagesLost(
                f"{self._node.name} must be rebuilt ({due}), but Kafka no longer has {'; '.join(self._news.gone)}",
                where=self._where,
                remedy=f"restore the messages, {otherwise}"
                if otherwise
                else "restore the messages, or undo the change that makes a rebuild necessary",
            )


class RelationArrivals:
    """Rows of a database: they come above a cursor, or all of them replace those that were there."""

    by_file = False

    def __init__(self, node: Node, news: RelationNews) -> None:
        self._node = node
        self._news = news

    @property
    def _relation(self) -> str:
        return self._node.source.name if self._node.source is not None else ""

    @property
    def came(self) -> str:
        if self._news.is_whole:
            return ""
        if self._news.unsure:
            return f"{self._relation} is asked for new rows at every run"
        told = [f"{plural(self._news.rows, 'new row')}, {self._news.cursor.column} up to {self._news.upto}"]
        told = told if self._news.rows else []
        if self._news.late:
            at = f"{self._news.cursor.column} = {self._news.cursor.value}"
            told.append(f"{plural(self._news.late, 'new row')} with {at} as before")
        return "; ".join(told)

    @property
    def left(self) -> str:
        if not self._news.is_whole:
            return ""
        if self._news.unsure:
            return f"{self._relation} is read at every run"
        return f"{self._relation} has changed" if self._news.replaced else ""

    @property
    def noted(self) -> str:
        return f"accepted: {self._news.unclear}" if self._news.unclear else ""

    @property
    def _where(self) -> str:
        return f"{self._node.name}, {self._node.location}"

    @property
    def _anew(self) -> str:
        table = self._node.name
        return f"take in what the database has now: icefield run --full-refresh --accept {table} --select {table}"

    def require_sound(self, *, accepted: bool) -> None:
        if self._news.unclear and not accepted:
            raise RowsChanged(
                self._news.unclear,
                where=self._where,
                remedy=f"go on without them: icefield run --accept {self._node.name}; or {self._anew}",
            )

    def require_everything(self, due: str, otherwise: str = "") -> None:
        if self._news.gone:
            raise RowsChanged(
                f"{self._node.name} must be rebuilt ({due}), but {self._news.gone}",
                where=self._where,
                remedy=f"{otherwise.removeprefix('or ')}; or {self._anew}" if otherwise else self._anew,
            )


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

    def require_sound(self, *, accepted: bool) -> None:
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
