"""The command line: one module a command or group of commands; `output` alone prints."""

import sys


def main() -> None:
    """The `icefield` command."""
    from icefield.cli.app import build_app  # noqa: PLC0415 - importing a part of this package builds no commands

    build_app(sys.argv[1:])(prog_name="icefield")
