"""What `import icefield` gives, how cheap it is, and that the reference page tells of all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import icefield

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def test_the_reference_page_lists_exactly_the_public_names() -> None:
    headings = re.findall(r"^### `(\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(icefield.__all__)
    assert len(headings) == len(set(headings))


def test_every_example_of_the_reference_page_is_python() -> None:
    for number, example in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)):
        compile(example, f"api.md example {number}", "exec")


def test_importing_icefield_loads_nothing_heavy() -> None:
    code = "import sys, icefield; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pyiceberg", "duckdb", "polars", "typer", "rich", "numpy", "pandas"} & set(loaded)


def test_importing_icefield_takes_less_than_a_tenth_of_a_second(tmp_path: Path) -> None:
    """CPU time, so that a busy machine does not decide; with bytecode, as an installed package has it."""
    code = "import time; start = time.process_time(); import icefield; print(time.process_time() - start)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        for _ in range(6)
    ]
    assert min(float(run.stdout) for run in runs[1:]) < 0.1  # the first one writes the bytecode


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(icefield, "is_incremental")
