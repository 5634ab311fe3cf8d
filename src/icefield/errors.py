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

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        parts = [f"{self.code} {self.what}"]
        if self.where:
            parts.append(f"  where: {self.where}")
        if self.remedy:
            parts.append(f"  next:  {self.remedy}")
        return "\n".join(parts)


def _restored(kind: type[IcefieldError], args: tuple[object, ...], state: dict[str, object]) -> IcefieldError:
    """An error of another process: as it was there, whatever arguments its kind takes."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class DeclarationError(IcefieldError):
    """A declaration is invalid; usually found while the project loads."""

    code = "ICE-100"


class InvalidName(DeclarationError):
    """A table or column name that is reserved or has an invalid form."""

    code = "ICE-101"


class InvalidOption(DeclarationError):
    """An argument of a declaration has an invalid value."""

    code = "ICE-102"


class InvalidSchema(DeclarationError):
    """A column definition (DDL) or a partition transform that cannot be parsed."""

    code = "ICE-103"


class InvalidQuery(DeclarationError):
    """A query passed to `sql` that cannot be found or whose braces cannot be parsed."""

    code = "ICE-104"


class InvalidFunction(DeclarationError):
    """A `table(...)` that is not applied to a function, or to something that cannot be a table's function."""

    code = "ICE-105"


class UnknownInput(DeclarationError):
    """A parameter or an entry in `inputs=` that matches no table, or more than one."""

    code = "ICE-106"


class CyclicTables(DeclarationError):
    """Tables that read each other in a cycle, or a table that reads itself."""

    code = "ICE-107"


class DuplicateTable(DeclarationError):
    """Two declarations of the same table."""

    code = "ICE-108"


class UnknownColumn(DeclarationError):
    """A check, partition or `volatile=` refers to a column that the table does not have."""

    code = "ICE-109"


class UnknownTable(DeclarationError):
    """A check refers to a table that is not declared."""

    code = "ICE-110"


class ColumnAtLoad(DeclarationError):
    """A Spark Column, or a UDF with its type as a string, is created while the project loads, before Spark starts."""

    code = "ICE-111"


class InvalidSetting(DeclarationError):
    """A `setting` whose value has a different type from its default, or that is read too late."""

    code = "ICE-112"


class BadFunction(DeclarationError):
    """A table's function does not match its inputs' columns, returns duplicate column names, or raises an error."""

    code = "ICE-120"


class BadPredicate(DeclarationError):
    """The SQL of a check does not match the table's columns."""

    code = "ICE-121"


class ContractBroken(DeclarationError):
    """A function returns columns other than those declared in `columns=`."""

    code = "ICE-122"


class OriginLost(DeclarationError):
    """The origin of rows is unknown, but a check or a decision about quarantined rows needs it."""

    code = "ICE-123"


class KeyUnknown(DeclarationError):
    """The key of a keyed table cannot be determined for the rows of an input."""

    code = "ICE-124"


class PromiseBroken(DeclarationError):
    """A function does not keep the promise of its refresh kind."""

    code = "ICE-125"


class NotExact(DeclarationError):
    """The function of an incremental table returns different values each time it is evaluated."""

    code = "ICE-126"


class InvalidCapture(DeclarationError):
    """A schema, key or column that the functions of `icefield.cdc` cannot work with."""

    code = "ICE-180"


class InvalidVault(DeclarationError):
    """A hub, link, satellite or point-in-time table whose parts do not fit together."""

    code = "ICE-181"


class DbtNotCompiled(DeclarationError):
    """A dbt project that was never compiled for icefield, or that changed since."""

    code = "ICE-190"


class DbtNotTaken(DeclarationError):
    """A part of a dbt project that icefield cannot take, or a name that the dbt project does not have."""

    code = "ICE-191"


class ProjectError(IcefieldError):
    """A problem with the project folder or its settings."""

    code = "ICE-200"


