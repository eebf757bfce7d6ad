"""Which running jobs share GPUs now, by what Slurm says of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.client import Allocation, SlurmJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.wire.core_tuning import MAX_GUESTS, GuestGpus


def find_sharing_jobs(jobs: Mapping[int, SlurmJob], allocations: Mapping[int, Allocation]) -> set[int]:
    """Guests, and all jobs that are with one on a GPU or, where it is not known which GPUs they have, on a node.

    A job too many only teaches nothing; one that is missed teaches something wrong.
    """
    on_gpus = [job for job in jobs.values() if job.gpus and job.node_names and _holds(job)]
    if not any(job.shared_gpus for job in on_gpus):
        return set()
    places = {job.job_id: _devices_by_node(job, allocations.get(job.job_id)) for job in on_gpus}
    of_guests: dict[str, list[frozenset[int] | None]] = defaultdict(list)
    for job in on_gpus:
        if job.shared_gpus:
            for node, devices in places[job.job_id].items():
                of_guests[node].append(devices)
    return {
        job.job_id
        for job in on_gpus
        if job.shared_gpus
        or any(
            _meet(devices, guest) for node, devices in places[job.job_id].items() for guest in of_guests.get(node, ())
        )
    }


@dataclass(slots=True)
class GuestsByNode:
    """The guests of the last cycle, for other threads: what is here is only ever replaced as a whole."""

    by_node: Mapping[str, tuple[GuestGpus, ...]] = field(default_factory=dict)

    def note(self, jobs: Mapping[int, SlurmJob], allocations: Mapping[int, Allocation]) -> None:
        """Take in one reading."""
        found: dict[str, list[GuestGpus]] = defaultdict(list)
        for job_id, held in allocations.items():
            for on in held if jobs[job_id].shared_gpus else ():
                if on.shared_indices:
                    found[on.node].append(GuestGpus(job_id, jobs[job_id].restarts, on.shared_indices))
        self.by_node = {node: tuple(guests[:MAX_GUESTS]) for node, guests in found.items()}


def _holds(job: SlurmJob) -> bool:
    return job.state not in ENDED_STATES and job.state != "PENDING"


def _devices_by_node(job: SlurmJob, held: Allocation | None) -> dict[str, frozenset[int] | None]:
    """``None`` where it is not known which."""
    if held is not None:
        return {on.node: None if on.devices is None else frozenset(on.devices) for on in held}
    try:
        return dict.fromkeys(expand_hosts(job.node_names))
    except SodaError:
        return {}


def _meet(devices: frozenset[int] | None, others: frozenset[int] | None) -> bool:
    return devices is None or others is None or not devices.isdisjoint(others)
