"""Every error icefield raises on purpose: one root, one code each, each with a section in docs/reference/errors.md.

    IcefieldError
      DeclarationError   ICE-1nn  what an author wrote cannot mean anything
      ProjectError       ICE-2nn  the project folder or its settings
      LakeError          ICE-3nn  the warehouse and its catalog
      SourceError        ICE-4nn  what has arrived cannot be taken in
      EngineError        ICE-5nn  Spark, Java, jars
      CheckError         ICE-6nn  a check did not hold, or could not be evaluated
      RunError           ICE-7nn  a run was stopped, overtaken or cleared
      CommandError       ICE-8nn  a command was asked for something that is not there

An error answers three questions: what happened, where, and what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class IcefieldError(Exception):
    """The root of everything icefield raises on purpose."""

    code: ClassVar[str] = "ICE-000"

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [f"{self.code} {self.what}"]
        if self.where:
            parts.append(f"  where: {self.where}")
        if self.remedy:
            parts.append(f"  next:  {self.remedy}")
        return "\n".join(parts)


class DeclarationError(IcefieldError):
    """What an author wrote cannot mean anything; found while the project loads."""

    code = "ICE-100"


class InvalidName(DeclarationError):
    """A table or column name that is reserved or not of the form icefield can keep."""

    code = "ICE-101"


class InvalidOption(DeclarationError):
    """An argument of a declaration has a value outside of what it may be."""

    code = "ICE-102"


class InvalidSchema(DeclarationError):
    """Column text (DDL) or a partition transform that cannot be read."""

    code = "ICE-103"


class InvalidQuery(DeclarationError):
    """A query given to `sql` that cannot be found or whose braces cannot be read."""

    code = "ICE-104"


class InvalidFunction(DeclarationError):
    """A `table(...)` applied to nothing, or to something that cannot be a table's function."""

    code = "ICE-105"


class UnknownInput(DeclarationError):
    """A parameter or an entry of `inputs=` that leads to no table, or to several."""

    code = "ICE-106"


class CyclicTables(DeclarationError):
    """Tables that read one another in a circle, or a table that reads itself."""

    code = "ICE-107"


class DuplicateTable(DeclarationError):
    """Two declarations of one table."""

    code = "ICE-108"


class UnknownColumn(DeclarationError):
    """A check, partition or volatile column that the table is known not to have."""

    code = "ICE-109"


class UnknownTable(DeclarationError):
    """A check that compares with a table nobody declares."""

    code = "ICE-110"


class ColumnAtLoad(DeclarationError):
    """A Spark Column, or a UDF with its type as text, made while the project loads, when there is no Spark yet."""

    code = "ICE-111"


class InvalidSetting(DeclarationError):
    """A `setting` whose value has another type than its default, or that is read too late."""

    code = "ICE-112"


class BadFunction(DeclarationError):
    """A table's function does not fit the columns of its inputs, or raises an error."""

    code = "ICE-120"


class BadPredicate(DeclarationError):
    """The SQL of a check does not fit the table's columns."""

    code = "ICE-121"


class ContractBroken(DeclarationError):
    """A function returns other columns than `columns=` promises."""

    code = "ICE-122"


class OriginLost(DeclarationError):
    """It is not known where rows came from, and a check or a decision about quarantine needs to know."""

    code = "ICE-123"


class KeyUnknown(DeclarationError):
    """An input of a keyed table whose rows do not tell their key."""

    code = "ICE-124"


class PromiseBroken(DeclarationError):
    """A function that does not do what its refresh kind promises."""

    code = "ICE-125"


class NotExact(DeclarationError):
    """An incremental table whose function gives other values each time it is evaluated."""

    code = "ICE-126"


class ProjectError(IcefieldError):
    """The project folder or its settings."""

    code = "ICE-200"


class NoProject(ProjectError):
    """No icefield.toml here or in any folder above."""

    code = "ICE-201"


class InvalidConfig(ProjectError):
    """icefield.toml says something that icefield does not know or cannot use."""

    code = "ICE-202"