class NoProject(ProjectError):
    """There is no icefield.toml in this folder or in any folder above it."""

    code = "ICE-201"


class InvalidConfig(ProjectError):
    """icefield.toml contains a key or value that icefield does not recognise or cannot use."""

    code = "ICE-202"


class UnknownProfile(ProjectError):
    """The requested profile does not exist in icefield.toml."""

    code = "ICE-203"


class ImportFailed(ProjectError):
    """A Python file in the project raised an error when it was imported."""

    code = "ICE-204"


class ProjectChanged(ProjectError):
    """A file in the project was edited between planning and running."""

    code = "ICE-205"


class NoTables(ProjectError):
    """The project declares no tables."""

    code = "ICE-206"


class OrchestrationError(ProjectError):
    """An orchestrator is to run tables, partitions or jobs that the project does not have, or in parts."""

    code = "ICE-207"


class LakeError(IcefieldError):
    """A problem with the warehouse or its catalog."""

    code = "ICE-300"


class LakeMoved(LakeError):
    """The lake's folder is not where it was created; its metadata refers to files by absolute path."""

    code = "ICE-301"

    def __init__(self, *, made_at: str, now_at: str) -> None:
        super().__init__(
            f"this lake was created at {made_at} but is now at {now_at}; its tables refer to files by absolute path",
            where=now_at,
            remedy="move the folder back, or run `icefield lake relocate` to rewrite the paths",
        )


class LakeNotWritable(LakeError):
    """The lake's folder is not writable."""

    code = "ICE-302"

    def __init__(self, folder: object, error: Exception) -> None:
        super().__init__(
            f"cannot write to the lake's folder: {getattr(error, 'strerror', None) or error}",
            where=str(folder),
            remedy="give this user write permission, or point `lake` in icefield.toml to another folder",
        )


class CatalogBusy(LakeError):
    """Another process held the lock on the catalog for too long."""

    code = "ICE-303"

    def __init__(self, path: object, seconds: int) -> None:
        super().__init__(
            f"the catalog was locked by another process for more than {seconds} s",
            where=str(path),
            remedy="find out which process has the file open; icefield's own transactions take only a moment",
        )


class NoLake(LakeError):
    """There is no lake yet: nothing has been published."""

    code = "ICE-304"

    def __init__(self, folder: object) -> None:
        super().__init__("there is no lake here yet", where=str(folder), remedy="create it with a run: `icefield run`")


class UnknownRun(LakeError):
    """The requested run does not exist in this lake."""

    code = "ICE-305"


class SchemaChanged(LakeError):
    """A table's columns changed in a way that is incompatible with the stored rows."""

    code = "ICE-306"


class LakeDamaged(LakeError):
    """A file that the catalog refers to is missing or cannot be read."""

    code = "ICE-307"


class NothingPublished(LakeError):
    """The lake was requested as of a time before its first publish."""

    code = "ICE-308"


class UnknownVersion(LakeError):
    """The requested version of a table does not exist, or is not unique."""

    code = "ICE-309"


class SourceError(IcefieldError):
    """Files that have arrived cannot be ingested."""

    code = "ICE-400"


class LandingMissing(SourceError):
    """The folder that a source reads from does not exist."""

    code = "ICE-401"


class WrongHeader(SourceError):
    """A file's header does not match the declared columns."""

    code = "ICE-402"


class FileChanged(SourceError):
    """The content of an ingested file changed, or a file changed while it was being read."""

    code = "ICE-403"


class FileMissing(SourceError):
    """A rebuild needs files that no longer exist."""

    code = "ICE-404"


class FileUnreadable(SourceError):
    """A file or folder cannot be read."""

    code = "ICE-405"


class AllFilesGone(SourceError):
    """All files of a source with `deleted="withdraw"` are missing."""

    code = "ICE-406"


class UnknownBatch(SourceError):
    """A batch was asked for that no source has."""

    code = "ICE-407"


