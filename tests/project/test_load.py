"""Loading: modules that know one another and no other project's, the author's line in errors, a cache that is true."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from icefield.errors import (
    CyclicTables,
    DuplicateTable,
    IcefieldError,
    ImportFailed,
    InvalidFunction,
    InvalidQuery,
    InvalidSetting,
    ProjectChanged,
    UnknownColumn,
    UnknownInput,
    UnknownTable,
)
from icefield.project import load_functions, open_project
from icefield.project.modules import Package

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Write

BRONZE = """
    from icefield import files, table
    from helpers import twice

    LIMIT = 3

    @table("bronze.orders", source=files("landing/*.csv", schema="id BIGINT"))
    def orders(rows):
        return twice(rows)
    """
HELPERS = """
    def twice(x):
        return 2 * x
    """


def test_modules_of_a_project_import_one_another(write: Write) -> None:
    root = write(**{"bronze.py": BRONZE, "helpers.py": HELPERS, "icefield.toml": '[project]\ntables=["bronze.py"]'})
    assert load_functions(open_project(root))["bronze.orders"](4) == 8


def test_two_projects_with_equal_file_names_live_side_by_side(write: Write) -> None:
    text = """
        from icefield import files, table
        from helpers import N

        @table("a.t", source=files("*.csv", schema="i INT"))
        def t(x):
            return N
        """
    toml = '[project]\ntables=["t.py"]'
    one = write("one", **{"t.py": text, "helpers.py": "N = 1", "icefield.toml": toml})
    two = write("two", **{"t.py": text, "helpers.py": "N = 2", "icefield.toml": toml})
    first, second = load_functions(open_project(one)), load_functions(open_project(two))
    assert (first["a.t"](0), second["a.t"](0)) == (1, 2)
    assert "t" not in sys.modules
    assert "helpers" not in sys.modules


def test_imports_inside_of_functions_find_the_project_too(write: Write) -> None:
    late = """
        from icefield import files, table

        @table("a.t", source=files("*.csv", schema="i INT"))
        def t(x):
            from pack.inner import N
            import pack.inner
            return N + pack.inner.N
        """
    root = write(**{"t.py": late, "pack/__init__.py": "", "pack/inner.py": "N = 21"})
    assert load_functions(open_project(root))["a.t"](0) == 42


def test_dataclasses_in_a_project_work(write: Write) -> None:
    text = """
        from __future__ import annotations
        from dataclasses import dataclass
        from icefield import files, table

        @dataclass
        class Limit:
            value: int = 3

        @table("a.t", source=files("*.csv", schema="i INT"))
        def t(x):
            return Limit().value
        """
    assert load_functions(open_project(write(**{"t.py": text})))["a.t"](0) == 3


def one_table(body: str) -> str:
    return f"from icefield import *\nSOURCE = files('*.csv', schema='id BIGINT, amount INT')\n{body}\n"


@pytest.mark.parametrize(
    ("body", "error", "place", "says"),
    [
        ("x = 1 / 0", ImportFailed, "t.py:3", "ZeroDivisionError: division by zero"),
        ("def f(:", ImportFailed, "t.py:3", "invalid syntax"),
        ("import no_such_module_of_mine", ImportFailed, "t.py:3", "install no_such_module_of_mine"),
        ("raise SystemExit(3)", ImportFailed, "t.py:3", "SystemExit: 3"),
        ("\ntable('a.b')", InvalidFunction, "t.py:4", "is not applied to a function"),
        ("table('a.b')(lambda x: x)", InvalidFunction, "t.py:3", "lambda"),
        ("@table('a.b')\ndef b(nothing): ...", UnknownInput, "t.py:3", "is not a table in this project"),
        ("@table('a.b', inputs={'c': 'a.b'})\ndef b(c): ...", CyclicTables, "t.py:3", "reads itself"),
        (
            "@table('a.b')\ndef b(c): ...\n@table('a.c')\ndef c(b): ...",
            CyclicTables,
            "t.py:3, t.py:5",
            "a.b -> a.c -> a.b",
        ),
        (
            "@table('a.b', source=SOURCE)\ndef b(x): ...\n@table('a.b', source=SOURCE)\ndef c(x): ...",
            DuplicateTable,
            "t.py:3 and t.py:5",
            "declared twice",
        ),
        (
            "@table('a.b', source=SOURCE, columns='id BIGINT', checks=[not_null('idd')])\ndef b(x): ...",
            UnknownColumn,
            "t.py:3",
            "did you mean `id`",
        ),
        (
            "@table('a.b', source=SOURCE, checks=[references('id', to='a.bb')])\ndef b(x): ...",
            UnknownTable,
            "t.py:3",
            "did you mean `a.b`",
        ),
        ("table('a.b')(sql('SELECT 1 FROM {a} WHERE x RLIKE \"[0-9]{4}\"'))", InvalidQuery, "t.py:3", "{{4}}"),
        (
            "@table('a.b', source=SOURCE)\ndef b(x):\n    return setting('a', 1)",
            InvalidSetting,
            "t.py:3",
            "module level",
        ),
    ],
)
def test_every_mistake_is_named_with_the_authors_line(
    write: Write, body: str, error: type[IcefieldError], place: str, says: str
) -> None:
    # Lake is the one public name that needs the rest of the product; a star import would ask for it.
    text = one_table(body).replace("import *", "import files, not_null, references, setting, sql, table")
    with pytest.raises(error) as refused:
        open_project(write(**{"t.py": text}))
    assert refused.value.where == place
    assert says in str(refused.value)
    assert refused.value.remedy


def test_a_spark_column_at_module_level_is_explained(write: Write) -> None:
    """In a process of its own: with a session alive, as other tests leave one, pyspark would let it pass."""
    root = write(**{"t.py": "from pyspark.sql import functions as F\n\nCOMPLETED = F.col('status') == 'completed'\n"})
    code = "import sys; from icefield.project import open_project; open_project(sys.argv[1])"
    said = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=False).stderr
    assert "ColumnAtLoad" in said
    assert "where: t.py:3" in said
    assert "inside a function" in said


def test_a_udf_with_its_type_as_text_at_module_level_is_told_with_the_ways_out(write: Write) -> None:
    head = "from pyspark.sql import functions as F\nfrom pyspark.sql.types import IntegerType\n"
    root = write(**{"t.py": f"{head}\nTYPED = F.udf(lambda v: v, IntegerType())\nTEXT = F.udf(lambda v: v, 'int')\n"})
    code = "import sys; from icefield.project import open_project; open_project(sys.argv[1])"
    said = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=False).stderr
    told = said[said.rindex("ICE-111") :]
    assert "a UDF whose type is given as a string needs a Spark session" in told
    assert "where: t.py:5" in told
    assert "@F.udf(IntegerType())" in told


def test_an_assertion_of_the_authors_own_is_not_taken_for_sparks(write: Write) -> None:
    with pytest.raises(ImportFailed, match="AssertionError: no good"):
        open_project(write(**{"t.py": "assert False, 'no good'\n"}))


def test_a_failed_load_leaves_no_modules_behind(write: Write) -> None:
    before = {name for name in sys.modules if name.startswith("icefield_project_")}
    with pytest.raises(ImportFailed):
        open_project(write(**{"t.py": "import helpers\n1 / 0\n", "helpers.py": ""}))
    assert {name for name in sys.modules if name.startswith("icefield_project_")} == before


def counted(root: Path) -> int:
    """How often the project's code has been run."""
    file = root / "runs.txt"
    return len(file.read_text()) if file.exists() else 0


