"""What changes a fingerprint and what does not."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from icefield.project import open_project

if TYPE_CHECKING:
    from .conftest import Write

BASE = '''
import functools
from decimal import Decimal
from icefield import append, expect, files, full, not_null, setting, sql, table, unique
import helpers
from helpers import clean, Rule

LIMIT = 10
NAMES = {"b", "a", "c"}
HIGH = setting("high", 500)
UNUSED = 1
SOURCE = files("landing/*.csv", schema="id BIGINT COMMENT 'key', amount INT")

def wrap(f):
    @functools.wraps(f)
    def inner(rows):
        return f(rows), LIMIT
    return inner

@table("a.t", source=SOURCE, checks=[not_null("id"), unique("id")], otherwise="quarantine", tags=["x"])
def t(rows: "DataFrame", factor=2) -> "DataFrame":
    """Doc."""
    total = clean(rows)  # why
    return [total, LIMIT, HIGH, factor, sorted(NAMES), helpers.other(1), Rule.level]

@table("a.w")
@wrap
def w(t):
    return t

def made(n):
    def inner(t):
        return t, n
    return inner

table("a.c1")(made(1))
table("a.c2")(made(2))
table("a.q")(sql("q.sql"))
'''
HELPERS = """
DEEP = Decimal = 5
def clean(x):
    return deeper(x)
def deeper(x):
    return x, DEEP
def other(x):
    return x
def unrelated(x):
    return 1
class Rule:
    level = 3
    def check(self):
        return DEEP
"""
SQL = "-- One.\nSELECT a,  b\nFROM {t} -- all\nWHERE c = 'x  y'\n"
FILES = {"t.py": BASE, "helpers.py": HELPERS, "q.sql": SQL, "icefield.toml": '[project]\ntables = ["t.py"]\n'}


def prints(write: Write, name: str, *edits: tuple[str, str, str]) -> dict[str, tuple[str, str]]:
    files = dict(FILES)
    for file, old, new in edits:
        assert old in files[file], old
        files[file] = files[file].replace(old, new)
    graph = open_project(write(name, **files)).graph
    return {table: (node.fingerprint, node.checks_fingerprint) for table, node in graph.nodes.items()}


def changed(write: Write, *edits: tuple[str, str, str]) -> tuple[set[str], set[str]]:
    """Tables whose code, and whose checks, have another fingerprint after the edits."""
    before, after = prints(write, "same"), prints(write, "same", *edits)
    code = {name for name in after if after[name][0] != before[name][0]}
    return code, {name for name in after if after[name][1] != before[name][1]}


@pytest.mark.parametrize(
    "edit",
    [
        ("t.py", '"""Doc."""', '"""Another docstring."""'),
        ("t.py", "  # why", ""),
        ("t.py", "  # why", "\n\n    # because\n"),
        ("t.py", 'rows: "DataFrame", factor=2) -> "DataFrame"', "rows, factor: int = 2) -> int"),
        ("t.py", "total = clean(rows)", "total: int = clean(rows)"),
        ("t.py", "[total, LIMIT, HIGH,", "[\n        total,\n        LIMIT, HIGH,"),
        ("t.py", 'tags=["x"]', 'tags=["y", "z"], partitioned_by=["bucket(4, id)"], volatile=["amount"]'),
        ("t.py", "COMMENT 'key'", "COMMENT 'the key'"),
        ("t.py", "UNUSED = 1", "UNUSED = 2"),
        ("t.py", "LIMIT = 10", "LIMIT = 5 + 5"),
        ("t.py", '{"b", "a", "c"}', '{"c", "b", "a"}'),
        ("t.py", 'amount INT")', 'amount INT", changed="replace", deleted="withdraw")'),
        ("t.py", "def t(rows", "def renamed(rows"),
        ("helpers.py", "    return 1", "    return 2"),
        ("helpers.py", "def clean(x):", "def clean(x: int) -> int:\n    'What it does.'"),
        ("q.sql", "SELECT a,  b\nFROM", "-- more\nSELECT a, b /* two */ FROM"),
    ],
)
def test_layout_comments_tags_and_what_is_not_used_do_not_count(write: Write, edit: tuple[str, str, str]) -> None:
    assert changed(write, edit) == (set(), set())


@pytest.mark.parametrize(
    ("edit", "tables"),
    [
        (("t.py", "sorted(NAMES)", "list(NAMES)"), {"a.t"}),
        (("t.py", "factor=2", "factor=3"), {"a.t"}),
        (("t.py", "LIMIT = 10", "LIMIT = 11"), {"a.t", "a.w"}),
        (("t.py", '{"b", "a", "c"}', '{"b", "a", "d"}'), {"a.t"}),
        (("t.py", '"high", 500', '"high", 501'), {"a.t"}),
        (("icefield.toml", "[project]", "[profile.local.settings]\nhigh = 7\n[project]"), {"a.t"}),
        (("helpers.py", "return x, DEEP", "return DEEP, x"), {"a.t"}),
        (("helpers.py", "DEEP = Decimal = 5", "DEEP = Decimal = 6"), {"a.t"}),
        (("helpers.py", "def other(x):\n    return x", "def other(x):\n    return -x"), {"a.t"}),
        (("helpers.py", "level = 3", "level = 4"), {"a.t"}),
        (("t.py", "return f(rows), LIMIT", "return LIMIT, f(rows)"), {"a.w"}),
        (("t.py", "def w(t):\n    return t", "def w(t):\n    return -t"), {"a.w"}),
        (("t.py", "made(2)", "made(3)"), {"a.c2"}),
        (("t.py", "return t, n", "return n, t"), {"a.c1", "a.c2"}),
        (("q.sql", "SELECT a", "SELECT c"), {"a.q"}),
        (("q.sql", "'x  y'", "'x y'"), {"a.q"}),
        (("t.py", "landing/*.csv", "arrived/*.csv"), {"a.t"}),
        (("t.py", "amount INT", "amount BIGINT"), {"a.t"}),
        (("t.py", 'table("a.c1")', 'table("a.c1", inputs={"t": "a.w"})'), {"a.c1"}),
        (("t.py", 'table("a.c1")', 'table("a.c1", refresh=append())'), {"a.c1"}),
        (("t.py", 'table("a.c1")', 'table("a.c1", columns="x INT")'), {"a.c1"}),
    ],
)
def test_whatever_the_result_depends_on_counts_for_just_those_tables(
    write: Write, edit: tuple[str, str, str], tables: set[str]
) -> None:
    assert changed(write, edit) == (tables, set())


@pytest.mark.parametrize(
    ("edit", "tables"),
    [
        (("t.py", 'not_null("id")', 'not_null("amount")'), {"a.t"}),
        (("t.py", 'not_null("id")', 'not_null("id", otherwise="warn")'), {"a.t"}),
        (("t.py", 'unique("id")', 'unique("amount")'), {"a.t"}),
        (("t.py", 'otherwise="quarantine"', 'otherwise="drop"'), {"a.t"}),
        (("t.py", 'not_null("id"), unique("id")', 'unique("id"), not_null("id")'), set()),
        (("t.py", 'not_null("id")', 'expect("has an id", "`id` IS NOT NULL")'), set()),
    ],
)
def test_checks_have_a_fingerprint_of_their_own(write: Write, edit: tuple[str, str, str], tables: set[str]) -> None:
    assert changed(write, edit) == (set(), tables)


def test_factories_differ_by_what_they_close_over(write: Write) -> None:
    found = prints(write, "p")
    assert found["a.c1"][0] != found["a.c2"][0]


def test_fingerprints_are_equal_in_every_process_and_for_every_hash_seed(write: Write) -> None:
    root = write("p", **FILES)
    code = dedent(
        """
        import shutil, sys
        from icefield.project import open_project
        shutil.rmtree(sys.argv[1] + "/.icefield", ignore_errors=True)
        print({name: node.fingerprint for name, node in open_project(sys.argv[1]).graph.nodes.items()})
        """
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(root)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(found) == 1


def test_a_project_in_another_folder_has_the_same_fingerprints(write: Write) -> None:
    assert prints(write, "here") == prints(write, "there")


PARTIALS = """
import functools
from icefield import files, table
SOURCE = files("*.csv", schema="i INT")
def f(rows, k, g):
    return g(rows) + k
