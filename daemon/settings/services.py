"""How inference services of users are kept up."""

from __future__ import annotations

import math

from pydantic import Field

from slurm_soda.daemon.settings.section import Section

EVERYWHERE = "*"
"""In :attr:`ServicesSettings.first_in`: every partition."""


class ServicesSettings(Section):
    """``[services]``: inference services of users, where these have started any."""

    enabled: bool = True
    """Without a service nothing is done; false: reports of routers are refused, and tasks start as in any job array."""
    lease_s: float = Field(default=300.0, ge=60, le=900)
    """A task that shall not start yet gets a begin time so far ahead, renewed while that holds; it ends without sodad."""
    drain_grace_s: float = Field(default=60.0, ge=0, le=3600)
    """A draining instance is requeued after so long, whatever it still answers."""
    silent_after_s: float = Field(default=30.0, ge=2, lt=math.inf)
    """The load of a service is not known once its router has been silent for so long."""
    most_per_user: int = Field(default=20, ge=1, le=1000)
    """Services that one user may have at a time."""
    headroom: float = Field(default=0.8, gt=0, le=1)
    """Part of an instance's capacity that is counted on."""
    hysteresis: float = Field(default=0.1, ge=0, lt=1)
    """By what part the load must be lower on the way back than on the way out."""
    cool_down_s: float = Field(default=300.0, ge=0, lt=math.inf)
    """Fewer instances, or cores instead of a GPU, only after they would have done for so long."""
    horizon_s: float = Field(default=600.0, ge=60, le=86_400)
    """How far ahead the load is forecast."""
    retry_s: float = Field(default=30.0, gt=0, lt=math.inf)
    """A failed instance is replaced so long after it failed, longer after each further one."""
    requeue_failed_s: float = Field(default=600.0, gt=0, lt=math.inf)
    """Where no more may run beside it, a failed instance is requeued after so long."""
    min_run_s: float = Field(default=60.0, ge=0, lt=math.inf)
    """A job gives way to a service only once it has run for so long since its last start, or for as long as policies say."""
    first_in: list[str] = Field(default_factory=list)
    """Partitions in which tasks of services may go before other jobs, and jobs that may be preempted give way to them;
    ``*``: all; none: nowhere, for any user may report any load of his own service."""
