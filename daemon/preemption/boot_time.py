"""When slurmctld was started: what ended while it was down, it dates with its return."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

from slurm_soda.daemon.logs import log
from slurm_soda.daemon.preemption.state_machine import LEAVING_PHASES, ActivePreemption
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES


def read_boot_s(client: SlurmClient, preemptions: Iterable[ActivePreemption], jobs: Mapping[int, SlurmJob]) -> float:
    """Slurm is asked only if a job that was to be preempted has ended; infinite if not, or if it does not say."""
    states = {jobs[each.job_id].state for each in preemptions if each.phase in LEAVING_PHASES and each.job_id in jobs}
    if states.isdisjoint(ENDED_STATES):
        return math.inf
    try:
        return client.boot_s()
    except SlurmError as error:
        log(logging.WARNING, "boot-time-unknown", error=error)
        return math.inf
