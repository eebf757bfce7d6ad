"""What a policy that shares GPUs sees beyond a :class:`ClusterSnapshot`: single GPUs, kinds of jobs, and who knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, KindProfile
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, Mechanism
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState, JobTable
from slurm_soda.policies.snapshot_file.identifiers import JobId, Sentence


@runtime_checkable
class TellsFits(Protocol):
    """A predictor of slowdowns that predicts memory as well."""

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        """As :meth:`KindEstimates.fits`."""
        ...


class KindEstimates(Protocol):
    """Everything that is known about kinds of jobs, from whatever source; ``None`` where nobody knows."""

    def xi(self, slowed: JobKind, others: Sequence[JobKind]) -> Estimate | None:
        """As :meth:`.InterferenceEstimator.xi`; infinite values do not exist: jobs that do not fit have no xi."""
        ...

    def fits(self, together: Sequence[JobKind]) -> bool | None:
        """Whether these fit into the memory of one GPU at once."""
        ...

    def never_fits(self, together: Sequence[JobKind]) -> bool:
        """Whether these are known, not guessed, to need more memory than one GPU has."""
        ...

    def profile(self, kind: JobKind) -> KindProfile | None:
        """What a kind does to one GPU when it is alone there."""
        ...

    def throughput(self, kind: JobKind) -> Throughput | None:
        """Iteration times of a kind by batch and sub-batch."""
        ...

    def footprint(self, kind: JobKind) -> Footprint | None:
        """GPU memory of a kind by sub-batch."""
        ...


@dataclass(frozen=True, slots=True)
class GpuDevices:
    """GPUs one by one, over all nodes: GPU ``i`` of node row ``n`` is device ``first[n] + i``.

    Which devices a job holds is in compressed rows: entries ``held_start[r]:held_start[r + 1]`` of ``held`` belong to the
    job in row ``r`` of the snapshot's job table.
    """

    first: IntColumn
    """Shape (nodes + 1,)."""
    memory_mib: FloatColumn
    """Memory of each device; infinite where nobody says."""
    held_start: IntColumn
    held: IntColumn
    unavailable: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Devices that nobody can be given though no job of the table holds them: nobody knows who does. Empty: none."""
    guest: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Beside ``held``: whether the job is a guest on that device; left out, nobody is. A guest that still waits holds its
    devices already."""
    shareable: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Devices that a guest could start on now; left out, all are."""

    def __post_init__(self) -> None:
        if not len(self.guest):
            object.__setattr__(self, "guest", np.zeros(len(self.held), dtype=np.bool_))
        if not len(self.shareable):
            object.__setattr__(self, "shareable", np.ones(len(self.memory_mib), dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.memory_mib)

    @property
    def owner(self) -> IntColumn:
        """Row of the job that holds each entry of ``held``."""
        return np.repeat(np.arange(len(self.held_start) - 1), np.diff(self.held_start))

    def of(self, row: int) -> IntColumn:
        """Devices of the job in this row, ascending."""
        return self.held[int(self.held_start[row]) : int(self.held_start[row + 1])]

    def guest_on(self, row: int) -> IntColumn:
        """Of these, the ones on which it is a guest."""
        held = slice(int(self.held_start[row]), int(self.held_start[row + 1]))
        return self.held[held][self.guest[held]]


@dataclass(frozen=True, slots=True)
class SharingJobs:
    """Columns beside the job table, one row a job, in its order.

    Attributes:
        kind: index into ``kinds``, -1 for a job that nobody can tell (such as one without a model).
        batch: per GPU and iteration; 0 where unknown.
        sub_batch: per GPU and forward pass of running jobs; ``batch`` for jobs that do not accumulate.
        iterations: left; NaN where unknown.
        shares: ``--soda-share``, or what the site assumes.
        max_slowdown: ``--soda-max-slowdown``; infinite without one.
        accumulates: ``--soda-accumulates``: a guest's batch may be cut into passes; left out, every job's.
        requeueable: batch jobs that Slurm may requeue; left out, all are.
        triable: may be put beside others to find out how that goes: how much it is slowed would be seen, as it tells its
            progress, and the memory that it needs is known; left out, nobody may.
        revocable: guests beside the preemptible jobs that may be parted from their hosts, though no policy moves them; left
            out, nobody.
        saves_every_s: work alone between two times that a job saves its state by itself; infinite where it does not, or
            nobody knows; left out, no job does.
        observed_slowdown: time of an iteration now over that alone, of running jobs beside others, averaged since all of
            them have run together; NaN where nobody measured, left out for all.
        together_s: for how long the jobs on its GPUs have run together, by what was observed; NaN alone, left out for all.
        behind_s: seconds by which a running job is behind what its ``max_slowdown`` allows: its time beside others beyond
            the bound, whoever they were, less what it has made up since; 0 within its bound, left out, for all.
        apart: pairs of job ids, the smaller one first, that are not to share again.
        manual_joins: guests and hosts, by id, of whom an admin said that they shall share.
        manual_partings: running guests, by id, that shall leave their hosts by an admin's word.
        unrecorded: running guests, by id, of which no prolog made a record: nothing would make them leave with their hosts.
        faulted: those of them whose programs a fatal fault of one may have ended: they part if they share.
        program: what may have such a fault again, as a number; -1 for a job whose program has had none, left out for all.
        quarantined: pairs of programs that do not share.
        meets_others: its site lets it be on a GPU with jobs of other users that have this too, whatever the mechanism says;
            left out, no job may.
        obstacle: index into ``obstacles``, why a job's request cannot be made that of a guest; -1 where it can; left out,
            everybody's can.
        waits_as_guest: its request is that of a guest already, and it waits for nothing but its start; left out, nobody.
    """

    kinds: tuple[JobKind, ...]
    kind: IntColumn
    batch: IntColumn
    sub_batch: IntColumn
    iterations: FloatColumn
    shares: BoolColumn
    max_slowdown: FloatColumn
    accumulates: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    requeueable: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    saves_every_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    observed_slowdown: FloatColumn = field(default_factory=lambda: np.zeros(0))
    together_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    behind_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    apart: tuple[tuple[JobId, JobId], ...] = ()
    manual_joins: tuple[tuple[JobId, JobId], ...] = ()
    manual_partings: tuple[JobId, ...] = ()
    unrecorded: tuple[JobId, ...] = ()
    faulted: tuple[tuple[JobId, JobId], ...] = ()
    program: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    quarantined: tuple[tuple[int, int], ...] = ()
    meets_others: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    obstacle: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    obstacles: tuple[Sentence, ...] = ()
    waits_as_guest: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    revocable: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    triable: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def __post_init__(self) -> None:
        for name in ("meets_others", "waits_as_guest", "revocable", "triable"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.zeros(len(self.kind), dtype=np.bool_))
        for name in ("obstacle", "program"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.kind), -1, dtype=np.int64))
        if not len(self.requeueable):
            object.__setattr__(self, "requeueable", np.ones(len(self.kind), dtype=np.bool_))
        if not len(self.accumulates):
            object.__setattr__(self, "accumulates", np.ones(len(self.kind), dtype=np.bool_))
        if not len(self.saves_every_s):
            object.__setattr__(self, "saves_every_s", np.full(len(self.kind), np.inf))
        if not len(self.behind_s):
            object.__setattr__(self, "behind_s", np.zeros(len(self.kind)))
        for name in ("observed_slowdown", "together_s"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.kind), np.nan))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSnapshot(ClusterSnapshot):
    """A snapshot from which a policy may let jobs share GPUs.

    A node's ``gpus_free`` counts devices that nobody holds. CPUs and memory are taken by each job, shared GPUs or not.
    ``remaining_s`` of a job is its predicted time left **alone**, at full speed, on the GPUs it asks for. A plan may ask for
    what ``mechanism`` can do, and for no more: :func:`.find_guest_fault`.
    """

    devices: GpuDevices
    sharing: SharingJobs
    known: KindEstimates
    mechanism: Mechanism = IDEAL

    @property
    def jobs_as_they_leave(self) -> JobTable:
        """As :attr:`.ClusterSnapshot.jobs_as_they_leave`: a GPU that another job stays on is not free then, and one that
        several leave is free once.
        """
        jobs, devices = self.jobs, self.devices
        completing = (jobs.state == JobState.COMPLETING) & (np.diff(devices.held_start) > 0)
        if not completing.any():
            return jobs
        owner = devices.owner
        leaves = completing[owner]
        kept = np.zeros(len(devices), dtype=np.bool_)
        kept[devices.held[~leaves]] = True
        left, first = np.unique(devices.held[leaves], return_index=True)
        owner = owner[leaves][first][~kept[left]]
        node = np.searchsorted(devices.first, left[~kept[left]], side="right") - 1
        places, gpus = np.unique(owner * len(self.nodes) + node, return_counts=True)
        row = np.repeat(np.arange(len(jobs)), np.diff(jobs.alloc_start))
        place = row * len(self.nodes) + jobs.alloc_node
        at = np.minimum(np.searchsorted(places, place), max(len(places) - 1, 0))
        free = np.where(places[at] == place, gpus[at], 0) if len(places) else np.zeros(len(place), dtype=np.int64)
        return jobs.with_columns(alloc_gpus=np.where(completing[row], free, jobs.alloc_gpus))


