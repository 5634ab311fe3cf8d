"""The command line: one module a group of commands; `output` alone prints."""


def main() -> None:
    """The `icefield` command."""
    from icefield.cli.app import app  # noqa: PLC0415 - importing a part of this package builds no commands

    app(prog_name="icefield")
