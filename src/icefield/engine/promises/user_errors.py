"""What went wrong in an author's function, and at which line of theirs: here, or in one of Spark's Python workers."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

#: A traceback as a Python worker sends it, with the exception in its last line.
_WORKERS = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n|\n)*(?P<exception>\S.*)")
#: A line of a Python file, as tracebacks and Spark's query contexts name it.
_LINE = re.compile(r'(/[^"\n]+?\.py)(?:", line |:)(\d+)')


def line_of(error: BaseException, root: Path) -> str:
    """The innermost line of the project's files that an error names or came through; empty where there is none."""
    passed = [(frame.filename, str(frame.lineno)) for frame in traceback.extract_tb(error.__traceback__)]
    own = [(file, line) for file, line in (*passed, *_LINE.findall(str(error))) if _is_own(Path(file), root)]
    return f"{Path(own[-1][0]).relative_to(root).as_posix()}:{own[-1][1]}" if own else ""


def _is_own(file: Path, root: Path) -> bool:
    return file.is_relative_to(root) and "site-packages" not in file.parts  # an environment may lie in the project


def is_sparks(error: BaseException) -> bool:
    """Whether Spark raised it, rather than Python in a function of the author's."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def told(error: BaseException) -> str:
    """What the author needs to read of an error: the exception, without plans and stacks."""
    if not is_sparks(error):
        said = str(error).strip().split("\n", 1)[0]
        return f"{type(error).__name__}: {said}" if said else type(error).__name__
    if found := list(_WORKERS.finditer(str(error))):
        return found[-1]["exception"].strip()
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes and lines[0].startswith("An error occurred while calling") else lines[0]
