"""Law 4 on real Spark: after any history every table is its function over what it says it has consumed.

A machine draws a graph of all refresh kinds, then lets files arrive, be corrected and be deleted, runs all or a part,
changes code, compacts, expires, meddles, rolls back, drops tables and crashes. The functions are written twice: for
Spark, and over lists as the oracle.

    ICEFIELD_EXACT_SEED=7 ICEFIELD_EXACT_STEPS=2400 pytest tests/run/test_exact.py      # make soak: for an hour
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from icefield.engine import limits
from icefield.engine.checks import duplicates as repeats
from icefield.engine.limits import Limits
from icefield.engine.refresh import changes, renewal, update
from icefield.engine.refresh import keys as keyed
from icefield.engine.refresh import replace as replacing
from icefield.engine.session.spark import add_catalog, start_session
from icefield.lake import metadata as meta
from icefield.lake.catalog import LAKE
from icefield.lake.table_state import table_state
from projects import TinyProject, rows_of, tiny

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]  # (g, k, n, v): columns in the order of their names
SEED = int(os.environ["ICEFIELD_EXACT_SEED"])  # drawn by tests/conftest.py where nobody has chosen one
STEPS = int(os.environ.get("ICEFIELD_EXACT_STEPS", "24"))

HEAD = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, files, full, lookup, table

COLUMNS = "k BIGINT, g STRING, v DECIMAL(12,2), n BIGINT"


def shaped(rows):
    return rows.select(F.col("k").cast("BIGINT"), "g", F.col("v").cast("DECIMAL(30,2)"), F.col("n").cast("BIGINT"))


def last(measures):
    return shaped(measures.select("k", "m.g", "v", "m.n"))


def feed(name):
    source = files(f"landing/{name}/*.csv", schema=COLUMNS, changed="replace", deleted="withdraw")

    @table(f"t.{name}", source=source, refresh=append())
    def landed(rows):
        return shaped(rows)


feed("a")
feed("b")
"""

#: Each kind: its refresh and its function for Spark. {c} is a constant that a change of code changes.
KINDS = {
    "append": ("append()", "rows.where('coalesce(n, 0) % 3 <> {c}')"),
    "by_k": (
        "by_key('k')",
        "rows.groupBy('k').agg(F.max('g').alias('g'), F.sum('v').alias('v'), (F.count_distinct('g') + {c}).alias('n'))",
    ),
    "by_h": (
        "by_key(g='upper(g)')",
        "rows.groupBy(F.upper('g').alias('g')).agg(F.min('k').alias('k'), F.max('v').alias('v'),"
        " (F.count('*') + {c}).alias('n'))",
    ),
    "sums": (
        "accumulate('k', g='max', v='sum', n='count')",
        "rows.groupBy('k').agg(F.max('g').alias('g'), F.sum('v').cast('DECIMAL(30,2)').alias('v'),"
        " F.count_if(F.col('n') >= {c}).alias('n'))",
    ),
    "ends": (
        "accumulate('g', k='min', v='max', n='sum')",
        "rows.groupBy('g').agg(F.min('k').alias('k'), F.max('v').alias('v'), F.sum(F.col('n') + {c}).alias('n'))",
    ),
    "last": (
        "accumulate('k', v='sum', m='last', finish=last)",
        "rows.groupBy('k').agg(F.sum('v').alias('v'), F.max(F.struct(F.col('n') + {c}, 'g')).alias('m'))"
        ".select('k', 'v', F.col('m').cast('struct<n:bigint,g:string>').alias('m'))",
    ),
    "full": (
        "full()",
        "rows.groupBy('g').agg(F.max('k').alias('k'), F.sum('v').alias('v'), (F.count('*') + {c}).alias('n'))",
    ),
    "look": (
        "by_key('k')",
        "rows.join(known.groupBy('g').agg(F.count('*').alias('w')), 'g', 'left').groupBy('k')"
        ".agg(F.max('g').alias('g'), F.sum('v').alias('v'), (F.sum('w') + {c}).alias('n'))",
    ),
}


