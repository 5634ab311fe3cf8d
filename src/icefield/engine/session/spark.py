"""The one Spark of this process: started fast, quiet on the terminal, gone when Python is gone.

It has a session for each lake and its settings, so that projects of one process share the JVM and nothing else.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.engine.session.class_archive import ArchiveUse, forget_archives, use_archive
from icefield.engine.session.jars import Jar, Progress, cache_folder, ensure_jars
from icefield.engine.session.java import find_java
from icefield.engine.session.jvm import Effort, Jvm, class_path, is_local, start_jvm
from icefield.errors import SessionError

if TYPE_CHECKING:
    from py4j.clientserver import ClientServer
    from py4j.java_gateway import JavaClass
    from pyspark.sql import SparkSession

ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
HEAP = "3g"
# What pyspark.java_gateway.launch_gateway makes known to the gateway
GATEWAY_IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
#: Classes that PySpark looks up, with the member it wants, whenever it uses them: a fifth of all calls to Java.
ASKED_FOR = ("functions", "org.apache.spark.sql.functions", "PythonUtils")


#: What a session is for, and its settings.
_Purpose = tuple[str, frozenset[tuple[str, str]]]
#: So many sessions are kept: of a few projects, each with a few settings.
_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """Spark's first session in this process, what it was started with, and the sessions made of it since."""

    spark: SparkSession
    jvm: Jvm
    conf: Mapping[str, str]
    #: Jars of databases' drivers that its class path has.
    drivers: frozenset[Path] = frozenset()
    #: The one that was asked for last at the end.
    sessions: OrderedDict[_Purpose, SparkSession] = field(default_factory=OrderedDict)


_lock = threading.Lock()
_importing = threading.Lock()
_live: _Live | None = None


def start_session(
    *,
    app: str,
    conf: Mapping[str, str],
    log: Path,
    progress: Progress | None = None,
    effort: Effort = "full",
    drivers: Sequence[Jar | Path] = (),
    scope: str = "",
) -> SparkSession:
    """Start Spark, or hand over a session of the one that runs, with its log sent to this run's file from now on.

    Each `scope` (a lake) has a session of its own for each set of settings: catalogs of one name, settings and jobs to
    cancel of several projects do not meet.
    With less `effort`, Java compiles nothing that would only pay after a while: for a run of some seconds or a minute.
    `drivers` are jars for JDBC, besides those that are always there.
    """
    global _live
    with _lock:
        wanted = _settings(app, conf)
        more = _drivers(drivers, progress)
        if _live is not None and _is_alive(_live):
            _live = _reuse(_live, wanted, log.absolute(), more)
        else:
            if _live is not None:  # its JVM has died: nothing of it can be used, or asked, any more
                _forget_session()
            _live = _start(wanted, log.absolute(), progress, effort, more)
            _live.sessions[_purpose(scope, wanted)] = _live.spark
        return _session_for(_live, scope, wanted)


def _drivers(jars: Sequence[Jar | Path], progress: Progress | None) -> tuple[Path, ...]:
    """The jars of drivers as files; those that are pinned are fetched."""
    pinned = ensure_jars([jar for jar in jars if isinstance(jar, Jar)], progress=progress)
    return (*pinned, *(jar for jar in jars if isinstance(jar, Path)))


def import_pyspark() -> None:
    """Import PySpark, one thread at a time: its modules import one another in a circle, which two at once break."""
    with _importing:
        import pyspark.sql  # noqa: F401 - not at the top of the module, where it would come before the JVM


def stop_session(*, wait: bool = False) -> None:
    """Stop Spark and its JVM; a process that simply exits need not call this."""
    global _live
    with _lock:
        if _live is not None:
            live, _live = _live, None
            if _is_alive(live):
                live.spark.stop()
            _forget_gateway()
            live.jvm.end(wait=wait)


