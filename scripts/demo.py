"""A reference project at work on real servers, until Ctrl-C: `python scripts/demo.py sensors`, or `shop`.

The servers are started here and stopped at the end (see `scripts/servers`); a producer or a workload makes changes;
`icefield run --watch` takes them in and shows the last run. All of this works on a copy of the project in `demo/`. It
stays, with its lake, until the next demo, which begins with empty servers and therefore with an empty lake.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from servers import Kafka, Service, ServiceError, start_connect, start_kafka, start_postgres

ROOT = Path(__file__).resolve().parents[1]
PIPELINES, COPIES = ROOT / "pipelines", ROOT / "demo"
#: What a project's own runs have made is not copied.
MADE = ("lake*", "landing", ".icefield", "__pycache__")
STOP_SECONDS = 60
TABLES = ("customers", "products", "orders", "order_lines")


class Demo:
    """What was started, to be stopped in the opposite order."""

    def __init__(self, project: str, running: ExitStack) -> None:
        self.folder = COPIES / project
        self._running = running
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(PIPELINES / project, self.folder, ignore=shutil.ignore_patterns(*MADE))

    def serve(self, service: Service, address: str) -> None:
        """Keeps a server until the end."""
        self._running.enter_context(service)
        print(f"{service.name:<10} {address}", flush=True)

    def work(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a Python program of the project, or icefield, in a group of its own: Ctrl-C is for this process."""
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=self.folder, env={**os.environ, **environment}, start_new_session=True
        )
        self._running.callback(_stop, process)
        return process


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks a program to end, and waits until it has cleaned up."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def sensors(demo: Demo) -> Mapping[str, str]:
    """Kafka, and sensors that send 500 readings a second."""
    kafka = start_kafka()
    demo.serve(kafka, _address(kafka))
    demo.work("produce.py", "--brokers", _address(kafka), "--rate", "500", "--seconds", "86400", "--late", "0.02")
    return {"KAFKA_BROKERS": _address(kafka)}


def shop(demo: Demo) -> Mapping[str, str]:
    """Postgres, Kafka and Connect with Debezium, and a shop that sells."""
    postgres = start_postgres()
    demo.serve(postgres, postgres.url())
    kafka = start_kafka()
    demo.serve(kafka, _address(kafka))
    connect = start_connect(kafka)
    demo.serve(connect, connect.url)
    postgres.execute((demo.folder / "schema.sql").read_text(encoding="utf-8"))
    connect.capture(postgres, "shop", [f"public.{table}" for table in TABLES])
    demo.work("workload.py", "--url", postgres.url(), "--seconds", "86400", "--rate", "20")
    return {"KAFKA_BROKERS": _address(kafka)}


def _looking(project: str) -> str:
    """A command that shows what has come in."""
    return f'  .venv/bin/icefield sql -p {(COPIES / project).relative_to(ROOT)} --profile kafka "{QUERIES[project]}"'


def _address(kafka: Kafka) -> str:
    return str(kafka.client()["bootstrap.servers"])


DEMOS = {"sensors": sensors, "shop": shop}
QUERIES = {
    "sensors": "SELECT * FROM metrics.sensor_minutes ORDER BY minute DESC, sensor_id LIMIT 5",
    "shop": "SELECT * FROM marts.order_overview ORDER BY amount DESC LIMIT 5",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", choices=sorted(DEMOS))
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as running:
        demo = Demo(asked.project, running)
        try:
            print("Starting servers; the first time, they are downloaded.", flush=True)
            environment = DEMOS[asked.project](demo)
            watch = demo.work("-m", "icefield", "run", "--profile", "kafka", "--watch", **environment)
            print("Watching. Ctrl-C stops everything; the lake stays. Look at it in another terminal:", flush=True)
            print(_looking(asked.project), flush=True)
            return watch.wait()
        except ServiceError as error:
            print(error, file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, signal.SIG_IGN)
            print("\nStopping.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