def declared(name: str, kind: str, inputs: list[str], constant: int) -> str:
    """One table of the graph as an author would write it."""
    refresh, body = KINDS[kind]
    known = [inputs[-1]] if kind == "look" else []
    given = inputs[: len(inputs) - len(known)]
    wired = [f"'i{n}': '{one}'" for n, one in enumerate(given)] + [f"'known': lookup('{one}', on='g')" for one in known]
    parameters = ", ".join([f"i{n}" for n in range(len(given))] + ["known"] * len(known))
    united = "i0" + "".join(f".unionByName(i{n})" for n in range(1, len(given)))
    shape = "{0}" if kind == "last" or "accumulate" in refresh else "shaped({0})"
    result = body.replace("{c}", str(constant))
    return (
        f"\n\n@table('{name}', refresh={refresh}, inputs={{{', '.join(wired)}}})\n"
        f"def {name.replace('.', '_')}({parameters}):\n    rows = {united}\n    return {shape.format(result)}\n"
    )


# -- the same functions over lists


def largest(values: Iterable[Any]) -> Any:
    return max((v for v in values if v is not None), default=None)


def smallest(values: Iterable[Any]) -> Any:
    return min((v for v in values if v is not None), default=None)


def total(values: Iterable[Any]) -> Any:
    present = [v for v in values if v is not None]
    return sum(present) if present else None


def plus(value: Any, constant: int) -> Any:
    return None if value is None else value + constant


