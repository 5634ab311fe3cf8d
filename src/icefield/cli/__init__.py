"""The command line: one module a command or group of commands; `output` alone prints."""

import sys

from icefield import interrupt


def main() -> None:
    """The `icefield` command."""
    interrupt.listen()  # before anything that takes time

    from icefield.cli.app import build_app  # noqa: PLC0415 - importing a part of this package builds no commands

    try:
        build_app(sys.argv[1:])(prog_name="icefield")
    except SystemExit as end:
        interrupt.command_ended(end.code if isinstance(end.code, int) else 0)
        raise
