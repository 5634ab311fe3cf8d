"""icefield.toml: where the project's tables are declared, and its profiles."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidConfig, MasterNotLocal, NoProject, UnknownProfile
from icefield.project.outlets import Notify, OpenLineage, notify, openlineage
from icefield.project.sections import FILE as FILE
from icefield.project.sections import duration as _duration
from icefield.project.sections import expanded as _expanded
from icefield.project.sections import only as _only
from icefield.project.sections import table as _table
from icefield.project.sections import text as _text
from icefield.project.sections import wrong as _wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

PROFILE_VARIABLE = "ICEFIELD_PROFILE"
DEFAULT_PROFILE = "local"
NOT_TABLES = ("test_*.py", "*_test.py", "conftest.py", "setup.py")
TOP_KEYS = ("project", "profile", "dagster", "notify")
PROJECT_KEYS = ("name", "tables", "default_profile")
PROFILE_KEYS = ("lake", "shared", "keep_warm", "spark", "settings", "kafka", "jdbc", "upkeep", "openlineage", "notify")
UPKEEP_KEYS = ("keep", "grace")
KAFKA_KEYS = ("brokers", "recording", "options")
JDBC_KEYS = ("url", "user", "password", "driver", "jar")
#: librdkafka's settings that icefield decides itself: what is read, and that nothing is committed to Kafka.
_OWN_OPTIONS = ("auto.offset.reset", "enable.auto.commit", "enable.partition.eof", "group.id", "isolation.level")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """Where topics are: at brokers, or in a folder with recorded messages. Options are librdkafka's, some secret."""

    brokers: str = ""
    recording: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: What is wrong, and the remedy, where something that the settings refer to is not there.
    missing: tuple[str, str] | None = None

    def require_settings(self) -> None:
        """Refuses settings with something missing. Whoever only reads the lake needs no password of a broker."""
        if self.missing is not None:
            raise _wrong(*self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where a database is; its url may have secrets in it, as its password is one."""

    url: str = field(repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    driver: str = ""
    jars: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    """How long old versions stay readable, and how long files stay that no version names any more."""

    keep_seconds: float = 7 * 86_400
    grace_seconds: float = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One set of settings: where the lake is, which Spark runs it, what `setting` gives."""

    name: str
    lake: Path
    #: Folders that every worker of Spark's sees under the same path, where workers are on other machines.
    shared: tuple[Path, ...] = ()
    #: How many seconds an engine in the background keeps Spark for the next command; 0: there is none.
    keep_warm: float = 0.0
    spark: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    kafka: Kafka = field(default_factory=Kafka)
    jdbc: Mapping[str, Database] = field(default_factory=dict)
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    openlineage: OpenLineage | None = None
    notify: Notify | None = None

    @property
    def is_local(self) -> bool:
        """Whether Spark's workers run on this machine, as this user."""
        return _LOCAL.fullmatch(self.spark.get("spark.master", "local[*]")) is not None

    def workers_see(self, place: Path) -> bool:
        """Whether Spark's workers see a file or a folder of this machine under the same path."""
        return self.is_local or any(place.is_relative_to(folder) for folder in self.shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What icefield.toml says, with one profile chosen."""

    root: Path
    name: str
    tables: tuple[str, ...]
    profile: Profile
    #: What `[dagster]` says; read by its adapter.
    dagster: Mapping[str, Any] = field(default_factory=dict)


def require_reachable_lake(profile: Profile) -> None:
    """Refuses workers that may not see the lake's folder: what they write there would be lost to everyone else."""
    if not profile.workers_see(profile.lake):
        raise MasterNotLocal(profile.spark["spark.master"], profile.lake, profile.name)


_LOCAL = re.compile(r"local(\[[^\]]*\])?")


def find_project(path: Path | str = ".") -> Path:
    """The project's folder: the given one or the nearest above it that holds an icefield.toml."""
    start = Path(path).expanduser().absolute()
    if start.name == FILE:
        start = start.parent
    if not start.exists():
        raise NoProject(f"the folder {path} does not exist", remedy="check the path (-p on the command line)")
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            return folder
    raise NoProject(
        f"there is no {FILE} in {start} or in any folder above it",
        remedy="change to a project folder, name one with -p DIR, or create one: icefield init DIR",
    )


def read_config(root: Path, profile: str | None = None) -> Config:
    """Read and check icefield.toml; the profile is the given one, else ICEFIELD_PROFILE, else the file's default."""
    file = root / FILE
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise InvalidConfig(f"{FILE} is not valid TOML: {problem}", where=FILE, remedy="fix that line") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidConfig(f"{FILE} cannot be read: {problem}", where=str(file), remedy="check the file") from None
    _only(content, TOP_KEYS, "")
    project = _table(content, "project", "[project]")
    _only(project, PROJECT_KEYS, "[project]")
    profiles = _table(content, "profile", "[profile.NAME]")
    chosen = profile or os.environ.get(PROFILE_VARIABLE) or _text(project, "default_profile", DEFAULT_PROFILE)
    return Config(
        root=root,
        name=_text(project, "name", root.name),
        tables=_patterns(project.get("tables", ["*.py"])),
        profile=_profile(root, chosen, profiles, _table(content, "notify", "[notify]")),
        dagster=_table(content, "dagster", "[dagster]"),
    )


def table_files(config: Config) -> tuple[Path, ...]:
    """The files that declare tables, in the order of the patterns, each once."""
    found: dict[Path, None] = {}
    for pattern in config.tables:
        matches = sorted(path for path in config.root.glob(pattern) if path.is_file())
        if not any(sign in pattern for sign in "*?[") and not matches:
            near = did_you_mean(pattern, (p.name for p in config.root.glob("*.py")), all_of_them="Python files here")
            raise _wrong(f"tables lists {pattern}, which does not exist", near)
        for path in matches:
            if pattern == path.name or not any(path.match(other) for other in NOT_TABLES):
                found[path] = None
    return tuple(found)


def _profile(root: Path, name: str, profiles: Mapping[str, Any], everywhere: Mapping[str, Any]) -> Profile:
    if name not in profiles:
        if name != DEFAULT_PROFILE or profiles:
            raise UnknownProfile(
                f"{FILE} has no profile `{name}`",
                where=FILE,
                remedy=did_you_mean(name, profiles or [DEFAULT_PROFILE], all_of_them="profiles"),
            )
        return Profile(name=name, lake=root / "lake", notify=notify(root, everywhere, {}, ""))
    section = f"[profile.{name}]"
    told = _table(profiles, name, section)
    _only(told, PROFILE_KEYS, section)
    now = {key: value for key, value in told.items() if key not in ("kafka", "notify")}  # these may miss what they name
    content = _expanded(now, section, root)
    lake = _folder(root, _text(content, "lake", "lake", section))
    spark = _table(content, "spark", f"[profile.{name}.spark]")
    return Profile(
        name=name,
        lake=lake,
        shared=_shared(root, lake, content.get("shared", False), section),
        keep_warm=_duration(content["keep_warm"], f"{section} keep_warm") if "keep_warm" in content else 0.0,
        spark={key: _spark_value(key, value, name) for key, value in sorted(_flat(spark).items())},
        settings=_table(content, "settings", f"[profile.{name}.settings]"),
        kafka=_kafka(root, _table(told, "kafka", f"[profile.{name}.kafka]"), f"[profile.{name}.kafka]"),
        jdbc=_databases(root, _table(content, "jdbc", f"[profile.{name}.jdbc.NAME]"), f"profile.{name}.jdbc"),
        upkeep=_upkeep(_table(content, "upkeep", f"[profile.{name}.upkeep]"), f"[profile.{name}.upkeep]"),
        openlineage=openlineage(root, content, f"[profile.{name}.openlineage]"),
        notify=notify(root, everywhere, told, f"[profile.{name}.notify]"),
    )


def _folder(root: Path, told: str) -> Path:
    return Path(os.path.normpath(root / Path(told).expanduser()))


def _shared(root: Path, lake: Path, told: object, section: str) -> tuple[Path, ...]:
    """Folders that workers see: the lake's (`true`), or those of a list."""
    if isinstance(told, bool):
        return (lake,) if told else ()
    if isinstance(told, list) and all(isinstance(one, str) and one for one in told):
        return tuple(_folder(root, one) for one in told)
    raise _wrong(
        f"{section} shared = {told!r} is neither true, false nor a list of folders",
        'write shared = true, or shared = ["/mnt/lake", "/mnt/landing"]',
    )


def _kafka(root: Path, content: Mapping[str, Any], section: str) -> Kafka:
    _only(content, KAFKA_KEYS, section)
    try:
        content = _expanded(content, section, root)
    except InvalidConfig as problem:
        return Kafka(missing=(problem.what, problem.remedy))
    if "brokers" in content and "recording" in content:
        raise _wrong(f"{section} has both brokers and recording", "keep one of the two, or put them in two profiles")
    options = _flat(_table(content, "options", f"{section[:-1]}.options]"))
    for key, value in options.items():
        if key in _OWN_OPTIONS or not isinstance(value, str | int | float):  # the value may be a secret
            told = "is decided by icefield" if key in _OWN_OPTIONS else "is neither a string nor a number"
            raise _wrong(f"{section[:-1]}.options] {key} {told}", "remove it, or write a setting of librdkafka")
    recording = _text(content, "recording", "", section) if "recording" in content else ""
    return Kafka(
        brokers=_text(content, "brokers", "", section) if "brokers" in content else "",
        recording=Path(os.path.normpath(root / Path(recording).expanduser())) if recording else None,
        options={key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()},
    )


def _databases(root: Path, content: Mapping[str, Any], place: str) -> dict[str, Database]:
    found = {}
    for name, database in content.items():
        section = f"[{place}.{name}]"
        if not isinstance(database, dict):  # the value may be a secret
            raise _wrong(f"[{place}] {name} is not a section", f"write [{place}.default] and `{name}` below it")
        _only(database, JDBC_KEYS, section)
        for key, value in database.items():
            if key != "jar" and (not isinstance(value, str) or (key == "url" and not value.startswith("jdbc:"))):
                told = 'does not begin with "jdbc:"' if isinstance(value, str) else "is not a string"
                raise _wrong(f"{section} {key} {told}", 'write url = "jdbc:postgresql://host:5432/database"')
        if "url" not in database:
            raise _wrong(f"{section} has no url", 'write url = "jdbc:postgresql://host:5432/database"')
        jars = [_text({"jar": jar}, "jar", "", section) for jar in _listed(database.get("jar", []))]
        found[name] = Database(
            **{key: value for key, value in database.items() if key != "jar"},
            jars=tuple(Path(os.path.normpath(root / Path(jar).expanduser())) for jar in jars),
        )
    return found


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _upkeep(content: Mapping[str, Any], section: str) -> UpkeepSettings:
    _only(content, UPKEEP_KEYS, section)
    found = {f"{key}_seconds": _duration(value, f"{section} {key}") for key, value in content.items()}
    return UpkeepSettings(**found)


def _flat(spark: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`spark.driver.memory = ...` without quotes is nested tables in TOML; authors mean the dotted name."""
    found: dict[str, Any] = {}
    for key, value in spark.items():
        found.update(_flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value})
    return found


def _spark_value(key: str, value: object, profile: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise _wrong(f"[profile.{profile}.spark] {key} = {value!r} is not valid", "write a string, a number, true or false")


def _patterns(value: object) -> tuple[str, ...]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise _wrong(
            f"[project] tables = {value!r} is not a list of files", 'write tables = ["bronze.py", "silver.py"]'
        )
    return tuple(patterns)