def grouped(rows: list[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def oracle(kind: str, constant: int, given: list[Counter[Row]]) -> Counter[Row]:
    """What the table of a kind holds for these inputs."""
    known = list(given.pop().elements()) if kind == "look" else []
    rows = [row for some in given for row in some.elements()]
    by_k, by_g = grouped(rows, lambda r: r[1]), grouped(rows, lambda r: r[0])
    c = constant
    made: list[Row]
    match kind:
        case "append":
            made = [r for r in rows if (r[2] or 0) % 3 != c]
        case "by_k":
            made = [
                (largest(r[0] for r in of), k, len({r[0] for r in of} - {None}) + c, total(r[3] for r in of))
                for k, of in by_k.items()
            ]
        case "by_h":
            upper = grouped(rows, lambda r: r[0] and r[0].upper())
            made = [(g, smallest(r[1] for r in of), len(of) + c, largest(r[3] for r in of)) for g, of in upper.items()]
        case "sums":
            made = [
                (
                    largest(r[0] for r in of),
                    k,
                    sum((r[2] is not None and r[2] >= c) for r in of),
                    total(r[3] for r in of),
                )
                for k, of in by_k.items()
            ]
        case "ends":
            made = [
                (
                    g,
                    smallest(r[1] for r in of),
                    total(None if r[2] is None else r[2] + c for r in of),
                    largest(r[3] for r in of),
                )
                for g, of in by_g.items()
            ]
        case "last":
            made = []
            for k, of in by_k.items():
                n, g = max(((plus(r[2], c), r[0]) for r in of), key=_struct_order)
                made.append((g, k, n, total(r[3] for r in of)))
        case "full":
            made = [(g, largest(r[1] for r in of), len(of) + c, total(r[3] for r in of)) for g, of in by_g.items()]
        case _:
            count = Counter(r[0] for r in known if r[0] is not None)
            made = []
            for k, of in by_k.items():
                seen = total(count.get(r[0]) for r in of)
                made.append((largest(r[0] for r in of), k, plus(seen, c), total(r[3] for r in of)))
    return Counter(made)


def _struct_order(pair: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((part is not None, part if part is not None else 0) for part in pair)


# -- the machine

cell = {
    "k": st.one_of(st.none(), st.integers(0, 4)),
    "g": st.one_of(st.none(), st.sampled_from(["x", "y", "Y", "z"])),
    "v": st.one_of(st.none(), st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100)),
    "n": st.one_of(st.none(), st.integers(0, 5)),
}
some_rows = st.lists(st.tuples(cell["g"], cell["k"], cell["n"], cell["v"]), min_size=0, max_size=6)


class Lakehouse(RuleBasedStateMachine):
    """One project through its life."""

    histories = 0

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="exact-"))
        self.project: TinyProject = tiny(self.root, HEAD)
        self.kinds: dict[str, tuple[str, list[str]]] = {}
        self.constants: Counter[str] = Counter()
        self.made_with: dict[tuple[str, str], int] = {}
        self.files: dict[tuple[str, str], list[Row]] = {}
        self.everything = False

    @initialize(data=st.data())
    def declare(self, data: st.DataObject) -> None:
        names = ["t.a", "t.b"]
        for number in range(5):
            kind = data.draw(st.sampled_from(sorted(KINDS)))
            wanted = 2 if kind == "look" else data.draw(st.integers(1, 2))
            inputs = data.draw(st.lists(st.sampled_from(names), min_size=wanted, max_size=wanted, unique=True))
            self.kinds[f"t.m{number}"] = (kind, inputs)
            names.append(f"t.m{number}")
        note(str(self.kinds))
        self.write()
        for feed in ("a", "b"):
            self.land(feed, "0.csv", data.draw(some_rows))
        self.run()

    def write(self) -> None:
        tables = [declared(name, kind, inputs, self.constants[name] % 3) for name, (kind, inputs) in self.kinds.items()]
        self.project.declare(HEAD + "".join(tables))

    def land(self, feed: str, name: str, rows: list[Row]) -> None:
        cells = [[r[1], r[0], r[3], r[2]] for r in rows]
        lines = ["k,g,v,n", *(",".join("" if c is None else str(c) for c in line) for line in cells)]
        # A line of four NULLs is `,,,`, which is no blank line.
        self.project.land(name, "\n".join(lines) + "\n", feed)
        self.files[feed, name] = rows
        self.everything = False

    def run(self, **order: Any) -> Any:
        result = self.project.run(**order)
        assert result.status in ("published", "nothing new"), result.error
        graph = {step.table for step in result.plan.steps}
        for name, state in self.project.lake.states().items():
            self.made_with.setdefault((name, state.fingerprint), self.constants[name] % 3)
        self.everything = graph == {"t.a", "t.b", *self.kinds}
        return result

    @rule(feed=st.sampled_from("ab"), rows=some_rows, then=st.booleans())
    def arrive(self, feed: str, rows: list[Row], then: bool) -> None:
        free = (f"{number}.csv" for number in count())  # names of deleted files among them: some come back
        self.land(feed, next(name for name in free if (feed, name) not in self.files), rows)
        if then:
            self.run()

    @rule(data=st.data())
    def correct(self, data: st.DataObject) -> None:
        feed, name = data.draw(st.sampled_from(sorted(self.files)))
        before = self.files[feed, name]
        self.land(feed, name, [*before[1:], *data.draw(some_rows)])
        file = self.root / "landing" / feed / name
        stat = file.stat()
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000 * len(self.files)))
        self.run()

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        several = [key for key in sorted(self.files) if sum(feed == key[0] for feed, _ in self.files) > 1]
        if several:
            feed, name = data.draw(st.sampled_from(several))
            (self.root / "landing" / feed / name).unlink()
            del self.files[feed, name]
            self.run()

    @rule()
    def run_everything(self) -> None:
        self.run()

    @rule(data=st.data())
    def run_a_part(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(["t.a", "t.b", *self.kinds]), min_size=1, max_size=3, unique=True))
        self.run(select=" ".join(chosen))

    @rule(data=st.data())
    def change_code(self, data: st.DataObject) -> None:
        self.constants[data.draw(st.sampled_from(sorted(self.kinds)))] += 1
        self.everything = False
        self.write()
        self.run()

    @rule(point=st.sampled_from(["stage.before-write", "stage.written", "audit.after", "publish.before-commit"]))
    def crash(self, point: str) -> None:
        before = self.project.lake.pointers()
        os.environ["ICEFIELD_FAILPOINTS"] = f"{point}=raise"
        try:
            self.project.run()
        finally:
            del os.environ["ICEFIELD_FAILPOINTS"]
        after = self.project.lake.pointers()
        assert {n: p for n, p in before.items() if n[:4] != "ops."} == {
            n: p for n, p in after.items() if n[:4] != "ops."
        }

    @rule(data=st.data(), expire=st.booleans())
    def compact(self, data: st.DataObject, expire: bool) -> None:
        table = data.draw(st.sampled_from(sorted(n for n in self.project.lake.pointers() if n.startswith("t."))))
        spark = self.spark()
        spark.sql(
            f"CALL {LAKE}.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
        ).collect()
        if expire:
            now = "TIMESTAMP '2100-01-01 00:00:00'"
            spark.sql(
                f"CALL {LAKE}.system.expire_snapshots(table => '{table}', older_than => {now}, retain_last => 1)"
            ).collect()

    @rule(data=st.data(), back=st.booleans())
    def meddle(self, data: st.DataObject, back: bool) -> None:
        """Someone deletes rows by hand; the next run mends the table and whoever reads it, also after a way back."""
        table = data.draw(st.sampled_from(self.there))
        before = meta.current_snapshot(meta.load(self.project.lake.pointers()[table]))
        self.spark().sql(f"DELETE FROM {LAKE}.{table} WHERE n IS NOT NULL")
        self.everything = False
        if back and before is not None:
            self.run(select=" ".join(data.draw(st.lists(st.sampled_from(self.there), min_size=1, max_size=3))))
            call = f"set_current_snapshot('{table}', {before['snapshot-id']})"
            self.spark().sql(f"CALL {LAKE}.system.{call}").collect()
        self.run()

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """Someone drops tables; the next run builds them, and goes on with whoever reads them."""
        for table in data.draw(st.lists(st.sampled_from(self.there), min_size=1, max_size=3, unique=True)):
            self.spark().sql(f"DROP TABLE {LAKE}.{table}")
        self.run()

    @property
    def there(self) -> list[str]:
        """The tables, without feeds, that are in the lake now."""
        return sorted(name for name in self.kinds if name in self.project.lake.pointers())

    def spark(self) -> Any:
        conf = {"spark.sql.shuffle.partitions": "2"}
        spark = start_session(app="icefield tiny", conf=conf, log=self.root / "spark.log")
        lake = self.project.lake
        if getattr(Lakehouse, "at", None) != lake.root:  # Spark keeps a catalog under its name
            manager = spark._jsparkSession.sessionState().catalogManager()
            manager.reset()
            Lakehouse.at = lake.root  # type: ignore[attr-defined]
        add_catalog(spark, LAKE, uri=str(lake.catalog.path), warehouse=str(lake.warehouse))
        return spark

    @invariant()
    def every_table_is_its_function_over_what_it_consumed(self) -> None:
        pointers = self.project.lake.pointers()
        known = {name: meta.load(at) for name, at in pointers.items() if name.startswith("t.")}
        states = {name: table_state(name, found) for name, found in known.items()}
        for name, (kind, inputs) in self.kinds.items():
            if name not in states or states[name].meddled:
                continue
            state = states[name]
            if self.everything:
                for one in inputs:
                    assert states[one].version.holds_rows_of(state.inputs[one]), (name, one)
            wanted = [state.inputs[one].snapshot for one in inputs]
            if any(
                snapshot and not meta.snapshot(known[o], snapshot) for o, snapshot in zip(inputs, wanted, strict=True)
            ):
                continue  # expired
            given = [Counter() if s is None else rows_of(pointers[o], s) for o, s in zip(inputs, wanted, strict=True)]
            constant = self.made_with[name, state.fingerprint]
            assert rows_of(pointers[name]) == oracle(kind, constant, given), (name, kind, inputs)
        if self.everything:
            for feed in ("a", "b"):
                landed = Counter(row for (of, _), rows in self.files.items() if of == feed for row in rows)
                assert rows_of(pointers[f"t.{feed}"]) == landed

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        Lakehouse.histories += 1
        if Lakehouse.histories % 10 == 0:
            print(f"{Lakehouse.histories} histories, about {12 * Lakehouse.histories:,} of {STEPS:,} steps", flush=True)