class UnknownProfile(ProjectError):
    """A profile was asked for that icefield.toml does not have."""

    code = "ICE-203"


class ImportFailed(ProjectError):
    """A Python file of the project raised an error while it was imported."""

    code = "ICE-204"


class ProjectChanged(ProjectError):
    """A file of the project was edited between planning and running."""

    code = "ICE-205"


class NoTables(ProjectError):
    """The project declares no tables."""

    code = "ICE-206"


class LakeError(IcefieldError):
    """The warehouse and its catalog."""

    code = "ICE-300"


class LakeMoved(LakeError):
    """The lake's folder is not where it was made; its metadata names files by their full path."""

    code = "ICE-301"

    def __init__(self, *, made_at: str, now_at: str) -> None:
        super().__init__(
            f"this lake was made at {made_at} and is now at {now_at}; its tables name their files by full path",
            where=now_at,
            remedy="move the folder back, or run `icefield lake relocate` to rewrite the paths",
        )


class LakeNotWritable(LakeError):
    """The lake's folder cannot be written to."""

    code = "ICE-302"

    def __init__(self, folder: object, error: Exception) -> None:
        super().__init__(
            f"cannot write to the lake's folder: {getattr(error, 'strerror', None) or error}",
            where=str(folder),
            remedy="give this user write permission there, or point `lake` in icefield.toml at another folder",
        )


class CatalogBusy(LakeError):
    """Another process held the catalog's lock for too long."""

    code = "ICE-303"

    def __init__(self, path: object, seconds: int) -> None:
        super().__init__(
            f"the catalog was locked by another process for more than {seconds} s",
            where=str(path),
            remedy="see which process has the file open; no transaction of icefield takes more than a moment",
        )


class NoLake(LakeError):
    """There is no lake yet: nothing was published so far."""

    code = "ICE-304"

    def __init__(self, folder: object) -> None:
        super().__init__("there is no lake here yet", where=str(folder), remedy="publish a first run: `icefield run`")


class UnknownRun(LakeError):
    """A run was named that this lake does not have."""

    code = "ICE-305"


class SchemaChanged(LakeError):
    """A table's columns changed in a way that the rows already stored cannot follow."""

    code = "ICE-306"


class LakeDamaged(LakeError):
    """A file that the catalog names is gone or cannot be read."""

    code = "ICE-307"


class NothingPublished(LakeError):
    """The lake was asked for as it was before its first publish."""

    code = "ICE-308"


class SourceError(IcefieldError):
    """What has arrived cannot be taken in."""

    code = "ICE-400"


class LandingMissing(SourceError):
    """The folder that a source reads from does not exist."""

    code = "ICE-401"


class WrongHeader(SourceError):
    """A file's header does not name the declared columns."""

    code = "ICE-402"


class FileChanged(SourceError):
    """A file that was taken in has other content now, or changed while it was read."""

    code = "ICE-403"


class FileMissing(SourceError):
    """A rebuild needs files that are no longer there."""

    code = "ICE-404"


class FileUnreadable(SourceError):
    """A file cannot be read at all."""

    code = "ICE-405"


class AllFilesGone(SourceError):
    """Not one file of a source that withdraws the rows of deleted files is there."""

    code = "ICE-406"


class EngineError(IcefieldError):
    """Spark, Java, jars."""

    code = "ICE-500"


class JavaNotFound(EngineError):
    """No Java 17 or 21 on this machine."""

    code = "ICE-501"


class JarError(EngineError):
    """A jar that Spark needs cannot be had, or is not the one that was pinned."""

    code = "ICE-502"


class SessionError(EngineError):
    """Spark did not start, or another Spark session is in the way."""

    code = "ICE-503"