def add_catalog(spark: SparkSession, name: str, *, uri: str, warehouse: str) -> None:
    """Make an Iceberg catalog known to a live session: a SQLite file, or any `jdbc:` address."""
    address = uri if uri.startswith("jdbc:") else f"jdbc:sqlite:{uri}?journal_mode=WAL&busy_timeout=30000"
    prefix = f"spark.sql.catalog.{name}"
    settings = {
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": address,
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.warehouse": warehouse,
        f"{prefix}.cache-enabled": "false",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)


def quoted_for(spark: SparkSession, url: str, name: str) -> str:
    """The name of a column as the database of a JDBC url quotes it."""
    java = spark._jvm
    assert java is not None
    found: str = java.org.apache.spark.sql.jdbc.JdbcDialects.get(url).quoteIdentifier(name)
    return found


def _settings(app: str, conf: Mapping[str, str]) -> dict[str, str]:
    master = conf.get("spark.master", "local[*]")
    settings = {
        "spark.app.name": app,
        "spark.master": master,
        "spark.driver.memory": HEAP,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # of scratch files, which Arrow reads, too
        "spark.sql.adaptive.enabled": "true",
        # Rows of the driver that are part of a plan are computed by tasks, not one by one by the optimiser.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
        # A run has more pieces of generated code than the 100 that Spark keeps: the next one would compile all again.
        "spark.sql.codegen.cache.maxEntries": "2000",
    }
    if is_local(settings):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # 200, Spark's default, is for clusters: with few cores most of a small run would be task starts.
            "spark.sql.shuffle.partitions": str(max(4, 2 * cores())),
        }
    settings |= conf
    extensions = [part for part in settings.get("spark.sql.extensions", "").split(",") if part]
    if ICEBERG_EXTENSIONS not in extensions:
        settings["spark.sql.extensions"] = ",".join([*extensions, ICEBERG_EXTENSIONS])
    return settings


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(
    conf: dict[str, str], log: Path, progress: Progress | None, effort: Effort, drivers: tuple[Path, ...]
) -> _Live:
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True  # every error they print is raised as well
    _refuse_a_foreign_session()
    java = find_java()
    jars = ensure_jars(progress=progress)
    archives = cache_folder() / "classes"
    classes = [*class_path(jars, conf), *drivers]
    asked = conf
    if not is_local(conf):
        listed = [*filter(None, [conf.get("spark.jars")]), *map(str, (*jars, *drivers))]
        conf = conf | {"spark.jars": ",".join(listed)}
    use = use_archive(java, classes, archives)
    jvm = start_jvm(java=java, classes=classes, conf=conf, log=log, archive=use, effort=effort)
    try:
        gateway = _gateway(jvm)
    except SessionError:
        if not use.flags:
            raise
        # The class archive is the one part that is not pinned. If Java starts without it, the archive was at fault.
        jvm = start_jvm(java=java, classes=classes, conf=conf, log=log, archive=ArchiveUse())
        gateway = _gateway(jvm)
        forget_archives(archives)
    return replace(_connect(jvm, gateway, conf), conf=asked, drivers=frozenset(drivers))


