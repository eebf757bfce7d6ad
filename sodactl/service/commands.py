"""``sodactl service``: inference services, for their owners."""

from __future__ import annotations

import click

from slurm_soda.sodactl.service.change import drain, scale
from slurm_soda.sodactl.service.check import check
from slurm_soda.sodactl.service.profile import profile
from slurm_soda.sodactl.service.router import endpoints, router
from slurm_soda.sodactl.service.show import list_services, show
from slurm_soda.sodactl.service.start import start, stop


@click.group()
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


for _command in (check, profile, start, router, endpoints, stop, list_services, show, scale, drain):
    service.add_command(_command)