COUNTING = """
    import pathlib
    from icefield import files, setting, sql, table
    with open(pathlib.Path(__file__).parent / "runs.txt", "a") as out:
        out.write("x")
    LIMIT = setting("limit", 1)

    @table("a.t", source=files("*.csv", schema="i INT"))
    def t(x):
        return x, LIMIT

    table("a.u")(sql("u.sql"))
    """


def test_a_cached_graph_is_used_without_importing_the_authors_code(write: Write) -> None:
    root = write(**{"t.py": COUNTING, "u.sql": "SELECT * FROM {t}"})
    first = open_project(root)
    assert counted(root) == 1
    assert open_project(root) == first
    assert counted(root) == 1


def test_a_cached_graph_needs_no_pyspark_in_the_process(write: Write) -> None:
    root = write(**{"t.py": "import pyspark\n" + COUNTING.replace("\n    ", "\n"), "u.sql": "SELECT * FROM {t}"})
    open_project(root)
    code = "import sys; from icefield.project import open_project as o; o(sys.argv[1]); print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize(
    "change",
    [
        {"t.py": COUNTING + "\n    # a comment\n"},
        {"u.sql": "SELECT i FROM {t}"},
        {"icefield.toml": '[project]\nname = "other"\n'},
        {"icefield.toml": "[profile.local.settings]\nlimit = 2\n"},
        {"new.py": ""},
    ],
)
def test_whatever_loading_read_invalidates_the_cache(write: Write, change: dict[str, str]) -> None:
    root = write(**{"t.py": COUNTING, "u.sql": "SELECT * FROM {t}"})
    open_project(root)
    write(**change)
    open_project(root)
    assert counted(root) == 2