table("a.one", source=SOURCE)(functools.partial(f, k=1, g=lambda x: x + 1))
table("a.two", source=SOURCE)(functools.partial(f, k=2, g=lambda x: x + 1))
A, B = lambda x: x + 1, lambda x: x + 2
table("a.a", source=SOURCE)(functools.partial(f, k=1, g=A))
table("a.b", source=SOURCE)(functools.partial(f, k=1, g=B))
"""


def test_partials_and_lambdas_on_one_line_are_told_apart(write: Write) -> None:
    graph = open_project(write("p", **{"t.py": PARTIALS})).graph
    one, two, a, b = (graph[f"a.{name}"].fingerprint for name in ("one", "two", "a", "b"))
    assert one == a
    assert len({one, two, b}) == 3


def test_imports_inside_of_a_function_count(write: Write) -> None:
    text = """
        from icefield import files, table

        @table("a.t", source=files("*.csv", schema="i INT"))
        def t(x):
            from helpers import N
            return N
        """
    toml = '[project]\ntables = ["t.py"]\n'
    first = open_project(write("p", **{"t.py": text, "helpers.py": "N = 1", "icefield.toml": toml})).graph
    # The graph's cache must notice as well: the module was only imported to be fingerprinted.
    second = open_project(write("p", **{"helpers.py": "N = 2"})).graph
    assert first["a.t"].fingerprint != second["a.t"].fingerprint


ODD = """
import collections, functools, logging, pathlib, threading
from icefield import files, table

LOG = logging.getLogger(__name__)
Point = collections.namedtuple("Point", "x y")
HERE = pathlib.Path(__file__).parent / "x.json"
LOCK = threading.Lock()

def round(x):
    return x

@functools.cache
def cached(x):
    return x

@table("a.t", source=files("*.csv", schema="i INT"))
def t(rows):
    LOG.info(__name__)
    with LOCK:
        return Point(1, 2), HERE, __file__, cached(round(rows))
"""


def test_what_differs_between_loads_and_folders_does_not_count(write: Write) -> None:
    first = open_project(write("here", **{"t.py": ODD})).graph
    write("here", **{"t.py": ODD + "\n# so that it is loaded again\n"})
    again = open_project(write("here")).graph
    moved = open_project(write("there", **{"t.py": ODD})).graph
    assert first["a.t"].fingerprint == again["a.t"].fingerprint == moved["a.t"].fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"x y"', '"x z"'),
        ("def round(x):\n    return x", "def round(x):\n    return -x"),
        ("def cached(x):\n    return x", "def cached(x):\n    return -x"),
        ('"x.json"', '"y.json"'),
    ],
)
def test_odd_things_a_function_names_count(write: Write, old: str, new: str) -> None:
    assert old in ODD
    first = open_project(write("p", **{"t.py": ODD})).graph["a.t"].fingerprint
    assert open_project(write("p", **{"t.py": ODD.replace(old, new)})).graph["a.t"].fingerprint != first
