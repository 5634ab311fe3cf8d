"""`icefield engine`: the process that `keep_warm` keeps in the background."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import typer

from icefield.cli import output
from icefield.cli.guard import guarded
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.project.config import find_project, read_config
from icefield.run.background.client import ask_engine
from icefield.run.background.place import place_of
from icefield.words import plural, seconds

if TYPE_CHECKING:
    from pathlib import Path

#: How long to wait until an engine is gone.
_END_SECONDS = 10.0


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Show or stop the engine that keep_warm keeps in the background between commands.", no_args_is_help=True
    )
    group.command("status")(guarded(status))
    group.command("stop")(guarded(stop))
    app.add_typer(group, name="engine")


def status(*, as_json: Json = False, project: ProjectDir = HERE, profile: ProfileName = None) -> None:
    """Show whether an engine is running for this project and profile, and since when."""
    name, found = _asked("status", project, profile)
    if found is not None:
        found[0].close()
    told = None if found is None else found[1]
    if as_json:
        output.json({"profile": name, "running": told is not None, **(told or {})})
    elif told is None:
        output.line(f"No engine is running for profile {name}")
    else:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["started"]))
        output.line(f"The engine of profile {name} is running: pid {told['pid']}, since {since}")
        output.line(f"{plural(told['commands'], 'command')} so far, {_state(told)}")
        output.line(f"Log: {told['log']}")


def stop(*, as_json: Json = False, project: ProjectDir = HERE, profile: ProfileName = None) -> None:
    """Stop the engine of this project and profile; if it is working for a command, it ends after that."""
    name, found = _asked("stop", project, profile)
    told = None if found is None else found[1]
    busy = told is not None and bool(told["busy"])
    if found is not None:
        with found[0] as link:
            if not busy:
                _wait_for_end(link)
    if as_json:
        output.json({"profile": name, "pid": None if told is None else told["pid"], "busy": busy})
    elif told is None:
        output.line(f"No engine is running for profile {name}")
    elif busy:
        output.line(f"The engine of profile {name} (pid {told['pid']}) is busy and ends after its current command")
    else:
        output.line(f"Stopped the engine of profile {name} (pid {told['pid']})")


def _asked(verb: str, project: Path, profile: str | None) -> tuple[str, tuple[socket.socket, dict[str, Any]] | None]:
    """The profile's name, and what its engine answers."""
    config = read_config(find_project(project), profile)
    place = place_of(config.root, config.profile.name)
    found = None if place is None else ask_engine(place, {"verb": verb})
    if found is not None and found[1].pop("answer", "") not in ("status", "stopping"):
        found[0].close()
        found = None
    return config.profile.name, found


def _state(told: dict[str, Any]) -> str:
    if told["busy"]:
        return "busy now"
    left = max(0.0, told["keep_warm_seconds"] - told["idle_seconds"])
    return f"idle for {seconds(told['idle_seconds'])}, ends in {seconds(left)} if no command comes"


def _wait_for_end(link: socket.socket) -> None:
    """Its end closes the connection."""
    link.settimeout(_END_SECONDS)
    try:
        link.recv(1)
    except OSError:
        return