def _gateway(jvm: Jvm) -> ClientServer:
    try:
        import_pyspark()
        from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
        from py4j.java_gateway import java_import

        port, secret = jvm.connection()
        gateway = ClientServer(
            java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        gateway.proc = jvm.process
        for name in GATEWAY_IMPORTS:
            java_import(gateway.jvm, name)
        for name in ASKED_FOR:
            setattr(gateway.jvm, name, _Remembered(getattr(gateway.jvm, name)))
    except BaseException:
        jvm.kill()
        raise
    return gateway


class _Remembered:
    """A Java class whose members are asked for once."""

    def __init__(self, java_class: JavaClass) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        setattr(self, name, member)
        return member


def _connect(jvm: Jvm, gateway: ClientServer, conf: Mapping[str, str]) -> _Live:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # Python functions inside Spark run on this very Python, not on whichever python3 comes first on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        SparkContext._ensure_initialized(gateway=gateway)
        spark_conf = SparkConf(_jvm=gateway.jvm)
        for key, value in {"spark.sql.warehouse.dir": str(jvm.scratch / "warehouse"), **conf}.items():
            spark_conf.set(key, value)
        spark = SparkSession(SparkContext(conf=spark_conf, gateway=gateway))
    except BaseException as error:
        jvm.kill()
        _forget_gateway()
        if not isinstance(error, Exception):
            raise
        raise SessionError(
            f"Spark did not start: {_first_line(error)}",
            where=str(jvm.log),
            remedy="check [profile.<name>.spark] in icefield.toml and the log",
        ) from error
    atexit.register(jvm.discard_scratch)
    return _Live(spark=spark, jvm=jvm, conf=conf)


def _refuse_a_foreign_session() -> None:
    # Asked of the modules that are loaded: importing pyspark here would delay the JVM.
    pyspark = sys.modules.get("pyspark")
    context = pyspark.SparkContext._active_spark_context if pyspark else None
    if context is not None:
        raise SessionError(
            "This process already has a Spark session that icefield did not start.",
            where=f"application {context.appName!r}",
            remedy="call .stop() on it first: icefield must start the session with Iceberg's jars and extensions",
        )


def _forget_session() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    with SparkContext._lock:
        SparkContext._active_spark_context = None
    Session._instantiatedSession = None
    _forget_gateway()


def _forget_gateway() -> None:
    from pyspark import SparkContext

    if SparkContext._gateway is not None and SparkContext._active_spark_context is None:
        SparkContext._gateway.close()
        SparkContext._gateway = None
        SparkContext._jvm = None


def _is_alive(live: _Live) -> bool:
    return live.jvm.process.poll() is None and live.spark.sparkContext._jsc is not None


def _reuse(live: _Live, wanted: Mapping[str, str], log: Path, drivers: Sequence[Path]) -> _Live:
    for jar in drivers:
        if jar not in live.drivers:
            raise SessionError(
                f"The Spark session of this process runs without the JDBC driver {jar.name}, which is requested now.",
                remedy="jars cannot be added while Spark runs: use another process, or call stop_session() first",
            )
    for key, value in _changed(live, wanted).items():
        if not live.spark.conf.isModifiable(key):
            raise SessionError(
                f"The Spark session of this process runs with {key} = {live.conf.get(key)!r}, "
                f"but {value!r} is requested now.",
                remedy="this setting cannot change while Spark runs: use another process, or call stop_session() first",
            )
    if log != live.jvm.log:
        _redirect_log(live.spark, log)
    return replace(live, jvm=replace(live.jvm, log=log))


def _changed(live: _Live, wanted: Mapping[str, str]) -> dict[str, str]:
    """Settings that are others than those that Spark was started with."""
    return {key: value for key, value in wanted.items() if live.conf.get(key) != value and key != "spark.app.name"}


def _session_for(live: _Live, scope: str, wanted: Mapping[str, str]) -> SparkSession:
    """The session of a scope with these settings, and none of another's; made where there is none yet."""
    from pyspark.sql import SparkSession as Session

    purpose = _purpose(scope, wanted)
    if (found := live.sessions.get(purpose)) is None:
        found = live.sessions[purpose] = live.spark.newSession()
        for key, value in _changed(live, wanted).items():
            found.conf.set(key, value)
        for key in live.conf.keys() - wanted.keys():
            if found.conf.isModifiable(key):
                found.conf.unset(key)
        while len(live.sessions) > _KEPT:
            live.sessions.popitem(last=False)
    live.sessions.move_to_end(purpose)
    Session._instantiatedSession = found  # what a function gets that asks Spark for the session
    return found


def _purpose(scope: str, wanted: Mapping[str, str]) -> _Purpose:
    return scope, frozenset((key, value) for key, value in wanted.items() if key != "spark.app.name")


def _redirect_log(spark: SparkSession, log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    java = spark._jvm
    assert java is not None
    java.java.lang.System.setProperty("icefield.log", str(log))
    java.org.apache.logging.log4j.LogManager.getContext(False).reconfigure()  # noqa: FBT003 - Java's


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "Exception" in line or "Error" in line), lines[0] if lines else repr(error))
    return told.removeprefix(": ")
