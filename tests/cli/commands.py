"""Runs commands in this process, as a shell would see them."""

from __future__ import annotations

from dataclasses import dataclass

from typer.testing import CliRunner

from icefield.cli.app import build_app


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left: its exit code, its result and what it said beside it."""

    code: int
    out: str
    err: str


def icefield(*arguments: str, stdin: str | None = None) -> Done:
    done = CliRunner().invoke(build_app(arguments), list(arguments), input=stdin, prog_name="icefield")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(code=done.exit_code, out=done.stdout, err=done.stderr)


def lines(text: str) -> list[str]:
    """The lines that say something, with the spaces between columns evened out."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]
