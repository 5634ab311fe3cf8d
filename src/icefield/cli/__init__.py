"""The command line: one module a command or group of commands; `output` alone prints."""

import sys

from icefield import interrupt


def main() -> None:
    """The `icefield` command."""
    interrupt.listen()  # before anything that takes time

    from icefield.cli.app import build_app, reordered  # noqa: PLC0415 - importing a part of this builds no commands

    arguments = reordered(sys.argv[1:])
    try:
        build_app(arguments)(arguments, prog_name="icefield")
    except SystemExit as end:
        interrupt.command_ended(end.code if isinstance(end.code, int) else 0)
        raise