class MasterNotLocal(EngineError):
    """Spark's workers are elsewhere, and the lake is a folder of this machine."""

    code = "ICE-504"

    def __init__(self, master: str, lake: object, profile: str) -> None:
        super().__init__(
            f"spark.master = {master!r} runs on other machines, and the lake is the folder {lake}: rows could be"
            " committed that nobody can read",
            where=f"[profile.{profile}.spark] of icefield.toml",
            remedy=f'use spark.master = "local[*]"; if every worker sees that folder under the same path, write'
            f" shared = true in [profile.{profile}]",
        )


class CheckError(IcefieldError):
    """A check did not hold, or could not be evaluated."""

    code = "ICE-600"


class CheckFailed(CheckError):
    """A check with `otherwise="fail"` did not hold; nothing was published."""

    code = "ICE-601"

    def __init__(self, what: str, *, where: str = "", remedy: str = "", rows: Sequence[str] = ()) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.rows = tuple(rows)

    def __str__(self) -> str:
        first, *rest = super().__str__().splitlines()
        return "\n".join([first, *(f"  row:   {row}" for row in self.rows), *rest])


class RowsLost(CheckError):
    """Rows that were read are neither in the table nor in quarantine: the function gives other rows each time."""

    code = "ICE-603"


class RunError(IcefieldError):
    """A run was stopped, overtaken or cleared."""

    code = "ICE-700"


def few(names: Sequence[str], most: int = 3) -> str:
    """Some names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class Overtaken(RunError):
    """A table that the run wrote was published by someone else since the run began."""

    code = "ICE-701"

    def __init__(self, tables: list[str]) -> None:
        super().__init__(
            f"another run published {few(tables)} first",
            remedy="nothing was published by this run; run again, it starts from the new state",
        )
        self.tables = tuple(tables)


class RunCleared(RunError):
    """The run's branch was cleared away as dead while it was paused; it may not publish any more."""

    code = "ICE-702"

    def __init__(self, run: str) -> None:
        super().__init__(
            f"run {run} was cleared as dead while it was not answering, so it cannot publish",
            remedy="run again: what it would have taken in is still waiting",
        )


class TableFailed(RunError):
    """The function of a table, or writing what it gave, failed."""

    code = "ICE-703"


class Interrupted(RunError):
    """The run was stopped from outside; the lake is as it was."""

    code = "ICE-704"


class DiskFull(RunError):
    """The disk filled up while the run was writing."""

    code = "ICE-705"


class PlanRefused(RunError):
    """Several tables cannot be made as they are declared, or from what has arrived."""

    code = "ICE-706"

    def __init__(self, problems: Sequence[IcefieldError]) -> None:
        super().__init__(f"{len(problems)} tables cannot be made", remedy="mend each of them; nothing was changed")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *map(str, self.problems)])


class CommandError(IcefieldError):
    """A command was asked for something that is not there."""

    code = "ICE-800"


class UnknownSelector(CommandError):
    """A selector that names no table, tag or schema of the project."""

    code = "ICE-801"


class QueryFailed(CommandError):
    """A query that DuckDB cannot carry out."""

    code = "ICE-802"


class QueryRefused(CommandError):
    """Something given to `icefield sql` that is not one query over the lake."""

    code = "ICE-803"


class NoSuchTable(CommandError):
    """A table was asked for that the lake does not have."""

    code = "ICE-804"


class MissingPackage(CommandError):
    """An optional package that the call needs is not installed."""

    code = "ICE-805"


class UnknownFormat(CommandError):
    """A result is to be written to a kind of file that icefield does not write."""

    code = "ICE-806"


class FolderInUse(CommandError):
    """A project is to be made in a folder that already holds files."""

    code = "ICE-807"


class UnknownTemplate(CommandError):
    """A reference project was asked for that icefield does not carry."""

    code = "ICE-808"


class WrongUsage(CommandError):
    """Options that cannot be given together, or a text where none can be read."""

    code = "ICE-809"


class NotWritten(CommandError):
    """A file or folder that a command is to make cannot be written."""

    code = "ICE-810"

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(
            f"{path} cannot be written: {error.strerror or error}",
            where=str(error.filename or path),
            remedy="name a folder that exists and that this user may write to",
        )