class NoBroker(SourceError):
    """No broker of Kafka answers, or the profile names none."""

    code = "ICE-410"


class BrokerRefused(SourceError):
    """Kafka refuses what is asked of it: the password is wrong, or access is denied."""

    code = "ICE-411"


class NoTopic(SourceError):
    """A topic does not exist."""

    code = "ICE-412"


class MessagesLost(SourceError):
    """Kafka no longer has messages that are needed."""

    code = "ICE-413"


class RecordingUnreadable(SourceError):
    """A recording of a topic cannot be read."""

    code = "ICE-414"


class NoDatabase(SourceError):
    """No database is named for a connection, or it does not answer."""

    code = "ICE-420"


class DatabaseRefused(SourceError):
    """A database refuses the user, the password, or to show a relation."""

    code = "ICE-421"


class NoRelation(SourceError):
    """A table, view or column that a source names is not in the database."""

    code = "ICE-422"


class WrongCursor(SourceError):
    """The cursor column of a relation has values by which rows cannot be followed."""

    code = "ICE-423"


class RowsChanged(SourceError):
    """Rows of a relation are others than those that were taken in, or changed while they were read."""

    code = "ICE-424"


class NoDriver(SourceError):
    """The JDBC driver of a database is missing."""

    code = "ICE-425"


class EngineError(IcefieldError):
    """A problem with Spark, Java or the jars."""

    code = "ICE-500"


class JavaNotFound(EngineError):
    """Java 17 or 21 was not found on this machine."""

    code = "ICE-501"


class JarError(EngineError):
    """A jar that Spark needs is unavailable, or does not have the pinned checksum."""

    code = "ICE-502"


class SessionError(EngineError):
    """Spark did not start, or this process already has a conflicting Spark session."""

    code = "ICE-503"


class MasterNotLocal(EngineError):
    """Spark's workers run on other machines, but the lake is a local folder."""

    code = "ICE-504"

    def __init__(self, master: str, lake: object, profile: str) -> None:
        super().__init__(
            f"spark.master = {master!r} runs on other machines, but the lake is the local folder {lake}: rows could"
            " be committed that nobody can read",
            where=f"[profile.{profile}.spark] in icefield.toml",
            remedy=f'use spark.master = "local[*]", or, if every worker sees that folder under the same path, set'
            f" shared = true in [profile.{profile}]",
        )


class ScratchLost(EngineError):
    """Rows that Spark's workers wrote are not there for the driver."""

    code = "ICE-505"

    def __init__(self, place: str, written: int, found: int) -> None:
        super().__init__(
            f"Spark's workers wrote {written} rows of the run, but the driver finds {found} of them: they do not see"
            " the same folder",
            where=place,
            remedy="mount the lake's folder under the same path on the driver and on every worker, or use"
            ' spark.master = "local[*]"',
        )


class CheckError(IcefieldError):
    """A check failed or could not be evaluated."""

    code = "ICE-600"


class CheckFailed(CheckError):
    """A check with `otherwise="fail"` failed, so its table was not published."""

    code = "ICE-601"

    def __init__(self, what: str, *, where: str = "", remedy: str = "", rows: Sequence[str] = ()) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.rows = tuple(rows)

    def __str__(self) -> str:
        first, *rest = super().__str__().splitlines()
        return "\n".join([first, *(f"  row:   {row}" for row in self.rows), *rest])


class RowsLost(CheckError):
    """Rows that were read are neither in the table nor in quarantine: the function returns different rows each time."""

    code = "ICE-603"


class UpkeepError(IcefieldError):
    """Upkeep of a lake failed."""

    code = "ICE-650"


class CompactionDiffers(UpkeepError):
    """A table had another number of rows once its small files were written together, so that was not published."""

    code = "ICE-651"

    def __init__(self, table: str, before: int, after: int) -> None:
        super().__init__(
            f"{table} has {before:,} rows, and had {after:,} once its small files were written together",
            where=table,
            remedy="nothing was published and the table is unchanged; report this with the output of"
            f" `icefield table tree {table}`",
        )


