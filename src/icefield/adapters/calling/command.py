"""The `icefield` command of another environment: found, called, listened to, and ended with whoever called it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.errors import CalledCommandFailed, NoIcefieldCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Lines of what a command says that are kept to explain its failure.
_KEPT_LINES = 200
#: How long a command that is told to end may take; it ends itself within 5 s.
_END_SECONDS = 15.0
#: What tells a Python where its modules are is wrong for the Python of another environment.
_NOT_INHERITED = ("PYTHONHOME", "PYTHONPATH")


def find_command(given: str | os.PathLike[str] | None = None) -> str:
    """The given command, else the one beside this Python if that can run Spark, else the first on the PATH."""
    if given is not None:
        return os.fspath(given)
    beside = Path(sys.executable).with_name("icefield")
    if beside.exists() and importlib.util.find_spec("pyspark") is not None:
        return str(beside)
    elsewhere = [folder for folder in os.get_exec_path() if Path(folder) != beside.parent]
    if found := shutil.which("icefield", path=os.pathsep.join(elsewhere)):
        return found
    raise NoIcefieldCommand(
        "there is no `icefield` command that can run Spark: neither beside this Python nor on the PATH",
        where=sys.executable,
        remedy="install icefield into an environment of its own, and name its command: icefield='/.../bin/icefield'",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended: its exit code, its result, and the last lines that it said beside it."""

    code: int
    out: str
    said: Sequence[str]

    @property
    def error(self) -> str:
        """What it said last: its error, if it told one, else everything that is known."""
        starts = [place for place, line in enumerate(self.said) if line.startswith("error ")]
        lines = self.said[starts[-1] :] if starts else self.said
        return "\n".join(lines).removeprefix("error ") or f"it said nothing and ended with exit code {self.code}"


@dataclass(slots=True)
class Command:
    """Calls of one `icefield` command, one at a time; `environment` is added to that of this process.

    Where no command is `given`, it is looked for when it is first called.
    """

    given: str | os.PathLike[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None

    def call(self, arguments: Sequence[str], tell: Callable[[str], object] = lambda line: None) -> Done:
        """Runs the command to its end; `tell` hears every line that it says. Whatever ends this call ends the command.

        The command is the leader of a session of its own: it hears a signal once, from `stop`, and not together with
        the whole group, for it would take a second one as the wish to leave at once.
        """
        process = self._start(arguments)
        self._process = process
        out: list[str] = []
        assert process.stdout is not None
        assert process.stderr is not None
        reader = threading.Thread(target=_collect, args=(process.stdout, out), daemon=True)
        reader.start()
        said: deque[str] = deque(maxlen=_KEPT_LINES)
        try:
            for line in process.stderr:
                said.append(line.rstrip("\n"))
                tell(said[-1])
            process.wait()
            reader.join()
        finally:
            self._end(process)
        return Done(code=process.returncode, out="".join(out), said=tuple(said))

    def json(self, arguments: Sequence[str]) -> Any:
        """The result of a command that prints JSON; an error, if it failed."""
        done = self.call(arguments)
        if done.code == 0:
            return json.loads(done.out)
        # What happened, where and what to do next is told by the command itself.
        raise CalledCommandFailed(f"`{find_command(self.given)} {arguments[0]}` failed: {done.error}")

    def stop(self) -> None:
        """Tells the command to end; a run is abandoned then, and nothing of it is published."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def _start(self, arguments: Sequence[str]) -> subprocess.Popen[str]:
        path = find_command(self.given)
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        try:
            return subprocess.Popen(
                [path, *arguments],
                env={**inherited, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError as problem:
            raise NoIcefieldCommand(
                f"the command {path} cannot be started: {problem.strerror or problem}",
                where=path,
                remedy="name the `icefield` command of the environment that icefield is installed in",
            ) from None

    def _end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:  # a timeout, or another exception, came between
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _collect(stream: Any, into: list[str]) -> None:
    into.extend(stream)
