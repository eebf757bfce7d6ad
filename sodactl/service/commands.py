"""``sodactl service``: inference services, for their owners."""

from __future__ import annotations

import click

from slurm_soda.sodactl.command_line.lazy_commands import LazyCommand, LazyGroup

_HERE = "slurm_soda.sodactl.service"

GROUPS = {
    "Your service file": {
        "check": LazyCommand(f"{_HERE}.check:check", "Check a service file, and say what each device can do."),
        "profile": LazyCommand(
            f"{_HERE}.profile:profile", "Measure how many queries an instance answers on this machine."
        ),
    },
    "Serving": {
        "start": LazyCommand(f"{_HERE}.start:start", "Submit a service's arrays, as their owner."),
        "router": LazyCommand(f"{_HERE}.router:router", "Pass queries to the instances of a service that are ready."),
        "endpoints": LazyCommand(
            f"{_HERE}.router:endpoints", "List the instances that answer queries, for a router of your own."
        ),
        "stop": LazyCommand(f"{_HERE}.start:stop", "Cancel your arrays of a service."),
    },
    "Watching and changing": {
        "list": LazyCommand(f"{_HERE}.show:list_services", "List services: load, latency, instances on each device."),
        "show": LazyCommand(f"{_HERE}.show:show", "Show a service's latency, load and placement over the day."),
        "scale": LazyCommand(f"{_HERE}.change:scale", "Change how many instances a service of yours has."),
        "drain": LazyCommand(
            f"{_HERE}.change:drain", "Let instances of a service of yours answer what they have and leave."
        ),
    },
}
"""All of its commands; the order of ``sodactl service --help``."""


class ServiceGroup(LazyGroup):
    """``sodactl service``: the router runs for months, and shall not carry what the others import."""

    sections = GROUPS


@click.group(cls=ServiceGroup)
def service() -> None:
    """Serve a model by batch jobs, on GPUs or CPU cores by its load.

    A service is described by a file of yours: a command that listens on a port, a latency within which queries shall be
    answered, and what its instances ask Slurm for. `start` submits one job array for each device, a router passes queries to
    the instances that are ready, and sodad decides how many run, and on what. docs/services.md goes from a Python function
    to a service.

    \b
    Examples:
      sodactl service check chat.toml        is the file right, and what can each device do
      sodactl service profile chat.toml      measure it on this machine
      sodactl service start chat.toml        submit its arrays
      sodactl service router chat.toml       pass queries to its instances
      sodactl service show chat              latency, load and placement over the day
      sodactl service scale chat --most 8    let it have more instances
      sodactl service stop chat              cancel its arrays
    """  # noqa: D301 - click reads the control character
