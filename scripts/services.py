"""Starts Postgres, Kafka and Kafka Connect with Debezium on this machine, and keeps them until they are stopped.

python scripts/services.py start            # all of them, until Ctrl-C or `stop`; or `start kafka`
python scripts/services.py stop
python scripts/services.py lock             # resolves anew what they are made of

Nothing has to be installed: see `scripts/servers`. Their data are removed when they stop.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from servers import Service, ServiceError, start_connect, start_kafka, start_postgres, wait_until
from servers.locks import write_locks

STATE = Path(__file__).resolve().parents[1] / ".services"  # git ignores it
RECORD = "running.json"
LOCK = "lock"
NAMES = ("postgres", "kafka", "connect")
STOP_SECONDS = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Carries out one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["start", "stop", "lock"])
    parser.add_argument("names", nargs="*", metavar="server", help=f"which to start: {', '.join(NAMES)}; else all")
    parser.add_argument("--state", type=Path, default=STATE, help="the folder that records what is running")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(NAMES):
        parser.error(f"unknown server {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    try:
        match asked.command:
            case "start":
                serve(asked.names or NAMES, asked.state)
            case "stop":
                stop(asked.state)
            case "lock":
                write_locks()
    except ServiceError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def serve(names: Sequence[str], state: Path) -> None:
    """Starts servers, and stops them on Ctrl-C or SIGTERM."""
    with _only_one(state), ExitStack() as running:
        running.callback((state / RECORD).unlink, missing_ok=True)
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            for service in _start(names, running, state / RECORD):
                print(f"{service.name:<10} {service.describe()}", flush=True)
            print("Ctrl-C or `make services-stop` stops them.", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, signal.SIG_IGN)  # stopping takes a second, and must not be interrupted
            print("Stopping.", flush=True)


def _start(names: Sequence[str], running: ExitStack, record_file: Path) -> Iterator[Service]:
    """Starts servers one after the other; each is recorded as soon as it runs."""
    started: list[Service] = []

    def record(service: Service) -> Service:
        started.append(running.enter_context(service))
        known = [{"name": one.name, "pid": one.pid, "folder": str(one.folder)} for one in started]
        record_file.write_text(json.dumps({"pid": os.getpid(), "services": known}), encoding="utf-8")
        return service

    if "postgres" in names:
        yield record(start_postgres())
    if "kafka" in names or "connect" in names:
        kafka = start_kafka()
        yield record(kafka)
        if "connect" in names:
            yield record(start_connect(kafka))


def stop(state: Path) -> None:
    """Ends what `start` has started, even where the process that started it was killed."""
    try:
        known = json.loads((state / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        print("No services are running.")
        return
    if _is_serving(state):
        os.kill(known["pid"], signal.SIGTERM)
        wait_until(lambda: not _is_serving(state), STOP_SECONDS, "the services to stop")
    for service in known["services"]:
        _end_orphan(service["pid"], service["folder"])
    (state / RECORD).unlink(missing_ok=True)
    print(f"Stopped {', '.join(service['name'] for service in known['services'])}.")


def _end_orphan(pid: int, folder: str) -> None:
    """Kills a server whose starter is gone: its command line names its folder, so that no other process is hit."""
    if folder in _command_line(pid):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        wait_until(lambda: folder not in _command_line(pid), STOP_SECONDS, f"process {pid} to end")
    shutil.rmtree(folder, ignore_errors=True)


def _command_line(pid: int) -> str:
    return subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout


@contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """Holds the lock of this checkout's services; the system frees it when this process ends in whatever way."""
    state.mkdir(exist_ok=True)
    with (state / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceError("Services are already running here; `make services-stop` stops them.") from None
        yield


def _is_serving(state: Path) -> bool:
    with (state / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