def test_a_same_size_edit_within_the_same_instant_is_seen(write: Write) -> None:
    root = write(**{"t.py": COUNTING, "u.sql": "SELECT a FROM {t}"})
    stamp = (root / "u.sql").stat()
    first = open_project(root).graph["a.u"].fingerprint
    write(**{"u.sql": "SELECT b FROM {t}"})
    os.utime(root / "u.sql", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert open_project(root).graph["a.u"].fingerprint != first


def test_a_damaged_cache_is_made_again(write: Write) -> None:
    root = write(**{"t.py": COUNTING, "u.sql": "SELECT * FROM {t}"})
    first = open_project(root)
    (cached,) = (root / ".icefield").glob("graph-*.json")
    cached.write_text(cached.read_text()[:100])
    assert open_project(root) == first
    assert counted(root) == 2


def test_a_project_that_cannot_be_written_still_opens(write: Write) -> None:
    root = write(**{"t.py": COUNTING.replace('"a") as out', '"a") as out'), "u.sql": "SELECT * FROM {t}"})
    (root / ".icefield").write_text("a file where the folder would be")
    assert set(open_project(root).graph.order) == {"a.t", "a.u"}


def test_code_that_changed_since_the_plan_is_refused(write: Write) -> None:
    root = write(**{"t.py": COUNTING, "u.sql": "SELECT * FROM {t}"})
    project = open_project(root)
    write(**{"t.py": COUNTING.replace("return x, LIMIT", "return LIMIT")})
    with pytest.raises(ProjectChanged, match=r"a\.t"):
        load_functions(project)
    unknown = replace(project, graph=replace(project.graph, nodes={}, order=()))
    with pytest.raises(ProjectChanged):
        load_functions(unknown)


def test_a_fresh_setting_reaches_the_code(write: Write) -> None:
    root = write(**{"t.py": COUNTING, "u.sql": "SELECT * FROM {t}"})
    assert load_functions(open_project(root))["a.t"](0) == (0, 1)
    write(**{"icefield.toml": "[profile.local.settings]\nlimit = 2\n"})
    assert load_functions(open_project(root))["a.t"](0) == (0, 2)


def test_projects_load_while_other_threads_import(tmp_path: Path) -> None:
    """A run loads the author's functions while Spark and PyIceberg are being imported beside it."""
    package, done, before = Package(tmp_path), threading.Event(), sys.getswitchinterval()

    def import_things() -> None:
        for number in itertools.cycle(range(50)):
            sys.modules[f"came_meanwhile_{number}"] = sys
            sys.modules.pop(f"came_meanwhile_{(number + 25) % 50}", None)
            if done.is_set():
                return

    importing = threading.Thread(target=import_things)
    sys.setswitchinterval(1e-6)
    importing.start()
    try:
        for _ in range(300):
            assert package.modules() == {}
    finally:
        done.set()
        importing.join()
        sys.setswitchinterval(before)
        for number in range(50):
            sys.modules.pop(f"came_meanwhile_{number}", None)
        package.unload()
