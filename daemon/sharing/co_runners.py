"""Which running jobs share GPUs now, by what Slurm says of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_soda.daemon.store.progress import CoRunners, RunId, co_runners_name
from slurm_soda.daemon.store.tables.progress import MAX_CO_RUNNERS_LENGTH
from slurm_soda.slurm_ext.client import Allocation, SlurmJob
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.job_states import ENDED_STATES
from slurm_soda.wire.core_tuning import MAX_GUESTS, GuestGpus
from slurm_soda.wire.mps import MpsJob


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


def find_co_runners(
    jobs: Mapping[int, SlurmJob], allocations: Mapping[int, Allocation]
) -> dict[RunId, tuple[RunId, ...]]:
    """Who is with each running job on a GPU: empty for one that is alone. Jobs of which nobody can tell are left out."""
    running = [job for job in jobs.values() if job.gpus and job.state == "RUNNING"]
    sharing = find_sharing_jobs(jobs, allocations)
    places = {
        RunId(job.job_id, job.restarts): _devices_by_node(job, allocations.get(job.job_id))
        for job in jobs.values()
        if job.job_id in sharing
    }
    found: dict[RunId, tuple[RunId, ...]] = {}
    for job in running:
        run = RunId(job.job_id, job.restarts)
        if job.job_id not in sharing:
            found[run] = ()
        elif places[run] and all(devices is not None for node in places[run] for devices in _on_node(places, node)):
            others = (other for other in places if other != run and _are_together(places[run], places[other]))
            found[run] = tuple(sorted(others))
    return {run: others for run, others in found.items() if len(co_runners_name(others)) <= MAX_CO_RUNNERS_LENGTH}


@dataclass(slots=True)
class GuestsByNode:
    """Who shared GPUs in the last cycle, for other threads: what is here is only ever replaced as a whole."""

    by_node: Mapping[str, tuple[GuestGpus, ...]] = field(default_factory=dict)
    """The guests."""
    co_runners_of: Mapping[RunId, CoRunners] = field(default_factory=dict)
    """Of all running jobs with GPUs, as far as it is known."""
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Jobs that are not in scope, by node."""
    _daemons: Mapping[str, frozenset[tuple[int, str]]] = field(default_factory=dict)
    """Jobs under MPS, each with its control daemon, by node."""
    _under_mps: Mapping[int, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """The same by job: nodes and daemons."""

    def note_mps(self, node: str, jobs: Sequence[MpsJob]) -> None:
        """Take in what the agent of a node tells."""
        told = frozenset((job.job_id, job.daemon) for job in jobs)
        if told == self._daemons.get(node, frozenset()):
            return
        self._daemons = {**self._daemons, node: told}
        by_job: dict[int, set[tuple[str, str]]] = defaultdict(set)
        for place, members in self._daemons.items():
            for job_id, daemon in members:
                by_job[job_id].add((place, daemon))
        self._under_mps = {job_id: frozenset(daemons) for job_id, daemons in by_job.items()}

    def note(self, jobs: Mapping[int, SlurmJob], allocations: Mapping[int, Allocation], now_s: float) -> None:
        """Take in one reading of Slurm."""
        under_mps = self._under_mps
        before, co_runners_of = self.co_runners_of, {}
        for run, others in find_co_runners(jobs, allocations).items():
            co_runners = before.get(run)
            if co_runners is None or co_runners.others != others:
                co_runners = CoRunners(others, now_s)
            if not co_runners.mps and others and _share_by_mps(run, others, under_mps):
                co_runners = replace(co_runners, mps=True)  # they do until they part, whatever a node forgets sooner
            co_runners_of[run] = co_runners
        self.co_runners_of = co_runners_of
        found: dict[str, list[GuestGpus]] = defaultdict(list)
        for job_id, held in allocations.items():
            for on in held if jobs[job_id].shared_gpus else ():
                if on.shared_indices:
                    found[on.node].append(GuestGpus(job_id, jobs[job_id].restarts, on.shared_indices))
        self.by_node = {node: tuple(guests[:MAX_GUESTS]) for node, guests in found.items()}


def _share_by_mps(run: RunId, others: Sequence[RunId], under_mps: Mapping[int, frozenset[tuple[str, str]]]) -> bool:
    """Whether a run shares a control daemon with each of these: who has none, or another, takes turns with it."""
    mine = under_mps.get(run.job_id, frozenset())
    return all(not mine.isdisjoint(under_mps.get(other.job_id, frozenset())) for other in others)


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


def _on_node(places: Mapping[RunId, Mapping[str, frozenset[int] | None]], node: str) -> list[frozenset[int] | None]:
    return [devices[node] for devices in places.values() if node in devices]


def _are_together(one: Mapping[str, frozenset[int] | None], other: Mapping[str, frozenset[int] | None]) -> bool:
    return any(node in other and _meet(devices, other[node]) for node, devices in one.items())


def _meet(devices: frozenset[int] | None, others: frozenset[int] | None) -> bool:
    return devices is None or others is None or not devices.isdisjoint(others)
