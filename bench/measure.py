"""Runs a command and measures it as its user meets it: wall time, and the memory of it and of all it started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_SECONDS = 0.2
LINGER_SECONDS = 120
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


class CommandFailed(Exception):
    """A measured command did not end well, so its time means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one command took; `lingered` is how long processes that it left behind went on after it returned."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    lingered: float
    java: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One line of the process table."""

    parent: int
    group: int
    resident: int
    cpu_seconds: float
    name: str
    virtual: int = 0
    stack: int = 0

    def is_image_of(self, parent: Process) -> bool:
        """True between fork and exec, when parent and child show the same pages, which would count twice."""
        # The stack's address is drawn anew by every exec; the size differs a little, as the two are read in turn.
        return (
            self.stack != 0 and self.stack == parent.stack and abs(self.virtual - parent.virtual) < parent.virtual / 100
        )


def measure(command: Sequence[str], *, output: Path, environment: Mapping[str, str]) -> Measured:
    """Run the command to its end; what it prints goes to a file, whose last lines are told if it fails."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        family = Family(process.pid)
        try:
            code = process.wait()
            seconds = time.perf_counter() - began
            lingered = family.wait_until_gone()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            family.stop()
    if code != 0:
        last = output.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        raise CommandFailed(f"exit code {code} of: {' '.join(command)}\n" + "\n".join(f"  {line}" for line in last))
    return Measured(
        seconds=seconds,
        cpu_seconds=family.cpu_seconds,
        peak_bytes=family.peak_bytes,
        lingered=lingered,
        java=family.java,
    )


@dataclass(slots=True)
class Family:
    """A process and its descendants, also those whose parent has gone; sampled by a thread while they live."""

    root: int
    members: set[int] = field(default_factory=set)
    peak_bytes: int = 0
    java: bool = False
    _cpu: dict[int, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.members.add(self.root)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def cpu_seconds(self) -> float:
        """Of all of them, as last seen: the last moments of each are missing, up to one interval of sampling."""
        return sum(self._cpu.values())

    def wait_until_gone(self) -> float:
        """How long any process of the family outlived the first one."""
        began = time.perf_counter()
        self._sample()
        while alive := self.members & processes().keys():
            if time.perf_counter() - began > LINGER_SECONDS:
                raise CommandFailed(f"{len(alive)} processes still run {LINGER_SECONDS} s after their command ended")
            time.sleep(SAMPLE_SECONDS / 4)
        # The first look costs some milliseconds even when nobody is left.
        return max(0.0, time.perf_counter() - began - SAMPLE_SECONDS / 4)

    def is_alive(self) -> bool:
        """Whether any of them is left."""
        return bool(self.members & processes().keys())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        # Memory is sampled as a sum of resident pages, so pages that two processes share count twice.
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        table = processes()
        with self._lock:
            # A child that was never seen while its parent lived is still of the family's process group.
            found = {pid for pid, it in table.items() if it.group == self.root}
            while found - self.members:
                self.members |= found
                found = {pid for pid, it in table.items() if it.parent in self.members}
            mine = {pid: table[pid] for pid in self.members if pid in table}
            self._cpu |= {pid: it.cpu_seconds for pid, it in mine.items()}
            own = [it for it in mine.values() if not (it.parent in mine and it.is_image_of(mine[it.parent]))]
            self.peak_bytes = max(self.peak_bytes, sum(it.resident for it in own))
            self.java = self.java or any(Path(it.name).name == "java" for it in own)


def processes() -> dict[int, Process]:
    """Every living process of the machine: from /proc where there is one, else from `ps`."""
    return _from_proc() if (PROC / "self" / "stat").exists() else _from_ps()


def _from_proc() -> dict[int, Process]:
    table = {}
    for entry in os.listdir(PROC):  # noqa: PTH208 - several times a second beside what is measured: quick matters
        if not entry.isdigit():
            continue
        try:
            text = (PROC / entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # ended since it was listed
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        facts = rest.split()
        if facts[0] not in "ZX":
            # fields 4, 5, 14, 15, 23, 24 and 28 of proc(5)
            table[int(entry)] = Process(
                parent=int(facts[1]),
                group=int(facts[2]),
                resident=int(facts[21]) * PAGE,
                cpu_seconds=(int(facts[11]) + int(facts[12])) / TICKS,
                name=name,
                virtual=int(facts[20]),
                stack=int(facts[25]),
            )
    return table


def _from_ps() -> dict[int, Process]:
    listed = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,pgid=,rss=,time=,stat=,comm="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 6) for line in listed.splitlines()]
    return {
        int(pid): Process(
            parent=int(parent), group=int(group), resident=int(kilobytes) * 1024, cpu_seconds=_seconds(used), name=name
        )
        for pid, parent, group, kilobytes, used, state, name in (row for row in rows if len(row) == 7)
        if not state.startswith("Z")
    }


def _seconds(clock: str) -> float:
    """Seconds of `ps`'s time: `[days-][hours:]minutes:seconds`, on macOS with hundredths."""
    days, _, rest = clock.rpartition("-")
    total = 0.0
    for part in rest.split(":"):
        total = total * 60 + float(part)
    return total + 86400 * int(days or 0)
