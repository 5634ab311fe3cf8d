"""Starts the JVM that Spark lives in: one process, built by us rather than by Spark's launcher scripts.

The scripts start a JVM only to print the command line of the next one, and ask for a module that a trimmed Java lacks.
What they would have asked for is listed here; everything else (the gateway, its secret, the file that tells its port)
is as PySpark does it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from icefield.engine.session.class_archive import ArchiveUse
from icefield.engine.session.jars import spark_folder
from icefield.engine.session.java import Java
from icefield.errors import SessionError

START_SECONDS = 120
POLL_SECONDS = 0.005
INITIAL_HEAP = "1g"
#: How much Java's optimising compiler is to do: nothing, only what pays within a minute, or all that it finds.
Effort = Literal["least", "less", "full"]
_DIRECTIVES = Path(__file__).with_name("compiler_directives.json")
COMPILERS: Mapping[Effort, Sequence[str]] = {
    # Without its second compiler, Java would reserve 48 MiB for compiled code, and fail once they are full.
    "least": ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"),
    "less": ("-XX:+UnlockDiagnosticVMOptions", f"-XX:CompilerDirectivesFile={_DIRECTIVES}"),
    "full": (),
}
LOGGING = Path(__file__).with_name("log4j2.properties")

# org.apache.spark.launcher.JavaModuleOptions of Spark 4.1
OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
LAUNCHER_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
VECTOR_MODULE = "jdk.incubator.vector"
GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"
# Settings that only spark-submit understands: it resolves packages and ships files before the driver starts.
SUBMIT_ONLY = ("spark.jars", "spark.jars.packages", "spark.files", "spark.archives", "spark.submit.pyFiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    """A JVM that is starting or runs; it ends when its standard input does, so no death of ours leaves it behind."""

    process: subprocess.Popen[bytes]
    scratch: Path
    log: Path

    def connection(self) -> tuple[int, str]:
        """Port and secret of the gateway, as soon as the JVM listens."""
        told = self.scratch / "gateway"
        give_up = time.monotonic() + START_SECONDS
        while not told.exists():  # the JVM puts it there whole, by a rename
            if self.process.poll() is not None:
                raise self._failed(f"Java exited with code {self.process.returncode} before Spark started")
            if time.monotonic() > give_up:
                raise self._failed(f"Java did not respond within {START_SECONDS} s")
            time.sleep(POLL_SECONDS)
        port, length = struct.unpack_from(">ii", content := told.read_bytes())
        self.discard_scratch()  # now, for a process that is killed discards nothing: it holds secrets
        return port, content[8 : 8 + length].decode()

    def end(self, *, wait: bool) -> None:
        """Tell the JVM to exit, and wait for it if asked (it may be writing its class archive for some seconds)."""
        if self.process.stdin:
            self.process.stdin.close()
        if wait:
            self.process.wait()
        self.discard_scratch()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.end(wait=True)

    def discard_scratch(self) -> None:
        """Remove the files of this session."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _failed(self, what: str) -> SessionError:
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        said = [line for line in text.splitlines() if re.search(r"error|exception|invalid|could not", line, re.I)]
        return SessionError(
            f"{what}{': ' + said[-1].strip() if said else ''}.",
            where=str(self.log),
            remedy='read the log; if the heap is too large for this machine, lower "spark.driver.memory" under '
            "[profile.<name>.spark] in icefield.toml",
        )


def class_path(jars: Sequence[Path], conf: Mapping[str, str]) -> list[Path]:
    """Our jars, the profile's, then Spark's, always in the same order: the class archive is bound to it."""
    extra = [Path(entry) for entry in conf.get("spark.driver.extraClassPath", "").split(os.pathsep) if entry]
    return [*jars, *extra, *sorted((spark_folder() / "jars").glob("*.jar"))]


def start_jvm(
    *,
    java: Java,
    classes: Sequence[Path],
    conf: Mapping[str, str],
    log: Path,
    archive: ArchiveUse,
    effort: Effort = "full",
) -> Jvm:
    """Start the JVM and return at once; its output goes to the log file, never to the terminal."""
    scratch = Path(tempfile.mkdtemp(prefix="icefield-"))
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [
        str(java.executable),
        "-cp",
        os.pathsep.join(str(path) for path in classes),
        *COMPILERS[effort],
        *_flags(java, conf, log),
        *archive.flags,
        *_main(conf, scratch),
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(
            # Ctrl-C is for Python to handle. An ignored signal stays ignored over exec, and Java leaves it so; unlike
            # a preexec_fn this is safe with threads, and the JVM stays in our process group and dies with it.
            ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(conf, scratch),
            pass_fds=() if archive.lock is None else (archive.lock,),
        )
    if archive.lock is not None:
        os.close(archive.lock)
    return Jvm(process=process, scratch=scratch, log=log)


def is_local(conf: Mapping[str, str]) -> bool:
    """True when driver and executors are this one JVM."""
    return conf["spark.master"].startswith("local")


def _flags(java: Java, conf: Mapping[str, str], log: Path) -> list[str]:
    own = [
        *shlex.split(conf.get("spark.driver.defaultJavaOptions", "")),
        *shlex.split(conf.get("spark.driver.extraJavaOptions", "")),
    ]
    heap = conf["spark.driver.memory"]
    flags = [f"-Xmx{heap}", *LAUNCHER_FLAGS]
    if java.has_module(VECTOR_MODULE):
        flags.append(f"--add-modules={VECTOR_MODULE}")
    if not any(re.fullmatch(r"-XX:\+Use\w+GC", flag) for flag in own):
        flags.append("-XX:+UseParallelGC")
    if _bytes(heap) > _bytes(INITIAL_HEAP):
        flags.append(f"-Xms{INITIAL_HEAP}")
    return [
        *flags,
        "-Duser.timezone=UTC",
        "-Dfile.encoding=UTF-8",
        f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        f"-Dicefield.log={log}",
        f"-XX:ErrorFile={log.parent}/java_error_%p.log",
        *own,
    ]


def _main(conf: Mapping[str, str], scratch: Path) -> list[str]:
    if is_local(conf) and not any(key in conf for key in SUBMIT_ONLY):
        return [GATEWAY]
    # Written to a file that only we can read: settings may hold secrets, and everyone can read a command line.
    properties = scratch / "spark.properties"
    properties.touch(mode=0o600)
    lines = (f"{key}={value.translate(PROPERTY_ESCAPES)}\n" for key, value in conf.items())
    properties.write_text("".join(lines), encoding="utf-8")
    return [SUBMIT, "--properties-file", str(properties), "pyspark-shell"]


PROPERTY_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _environment(conf: Mapping[str, str], scratch: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(scratch / "gateway"),
        "SPARK_HOME": str(spark_folder()),
        "SPARK_CONNECT_MODE": "0",
    }
    if is_local(conf):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    chosen = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((value for value in chosen if value), "")
    if sys.platform != "darwin" and not re.search(r"utf-?8", locale, re.I):
        environment["LC_ALL"] = "C.UTF-8"  # else Java cannot open a file whose name is not ASCII
    return environment


def _bytes(size: str) -> int:
    number = re.fullmatch(r"(\d+)([kmgt]?)b?", size.strip().lower())
    if number is None:
        raise SessionError(
            f"spark.driver.memory = {size!r} is not a valid size.",
            where="[profile.<name>.spark] in icefield.toml",
            remedy='write it as "3g" or "2500m"',
        )
    return int(number.group(1)) << 10 * " kmgt".index(number.group(2) or "m")