@runtime_checkable
class SharingPolicy(Policy, Protocol):
    """A policy that wants a :class:`SharingSnapshot` and answers with a :class:`.plan.SharingPlan`.

    Given a plain :class:`ClusterSnapshot`, where nothing is known of pairs and single GPUs, it must share none.
    """

    @property
    def jobs_per_gpu(self) -> int:
        """C, the most jobs that it ever puts onto one GPU; 1 or more."""
        ...


@runtime_checkable
class SharesWherePossiblePolicy(SharingPolicy, Protocol):
    """A policy that is meant to be used where nothing is known of pairs as well: then it is asked with plain snapshots."""

    @property
    def shares_where_possible(self) -> Literal[True]:
        """Says so."""
        ...


@runtime_checkable
class CpuJobsLastPolicy(Protocol):
    """A policy for which jobs without GPUs come last, so that it need not be asked about each of them.

    They start in the order of their submission where those with GPUs leave room, and mean nothing to these but the cores
    and the memory that they hold. A job that alone waits for GPUs, while none is shared, starts where it fits best, and
    nobody is preempted for it; nor is anybody while nobody waits and no GPU is shared. What the policy says of jobs with
    GPUs holds until something happens to one of them, or until its plan's ``next_event_s``.
    """

    @property
    def cpu_jobs_last(self) -> Literal[True]:
        """Says so."""
        ...