def test_incremental_is_full_after_any_history(monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"ICEFIELD_EXACT_SEED={SEED}")
    monkeypatch.setattr(update, "REBUILD_SHARE", 0.8)
    monkeypatch.setattr(changes, "MANY_FILES", 1)  # what all have read is dropped whenever something is told
    monkeypatch.setattr(replacing, "SMALL_TABLE", 3)  # both ways of replacing rows occur
    monkeypatch.setattr(replacing, "_TIMES", 1)
    monkeypatch.setattr(renewal, "MANY", 1)  # merged by groups and by joins
    monkeypatch.setattr(keyed, "_TELLING", 2)  # keys listed, and keys joined after their hashes
    monkeypatch.setattr(keyed, "SMALL", 2)
    monkeypatch.setattr(repeats, "SMALL", 2)
    monkeypatch.setattr(repeats, "_SENT", 1)
    mixed = Limits(driver_bytes=150, split_bytes=40, driver_rejects=2, held_bytes=1_000)  # by the driver and by Spark
    monkeypatch.setattr(limits, "LIMITS", mixed)
    machine = settings(
        max_examples=max(2, STEPS // 12),  # the first one that Hypothesis draws is the simplest there is
        stateful_step_count=12,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(seed(SEED)(Lakehouse), settings=machine)
