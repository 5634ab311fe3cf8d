"""What a table needs, decided without Spark: a case for each rule, then thousands of steps over a lake of lists."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from icefield.declare import accumulate, append, by_key, collecting, files, full, lookup, table, unique
from icefield.errors import AllFilesGone, FileChanged, FileMissing
from icefield.graph import Graph, build_graph
from icefield.graph.news import FilesNews, LandedFile, TakenFile
from icefield.graph.state import TableState, Version
from icefield.plan import Range, Step, Wishes, decide, make_plan, read_by_all
from icefield.run.planning import rows_at_stake

if TYPE_CHECKING:
    from icefield.graph import Node


def reading(*names: str) -> Any:
    """A function with the given parameters."""
    space: dict[str, Any] = {}
    exec(f"def f({', '.join(names)}): return None", space)
    return space["f"]


def graph(changed: Any = "fail") -> Graph:
    """b takes files, s appends from b, r appends from b and looks k up, k and g are computed in full.

    y follows b by key, z merges what y and s tell, w follows k by key and looks y up by a column.
    """
    with collecting() as registry:
        source = files("landing/*.csv", schema="x BIGINT", changed=changed)
        table("t.b", source=source, refresh=append())(reading("rows"))
        table("t.s", refresh=append(), inputs={"b": "t.b"})(reading("b"))
        table("t.k", refresh=full(), inputs={"b": "t.b"})(reading("b"))
        table("t.r", refresh=append(), inputs={"b": "t.b", "k": lookup("t.k")})(reading("b", "k"))
        table("t.g", refresh=full(), inputs={"s": "t.s"})(reading("s"))
        table("t.y", refresh=by_key("x"), inputs={"b": "t.b"})(reading("b"))
        table("t.z", refresh=accumulate("x", n="sum"), inputs={"y": "t.y", "s": "t.s"})(reading("y", "s"))
        table("t.w", refresh=by_key("x"), inputs={"k": "t.k", "y": lookup("t.y", on="x")})(reading("k", "y"))
    return build_graph(registry.tables)


GRAPH = graph()
NOTHING = Wishes()


def landed(name: str, time: int = 0) -> LandedFile:
    return LandedFile(path=name, size=10, modified_ns=time)


def taken(name: str, order: int = 0) -> TakenFile:
    return TakenFile(path=name, size=10, modified_ns=0, sha256="", run="", taken_ms=0, order=order)


def state(node: Node, snapshot: int = 1, **more: Any) -> TableState:
    told = {
        "name": node.name, "version": Version(epoch=1, number=snapshot, snapshot=snapshot), "run": "",
        "fingerprint": node.fingerprint, "checks_fingerprint": node.checks_fingerprint, "rows": 10, "columns": (),
        "published_ms": 0, "lineage": tuple((n, "append") for n in range(snapshot, 0, -1)),
    }  # fmt: skip
    return TableState(**{**told, **more})


def after(consumed: int, now: int, **more: Any) -> Step:
    """The step of t.s, which has consumed one version of t.b while another is current."""
    b = state(GRAPH["t.b"], now, **more)
    s = state(GRAPH["t.s"], inputs={"t.b": Version(epoch=1, number=consumed, snapshot=consumed)})
    return decide(GRAPH["t.s"], s, {"t.b": b}, None, NOTHING)


def test_what_is_new_is_appended_from_where_the_table_stands() -> None:
    step = after(3, 5)
    assert (step.action, step.reason) == ("append", "t.b changed")
    assert (step.ranges["t.b"].start, step.ranges["t.b"].end) == (3, 5)
    assert after(5, 5).action == "none"


def test_an_input_that_was_not_only_appended_to_is_read_anew() -> None:
    rebuilt = after(3, 5, version=Version(epoch=2, number=5, snapshot=5))
    assert (rebuilt.action, rebuilt.reason, rebuilt.ranges["t.b"].start) == ("rebuild", "t.b was rebuilt", None)
    assert after(3, 5, lineage=((5, "append"), (4, "overwrite"), (3, "append"))).action == "rebuild"
    assert after(3, 5, lineage=((5, "append"), (4, "replace"), (3, "append"))).action == "append", "a compaction"
    assert after(3, 5, lineage=((5, "append"), (4, "append"))).action == "rebuild", "its history was expired"


def test_a_table_is_rebuilt_when_it_is_asked_for_or_is_another_now() -> None:
    node, b = GRAPH["t.s"], state(GRAPH["t.b"])
    same = state(node, inputs={"t.b": b.version})
    for wishes in (Wishes(full_refresh=True), Wishes(replay=frozenset({"t.s"}))):
        assert decide(node, same, {"t.b": b}, None, wishes).action == "rebuild"
    for change in ({"fingerprint": "old"}, {"checks_fingerprint": "old"}):
        other = replace(same, **change)
        assert decide(node, other, {"t.b": b}, None, NOTHING).action == "rebuild"
        assert decide(node, other, {"t.b": b}, None, Wishes(accept=frozenset({"t.s"}))).action == "note"
    assert decide(node, replace(same, inputs={}), {"t.b": b}, None, NOTHING).reason == "t.b is a new input"


def test_a_lookup_that_changed_rebuilds_who_reads_it() -> None:
    b, k = state(GRAPH["t.b"]), state(GRAPH["t.k"], 2)
    before = {"t.b": b.version, "t.k": Version(epoch=1, number=1, snapshot=1)}
    step = decide(GRAPH["t.r"], state(GRAPH["t.r"], inputs=before), {"t.b": b, "t.k": k}, None, NOTHING)
    assert (step.action, step.reason) == ("rebuild", "the lookup t.k changed")


def test_files_that_changed_are_refused_taken_anew_or_left_as_the_author_said() -> None:
    arrivals = FilesNews(landed=(landed("a", 1),), changed=(landed("a", 1),), taken=(taken("a"),))
    b = state(GRAPH["t.b"])
    with pytest.raises(FileChanged, match="the content of a has changed since ingestion"):
        decide(GRAPH["t.b"], b, {}, arrivals, NOTHING)
    replacing, ignoring = graph("replace")["t.b"], graph("ignore")["t.b"]
    step = decide(replacing, state(replacing, origin=True), {}, arrivals, NOTHING)
    assert (step.action, step.reason) == ("update", "a corrected")
    step = decide(replacing, state(replacing), {}, arrivals, NOTHING)
    assert step.action == "rebuild"
    assert step.reason == "a corrected, and its rows do not tell their file (the column source_file)"
    arrivals = replace(arrivals, changed=(), ignored=arrivals.changed)
    assert decide(ignoring, state(ignoring), {}, arrivals, NOTHING).action == "none"
    assert decide(ignoring, state(ignoring), {}, replace(arrivals, new=(landed("b"),)), NOTHING).reason == "b arrived"
    with pytest.raises(FileChanged, match="the content of a has changed since ingestion"):
        decide(ignoring, state(ignoring), {}, arrivals, Wishes(full_refresh=True))


def test_a_rebuild_without_a_file_that_was_taken_is_refused() -> None:
    gone = FilesNews(missing=(taken("a"),), taken=(taken("a"),))
    b = state(GRAPH["t.b"])
    assert decide(GRAPH["t.b"], b, {}, gone, NOTHING).action == "none"
    with pytest.raises(FileMissing, match="a, ingested earlier, cannot be found"):
        decide(GRAPH["t.b"], b, {}, gone, Wishes(full_refresh=True))


def test_a_remedy_is_one_that_helps() -> None:
    """To accept is no way out of what was asked for, or of what a file itself brought about."""
    node, replacing = GRAPH["t.b"], graph("replace")["t.b"]
    gone = FilesNews(landed=(landed("b"),), missing=(taken("a"),), taken=(taken("a"), taken("b", 1)))
    with pytest.raises(FileMissing, match=r"--accept t\.b"):
        decide(node, state(node, fingerprint="old"), {}, gone, NOTHING)
    corrected = replace(gone, landed=(landed("b", 1),), changed=(landed("b", 1),))
    for which, arrivals, wishes in ((node, gone, Wishes(full_refresh=True)), (replacing, corrected, NOTHING)):
        with pytest.raises(FileMissing, match='deleted="withdraw"') as told:
            decide(which, state(which), {}, arrivals, wishes)
        assert "--accept" not in str(told.value)


def test_the_rows_of_a_file_that_is_gone_leave() -> None:
    node = graph("replace")["t.b"]
    gone = FilesNews(landed=(landed("b"),), gone=(taken("a"),), taken=(taken("a"), taken("b", 1)))
    both = replace(gone, landed=(landed("b", 1),), changed=(landed("b", 1),))
    old, told = state(node, fingerprint="old", origin=True), state(node, origin=True)
    assert decide(node, state(node), {}, gone, NOTHING).action == "rebuild", "its rows do not tell their file"
    assert decide(node, told, {}, gone, NOTHING).action == "update"
    assert decide(node, told, {}, gone, NOTHING).reason == "1 file removed: a"
    assert decide(node, told, {}, both, NOTHING).reason == "b corrected; 1 file removed: a"
    assert decide(node, old, {}, gone, NOTHING).reason == "its code changed; 1 file removed: a"
    many = replace(gone, gone=tuple(taken(name) for name in "cdefg"))
    assert decide(node, told, {}, many, NOTHING).reason == "5 files removed"
    ignoring, both = graph("ignore")["t.b"], replace(both, changed=(), ignored=both.changed)
    assert decide(ignoring, state(ignoring, origin=True), {}, both, NOTHING).action == "update"
    with pytest.raises(FileChanged, match="the content of b has changed since ingestion"):
        decide(ignoring, state(ignoring), {}, both, NOTHING)


def test_an_empty_landing_folder_withdraws_nothing() -> None:
    gone = FilesNews(gone=(taken("a"),), taken=(taken("a"),))
    for wishes in (NOTHING, Wishes(full_refresh=True), Wishes(accept=frozenset({"t.b"}))):
        with pytest.raises(AllFilesGone, match="is their disk mounted"):
            decide(GRAPH["t.b"], state(GRAPH["t.b"]), {}, gone, wishes)


def test_a_table_read_in_full_loses_no_row_with_a_file_unless_that_is_said() -> None:
    with collecting() as registry:
        table("t.f", source=files("landing/*.csv", schema="x BIGINT"), refresh=full())(reading("rows"))
    node = build_graph(registry.tables)["t.f"]
    known = {"landed": (landed("b"),), "taken": (taken("a"), taken("b", 1))}
    assert decide(node, state(node), {}, FilesNews(missing=(taken("a"),), **known), NOTHING).action == "none"
    with pytest.raises(FileMissing, match="c arrived"):
        decide(node, state(node), {}, FilesNews(missing=(taken("a"),), new=(landed("c"),), **known), NOTHING)
    step = decide(node, state(node), {}, FilesNews(gone=(taken("a"),), **known), NOTHING)
    assert (step.action, step.reason) == ("refresh", "1 file removed: a")


def test_a_replay_without_its_files_is_not_told_to_accept_anything() -> None:
    gone = FilesNews(missing=(taken("a"),), taken=(taken("a"),))
    other = FilesNews(landed=(landed("a", 1),), ignored=(landed("a", 1),), taken=(taken("a"),))
    with collecting() as registry:
        source = files("landing/*.csv", schema="x BIGINT", changed="ignore")
        table("t.b", source=source, checks=[unique("x", otherwise="quarantine")])(reading("rows"))
    node = build_graph(registry.tables)["t.b"]
    wishes = Wishes(replay=frozenset({"t.b"}))
    with pytest.raises(FileMissing, match="restore the files, and try again") as missing:
        decide(node, state(node), {}, gone, wishes)
    with pytest.raises(FileChanged, match="restore the old content, and try again") as changed:
        decide(node, state(node), {}, other, wishes)
    assert "--accept" not in f"{missing.value} {changed.value}"
    step = decide(node, state(node, origin=True), {}, gone, wishes)
    assert (step.action, step.reason) == ("update", "its quarantine is replayed"), "its files are not needed"


def test_touched_files_are_only_noted() -> None:
    step = decide(GRAPH["t.b"], state(GRAPH["t.b"]), {}, FilesNews(touched=(landed("a", 1),)), NOTHING)
    assert (step.action, step.reason) == ("note", "a touched, content unchanged")


def test_what_a_plan_reads_is_estimated_from_files_and_inputs() -> None:
    big = FilesNews(landed=(replace(landed("a"), size=80_000),), new=(replace(landed("a"), size=80_000),))
    first = make_plan(GRAPH, {}, {"t.b": big}, GRAPH.order, NOTHING)
    assert rows_at_stake(first, {}) == 1000
    b, s = state(GRAPH["t.b"], 2, rows=7_000_000), state(GRAPH["t.s"], rows=5_000_000)
    states = {"t.b": b, "t.s": replace(s, inputs={"t.b": b.version})}
    gold = make_plan(GRAPH, states, {"t.b": FilesNews()}, ("t.g",), NOTHING)
    assert rows_at_stake(gold, states) == 5_000_000


def followed(consumed: int, now: int, **more: Any) -> Step:
    """The step of t.z, which has consumed one version of t.y, which tells its changes, while another is current."""
    y = state(GRAPH["t.y"], now, **{"changes": 0, **more})
    s = state(GRAPH["t.s"])
    z = state(GRAPH["t.z"], inputs={"t.y": Version(epoch=1, number=consumed, snapshot=consumed), "t.s": s.version})
    return decide(GRAPH["t.z"], z, {"t.y": y, "t.s": s}, None, NOTHING)


def test_changes_that_are_told_are_followed_from_where_the_table_stands() -> None:
    step = followed(3, 5)
    assert (step.action, step.ranges["t.y"].after, step.ranges["t.y"].until) == ("update", 3, 5)
    assert not step.ranges["t.s"].changed
    assert followed(5, 5).action == "none"
    assert followed(3, 5, changes=3).action == "update"
    assert (
        followed(3, 5, changes=4).reason == "the changelog of t.y no longer covers the changes since it was last read"
    )
    assert followed(3, 5, version=Version(epoch=2, number=5, snapshot=5)).reason == "t.y was rebuilt"


def test_a_compaction_is_no_change() -> None:
    compacted = Version(epoch=1, number=3, snapshot=99)
    assert followed(3, 3, version=compacted, lineage=((99, "replace"), (3, "append"))).action == "none"
    assert after(3, 3, version=compacted, lineage=((99, "replace"), (3, "append"))).action == "none"


def test_a_table_that_someone_else_changed_is_made_right_or_accepted() -> None:
    b = state(GRAPH["t.b"])
    odd = state(GRAPH["t.s"], inputs={"t.b": b.version}, meddled=True)
    step = decide(GRAPH["t.s"], odd, {"t.b": b}, None, NOTHING)
    assert (step.action, step.reason) == ("rebuild", "its rows were changed outside icefield")
    accepted = decide(GRAPH["t.s"], odd, {"t.b": b}, None, Wishes(accept=frozenset({"t.s"})))
    assert accepted.action == "note"


def test_an_appending_table_follows_what_its_input_removed_and_added() -> None:
    y = state(GRAPH["t.y"], 5, changes=0)
    with collecting() as registry:
        table("t.y", refresh=by_key("x"), source=None, inputs={"b": "t.b"})(reading("b"))
        table("t.b", source=files("landing/*.csv", schema="x BIGINT"))(reading("rows"))
        table("t.v", refresh=append(), inputs={"y": "t.y"})(reading("y"))
    node = build_graph(registry.tables)["t.v"]
    v = state(node, inputs={"t.y": Version(epoch=1, number=3, snapshot=3)})
    assert decide(node, v, {"t.y": y}, None, NOTHING).action == "update"
    assert decide(node, v, {"t.y": replace(y, changes=4)}, None, NOTHING).action == "rebuild", "not all is told"


def test_what_all_who_follow_have_read_is_needed_by_nobody() -> None:
    def behind(number: int, epoch: int = 1) -> TableState:
        return state(GRAPH["t.z"], inputs={"t.y": Version(epoch=epoch, number=number, snapshot=number)})

    y = state(GRAPH["t.y"], 9, changes=3)
    assert read_by_all(y, [behind(5), behind(8)]) == 5
    assert read_by_all(y, [behind(9)]) == 9
    assert read_by_all(y, [behind(1), behind(8)]) == 8, "one that must rebuild needs nothing"
    assert read_by_all(y, [behind(1, epoch=0), behind(8)]) == 8, "nor does one that read another epoch"
    assert read_by_all(y, []) == read_by_all(y, [state(GRAPH["t.z"])]) == 9


def test_a_lookup_by_a_column_is_followed_by_the_keys_that_carry_it() -> None:
    k, y = state(GRAPH["t.k"], 2, changes=0), state(GRAPH["t.y"], 3, changes=0)
    before = {"t.k": k.version, "t.y": Version(epoch=1, number=1, snapshot=1)}
    step = decide(GRAPH["t.w"], state(GRAPH["t.w"], inputs=before), {"t.k": k, "t.y": y}, None, NOTHING)
    assert (step.action, step.ranges["t.y"].after) == ("update", 1)


# -- a lake made of lists


@dataclass
class Lake:
    """Carries plans out on lists: every table remembers what it consumed, as a real one does."""

    graph: Graph = field(default_factory=lambda: graph("replace"))
    code: Counter[str] = field(default_factory=Counter)
    folder: dict[str, tuple[int, int]] = field(default_factory=dict)
    took: dict[str, tuple[TakenFile, int]] = field(default_factory=dict)
    states: dict[str, TableState] = field(default_factory=dict)
    rows: dict[tuple[str, int], Counter[Any]] = field(default_factory=dict)
    #: By table and number: what was removed and added.
    told: dict[tuple[str, int], tuple[Counter[Any], Counter[Any]]] = field(default_factory=dict)
    clock: int = 0

    def node(self, name: str) -> Node:
        return replace(self.graph[name], fingerprint=f"{name} {self.code[name]}")

    def arrivals(self) -> FilesNews:
        here = {name: landed(name, time) for name, (_, time) in self.folder.items()}
        before = {name: file for name, (file, _) in self.took.items()}
        return FilesNews(
            landed=tuple(here.values()),
            new=tuple(file for name, file in here.items() if name not in before),
            changed=tuple(
                file for name, file in here.items() if name in before and file.modified_ns != before[name].modified_ns
            ),
            gone=tuple(file for name, file in before.items() if name not in here),
            taken=tuple(before.values()),
        )

    def made(self, name: str, inputs: dict[str, Counter[Any]]) -> Counter[Any]:
        """The function of each table; it tells which code made a row."""
        code = self.code[name]
        match name:
            case "t.s":
                return Counter({(row, code): n for row, n in inputs["t.b"].items()})
            case "t.k":
                return Counter({("sum", sum(value * n for (_, value, _), n in inputs["t.b"].items()), code): 1})
            case "t.r":
                known = next(iter(inputs["t.k"]), None)
                return Counter({(row, known, code): n for row, n in inputs["t.b"].items()})
            case "t.y":
                totals: Counter[int] = Counter()
                for (_, value, _), n in inputs["t.b"].items():
                    totals[value % 5] += value * n + 1
                return Counter({(key, amount, code): 1 for key, amount in totals.items()})
            case "t.z":
                sums: Counter[int] = Counter()
                for (key, amount, _), n in inputs["t.y"].items():
                    sums[key] += amount * n
                for ((_, value, _), _), n in inputs["t.s"].items():
                    sums[value % 5] += 1000 * n
                return Counter({(key, amount, code): 1 for key, amount in sums.items()})
            case "t.w":
                seen = {key: amount for key, amount, _ in inputs["t.y"]}
                return Counter(
                    {(total % 5, total, seen.get(total % 5), code): n for (_, total, _), n in inputs["t.k"].items()}
                )
            case _:
                return Counter({("count", inputs["t.s"].total(), code): 1})

    def run(self, selection: tuple[str, ...], wishes: Wishes) -> None:
        nodes = {name: self.node(name) for name in self.graph.order}
        arrivals = {"t.b": self.arrivals()} if "t.b" in selection else {}
        for name in self.graph.order:
            if name not in selection or any(need not in self.states for need in nodes[name].inputs):
                continue
            step = decide(nodes[name], self.states.get(name), self.states, arrivals.get(name), wishes)
            if step.action not in ("none", "note"):
                self.carry_out(nodes[name], step)
            elif step.action == "note":
                self.states[name] = replace(self.states[name], fingerprint=nodes[name].fingerprint)

    def carry_out(self, node: Node, step: Step) -> None:
        before = self.states.get(node.name)
        was: Counter[Any] = Counter()
        if before is not None and before.version.snapshot is not None:
            was = self.rows[node.name, before.version.snapshot]
        if step.action == "update":
            now = self.by_key(node, step, was)
        else:
            new = self.from_files(step) if node.name == "t.b" else self.from_inputs(node, step)
            now = was + new if step.action == "append" else new
        keeps = step.action in ("append", "update") or (step.action == "refresh" and node.name == "t.k")
        self.clock += 1
        number = (before.version.number if before else 0) + 1
        version = Version(
            epoch=(before.version.epoch if before else 0) + (not keeps), number=number, snapshot=self.clock
        )
        self.rows[node.name, self.clock] = now
        self.told[node.name, number] = (was - now, now - was)
        lineage = (
            (self.clock, "append" if step.action == "append" else "overwrite"),
            *(before.lineage if before else ()),
        )
        tells = node.name in ("t.y", "t.k")
        since = before.changes if keeps and before is not None else number
        self.states[node.name] = state(
            node,
            version=version,
            lineage=lineage,
            inputs={name: self.states[name].version for name in node.inputs},
            changes=since if tells else None,
        )

    def change(self, name: str, wanted: Range) -> tuple[Counter[Any], Counter[Any]]:
        """What an input removed and added in a range, equal pairs cancelled."""
        if wanted.after is None or wanted.until is None:
            end = Counter() if wanted.end is None else self.rows[name, wanted.end]
            start = Counter() if wanted.start is None else self.rows[name, wanted.start]
            assert not start - end, "only appends are read between two versions"
            return Counter(), end - start
        removed: Counter[Any] = Counter()
        added: Counter[Any] = Counter()
        for number in range(wanted.after + 1, wanted.until + 1):
            removed += self.told[name, number][0]
            added += self.told[name, number][1]
        return removed - added, added - removed

    def by_key(self, node: Node, step: Step, was: Counter[Any]) -> Counter[Any]:
        """Only rows of touched keys are computed, from the inputs' rows of those keys."""
        keys = {
            self.key(name, row)
            for name, wanted in step.ranges.items()
            for rows in self.change(name, wanted)
            for row in rows
        }
        whole = {name: self.rows[name, wanted.end] for name, wanted in step.ranges.items() if wanted.end is not None}
        given = {
            name: rows if name == "t.y" and node.name == "t.w" else self.of(name, rows, keys)
            for name, rows in whole.items()
        }
        return Counter({row: n for row, n in was.items() if row[0] not in keys}) + self.made(node.name, given)

    def of(self, name: str, rows: Counter[Any], keys: set[int]) -> Counter[Any]:
        return Counter({row: n for row, n in rows.items() if self.key(name, row) in keys})

    def key(self, name: str, row: Any) -> int:
        match name:
            case "t.b" | "t.k":
                return int(row[1] % 5)
            case "t.s":
                return int(row[0][1] % 5)
            case _:
                return int(row[0])

    def compact(self, name: str) -> None:
        """Another snapshot of the same rows, as a compaction leaves it."""
        now = self.states[name]
        self.clock += 1
        self.rows[name, self.clock] = self.rows[name, now.version.snapshot or 0]
        version = replace(now.version, snapshot=self.clock)
        self.states[name] = replace(now, version=version, lineage=((self.clock, "replace"), *now.lineage))

    def forget(self, name: str) -> None:
        """Old changes are trimmed, old snapshots expired."""
        now = self.states[name]
        trimmed = None if now.changes is None else now.version.number
        self.states[name] = replace(now, changes=trimmed, lineage=now.lineage[:1])

    def meddle(self, name: str) -> None:
        """Someone takes rows out; what the lake remembers does not fit any more."""
        now = self.states[name]
        self.clock += 1
        self.rows[name, self.clock] = Counter()
        version = replace(now.version, snapshot=self.clock)
        self.states[name] = replace(now, version=version, meddled=True)

    def from_files(self, step: Step) -> Counter[Any]:
        assert step.news is not None
        found: Counter[Any] = Counter()
        for file in step.news.gone:
            del self.took[file.path]
        for file in step.news.new if step.action == "append" else step.news.landed:
            value, time = self.folder[file.path]
            found[file.path, value, self.code["t.b"]] += 1
            self.took[file.path] = (replace(taken(file.path), modified_ns=time), value)
        return found

    def from_inputs(self, node: Node, step: Step) -> Counter[Any]:
        given = {}
        for name, wanted in step.ranges.items():
            assert wanted.end is not None
            whole = self.rows[name, wanted.end]
            looked_up = name == "t.k"
            given[name] = whole if wanted.start is None or looked_up else whole - self.rows[name, wanted.start]
        return self.made(node.name, given)

    def require_right(self, *, everything: bool) -> None:
        """Every table is its function over its inputs at the versions it has consumed; or over the current ones."""
        for name, now in self.states.items():
            assert now.version.snapshot is not None
            if now.meddled:
                assert not everything
                continue
            here = self.rows[name, now.version.snapshot]
            if name == "t.b":
                known = {(path, value) for path, (_, value) in self.took.items()}
                assert {(path, value) for path, value, _ in here} == known
                assert here.total() == len(known)
                continue
            if everything:
                assert {n: v.number for n, v in now.inputs.items()} == {
                    n: self.states[n].version.number for n in now.inputs
                }
            given = {n: self.rows[n, v.snapshot] for n, v in now.inputs.items() if v.snapshot is not None}
            made_by = now.fingerprint.rpartition(" ")[2]
            keep, self.code[name] = self.code[name], int(made_by)
            assert here == self.made(name, given), name
            self.code[name] = keep


