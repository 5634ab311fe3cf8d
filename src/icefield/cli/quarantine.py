"""`icefield quarantine`: the rows that failed a check, why, and where they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from icefield.cli import output, repair
from icefield.cli.first_arrivals import first_arrivals
from icefield.cli.guard import guarded
from icefield.cli.opening import lake_at
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.cli.output import Column, Count
from icefield.declare.suggest import did_you_mean
from icefield.errors import NoSuchTable
from icefield.query import open_reader
from icefield.query.overview import columns
from icefield.query.reader import quoted
from icefield.words import plural

if TYPE_CHECKING:
    from icefield.query import Reader

SUFFIX = "__quarantine"
_ROWS = Column(name="rows", right=True)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Show, replay or discard rejected rows.", no_args_is_help=True)
    group.command("ls")(guarded(ls))
    group.command("show")(guarded(show))
    group.command("replay")(guarded(repair.replay))
    group.command("discard")(guarded(repair.discard))
    app.add_typer(group, name="quarantine")


def ls(*, as_json: Json = False, project: ProjectDir = HERE, profile: ProfileName = None) -> None:
    """List the number of quarantined rows by table and reason."""
    with open_reader(lake_at(project, profile)) as reader:
        waiting = [_waiting(reader, name) for name in reader.pins if name.endswith(SUFFIX)]
    if as_json:
        output.json(waiting)
    elif not any(one["rows"] for one in waiting):
        output.line("Quarantine is empty")
    else:
        rows = [(one["table"], reason, Count(n)) for one in waiting for reason, n in one["reasons"].items()]
        output.table(("table", Column(name="reason", wraps=True), _ROWS), rows)
        output.line(f"{plural(sum(one['rows'] for one in waiting), 'row')} in quarantine")


def show(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table whose rejected rows to show.")],
    *,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Only rows with a reason that contains this text.")
    ] = None,
    where: Annotated[
        str,
        typer.Option("--where", metavar="SQL", help="Only rows that match: DuckDB SQL over the quarantine's columns."),
    ] = "true",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows.")] = 20,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Show the rejected rows of a table: reasons, source file and line, and the original text."""
    with open_reader(lake_at(project, profile)) as reader:
        name = _find(reader, table)
        chosen = f"({where}) AND {_has_reason(reader, name, reason)}"
        rows = _rejected(reader, name, chosen, limit)
        ((total,),) = reader.query(f"SELECT count(*) FROM {quoted(name)} WHERE {chosen}").rows()
        repeated = first_arrivals(reader, name.removesuffix(SUFFIX), rows, project, profile)
    if as_json:
        output.json([{**row, "repeats": repeated.get(number)} for number, row in enumerate(rows)])
        return
    shown = [(_origin(row), _why(row, repeated.get(number)), row["raw"]) for number, row in enumerate(rows)]
    output.table(("from", Column(name="reasons", wraps=True), Column(name="text", wraps=True)), shown)
    output.note(f"{len(rows):,} of {plural(total, 'row')}" + ("; --limit shows more" if len(rows) < total else ""))


def _rejected(reader: Reader, name: str, chosen: str, limit: int) -> list[dict[str, Any]]:
    found = reader.query(_bad_rows(reader, name, chosen, limit))
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows()]


def _has_reason(reader: Reader, name: str, reason: str | None) -> str:
    if reason is None:
        return "true"
    text = reason.replace("'", "''")
    return f"len(list_filter({_own(reader, name)['reasons']}, r -> contains(lower(r), lower('{text}')))) > 0"


def _why(row: dict[str, Any], repeats: str | None) -> str:
    return ", ".join(row["reasons"] or ()) + (f" (repeats {repeats})" if repeats else "")


def _find(reader: Reader, table: str) -> str:
    names = [name.removesuffix(SUFFIX) for name in reader.pins if name.endswith(SUFFIX)]
    wanted = table.removesuffix(SUFFIX)
    found = [name for name in names if wanted in (name, name.partition(".")[2])]
    if len(found) != 1:
        told = f"`{table}` is ambiguous: {', '.join(found)}" if found else f"`{table}` has no quarantine"
        raise NoSuchTable(told, remedy=did_you_mean(table, names, all_of_them="tables with a quarantine"))
    return found[0] + SUFFIX


def _own(reader: Reader, name: str) -> dict[str, str]:
    """How the quarantine calls its own columns: the author's keep their names where both would have the same."""
    known = {column["name"] for column in columns(reader.pin(name))}
    told = ("raw", "reasons", "run", "line", "arrival", "quarantined_at")
    return {key: f'"quarantine_{key}"' if f"quarantine_{key}" in known else f'"{key}"' for key in told}


def _waiting(reader: Reader, name: str) -> dict[str, Any]:
    own = _own(reader, name)
    reasons = reader.query(
        # Every malformed line has a story of its own: together they are one reason.
        "SELECT CASE WHEN reason LIKE 'malformed%' THEN 'malformed' ELSE reason END, count(*)"
        f" FROM (SELECT unnest({own['reasons']}) AS reason FROM {quoted(name)}) GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    return {"table": name.removesuffix(SUFFIX), "rows": reader.count(name), "reasons": dict(reasons.rows())}


def _bad_rows(reader: Reader, name: str, chosen: str, limit: int) -> str:
    own = _own(reader, name)
    table = name.removesuffix(SUFFIX).replace("'", "''")
    origins = ["SELECT NULL::BIGINT AS arrival, NULL::VARCHAR AS path, true AS has_lines WHERE false"]
    if "ops.files" in reader.pins:
        origins.append(f"SELECT arrival, any_value(path), true FROM ops.files WHERE \"table\" = '{table}' GROUP BY 1")
    if "ops.offsets" in reader.pins:
        origins.append(f"SELECT arrival, topic || '/' || partition, true FROM ops.offsets WHERE \"table\" = '{table}'")
    if "ops.reads" in reader.pins:
        origins.append(f"SELECT DISTINCT arrival, relation, false FROM ops.reads WHERE \"table\" = '{table}'")
    files = " UNION ALL ".join(origins)
    return (
        f"SELECT q.{own['reasons']} AS reasons, f.path AS file,"
        f" CASE WHEN f.has_lines IS NOT FALSE THEN q.{own['line']} END AS line, q.{own['raw']} AS raw,"
        f" q.{own['run']} AS run, q.{own['quarantined_at']} AS quarantined_at, {_values(reader, name)} AS values"
        f" FROM (SELECT * FROM {quoted(name)} WHERE {chosen}) q LEFT JOIN ({files}) f ON f.arrival = q.{own['arrival']}"
        f" ORDER BY q.{own['arrival']}, q.{own['line']} LIMIT {limit}"
    )


def _values(reader: Reader, name: str) -> str:
    """The row's own columns as texts, for whoever looks for the row that it repeats."""
    told = {text.strip('"') for text in _own(reader, name).values()}
    names = [column["name"] for column in columns(reader.pin(name)) if column["name"] not in told]
    listed = ", ".join(f"{_text(n)}: CAST(q.{_quoted(n)} AS VARCHAR)" for n in names)
    return f"{{{listed}}}" if listed else "NULL"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _origin(row: dict[str, Any]) -> str:
    file, line = row["file"], row["line"]
    return f"{file}:{line}" if file and line is not None else file or ""