class RunError(IcefieldError):
    """A run failed, was interrupted or could not publish."""

    code = "ICE-700"


def few(names: Sequence[str], most: int = 3) -> str:
    """Some names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class Overtaken(RunError):
    """Another run published a table that this run wrote, after this run had started."""

    code = "ICE-701"

    def __init__(self, tables: list[str]) -> None:
        super().__init__(
            f"another run published {few(tables)} first",
            remedy="this run published nothing; run again to start from the new state",
        )
        self.tables = tuple(tables)


class RunCleared(RunError):
    """The run was considered dead while it was paused, and its branch was cleared; it can no longer publish."""

    code = "ICE-702"

    def __init__(self, run: str) -> None:
        super().__init__(
            f"run {run} was cleared as dead while it was not responding, so it can no longer publish",
            remedy="run again: the data it would have ingested is still pending",
        )


class TableFailed(RunError):
    """A table's function, or writing its result, failed."""

    code = "ICE-703"


class Interrupted(RunError):
    """The run was interrupted; the lake is unchanged."""

    code = "ICE-704"


class DiskFull(RunError):
    """The disk ran out of space while the run was writing."""

    code = "ICE-705"


class PlanRefused(RunError):
    """Several tables cannot be built as declared, or from the files that have arrived."""

    code = "ICE-706"

    def __init__(self, problems: Sequence[IcefieldError]) -> None:
        super().__init__(f"{len(problems)} tables cannot be built", remedy="fix each of them; nothing was changed")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *map(str, self.problems)])


class EngineLost(RunError):
    """The engine that `keep_warm` keeps in the background was killed while it did the work of a command."""

    code = "ICE-707"

    def __init__(self, log: str) -> None:
        super().__init__(
            "the engine in the background ended before its work was done",
            where=log,
            remedy="run the command again: the lake is as it was, or has everything that the run was to publish",
        )


class CommandError(IcefieldError):
    """A command was used incorrectly or asked for something that does not exist."""

    code = "ICE-800"


class UnknownSelector(CommandError):
    """A selector matches no table, tag or schema in the project."""

    code = "ICE-801"


class QueryFailed(CommandError):
    """DuckDB cannot execute a query."""

    code = "ICE-802"


class QueryRefused(CommandError):
    """The text passed to `icefield sql` is not a single query over the lake."""

    code = "ICE-803"


class NoSuchTable(CommandError):
    """The requested table does not exist in the lake."""

    code = "ICE-804"


class MissingPackage(CommandError):
    """An optional package that a call needs is not installed."""

    code = "ICE-805"


class UnknownFormat(CommandError):
    """A result cannot be written in the requested file format."""

    code = "ICE-806"


class FolderInUse(CommandError):
    """A project cannot be created in a folder that already contains files."""

    code = "ICE-807"


class UnknownTemplate(CommandError):
    """The requested reference project does not exist."""

    code = "ICE-808"


class WrongUsage(CommandError):
    """Options that cannot be combined, or an option value that is empty or cannot be parsed."""

    code = "ICE-809"


class NotWritten(CommandError):
    """A file or folder that a command should create cannot be written."""

    code = "ICE-810"

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(
            f"{path} cannot be written: {error.strerror or error}",
            where=str(error.filename or path),
            remedy="choose a folder that exists and that this user can write to",
        )


class NoIcefieldCommand(CommandError):
    """An orchestrator finds no `icefield` command, or cannot start the one that it was given."""

    code = "ICE-820"


class CalledCommandFailed(CommandError):
    """An `icefield` command that an orchestrator called has failed; the message contains its own."""

    code = "ICE-821"


class DbtFailed(CommandError):
    """dbt is not installed, or cannot compile a project."""

    code = "ICE-830"


class NotNotified(CommandError):
    """A test message of `icefield notify` was not accepted."""

    code = "ICE-840"