@pytest.mark.parametrize("seed", range(25))
def test_after_any_history_every_table_is_its_function_over_what_it_consumed(seed: int) -> None:
    chance = random.Random(seed)
    lake = Lake()
    for _ in range(120):
        happens = [
            "arrive",
            "arrive",
            "correct",
            "delete",
            "code",
            "select",
            "select",
            "all",
            "full",
            "compact",
            "forget",
            "meddle",
        ]
        match chance.choice(happens):
            case "arrive":
                lake.folder[f"f{chance.randrange(30)}"] = (chance.randrange(100), lake.clock)
            case "correct" if lake.folder:
                name = chance.choice(sorted(lake.folder))
                lake.folder[name] = (chance.randrange(100), lake.folder[name][1] + 1)
            case "delete" if len(lake.folder) > 1:
                del lake.folder[chance.choice(sorted(lake.folder))]
            case "code":
                lake.code[chance.choice(lake.graph.order)] += 1
            case "select":
                some = tuple(name for name in lake.graph.order if chance.random() < 0.5)
                lake.run(some, Wishes())
                lake.require_right(everything=False)
            case "all":
                lake.run(lake.graph.order, Wishes())
                lake.require_right(everything=True)
            case "full":
                lake.run(lake.graph.order, Wishes(full_refresh=True))
                lake.require_right(everything=True)
            case "compact" | "forget" | "meddle" as what if lake.states:
                getattr(lake, what)(chance.choice(sorted(lake.states)))
            case _:
                pass
