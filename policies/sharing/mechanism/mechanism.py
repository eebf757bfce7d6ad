"""What the engine beneath a policy can do when jobs share GPUs: its mechanism, as a value."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.snapshot_file.identifiers import Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """Seats on GPUs, who may take them, and what happens to a guest when its host ends.

    A job *hosts* on GPUs that it got while nobody held them; whoever comes to them later is a *guest* there. A job may be
    both, on different GPUs. Without any limit it is :data:`IDEAL`.

    Attributes:
        name: as in ``--mechanism``.
        jobs_per_gpu: most jobs on one GPU, the host among them; infinite where only the policy bounds it.
        starts_together: jobs that start, or move, in one decision may meet on one GPU. Otherwise a guest joins jobs that
            run already and stay, and takes no seat that somebody leaves in the same decision.
        different_users: jobs of different users may meet, also those whose site does not let them (``meets_others``).
        guests_need_requeue: a guest must be a batch job that may be requeued.
        guests_host: others may join a job that is itself a guest on some GPU.
        several_hosts: a guest may be on GPUs of several hosts.
        part_of_host: a guest may be on some of a host's GPUs only.
        with_own_gpus: a guest may also have GPUs of its own.
        equal_indices: a guest on several nodes has the same GPUs, by their index on the node, on each of them, and as many
            of its own.
        revokes: a host's end ends the seats of its guests: they are requeued, and lose what they did since they last saved
            their state.
        preempts_hosts: a host may be preempted while it has guests, if these are preempted in the same decision.
        start_s: a guest holds its seat so long before it makes progress, besides what any start costs.
        vacate_s: a guest whose seat was revoked holds it so long after its host's end, without progress.
        readmit_s: its next start takes so much longer.

    Raises:
        PolicyError: less than one seat, or a time that is negative or not finite.
    """

    name: Word
    jobs_per_gpu: float = math.inf
    starts_together: bool = True
    different_users: bool = True
    guests_need_requeue: bool = False
    guests_host: bool = True
    several_hosts: bool = True
    part_of_host: bool = True
    with_own_gpus: bool = True
    equal_indices: bool = False
    revokes: bool = False
    preempts_hosts: bool = True
    start_s: float = 0.0
    vacate_s: float = 0.0
    readmit_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.jobs_per_gpu >= 1:
            raise PolicyError(
                f"jobs_per_gpu = {self.jobs_per_gpu!r} is not allowed: a GPU has one job at least, its host"
            )
        for field in ("start_s", "vacate_s", "readmit_s"):
            value = getattr(self, field)
            if not 0 <= value < math.inf:
                raise PolicyError(f"{field} = {value!r} is not allowed; use a number of seconds from 0")

    @property
    def unlimited(self) -> bool:
        """Whether it is :data:`IDEAL` but for its name: nothing is to be checked, and nothing costs time."""
        return all(getattr(self, spec.name) == spec.default for spec in fields(self) if spec.name != "name")


IDEAL = Mechanism(name="ideal")
"""Jobs join each other at once wherever a policy wants them to, and either may end first: what the papers assume."""

SLURM = Mechanism(
    name="slurm",
    jobs_per_gpu=2,
    starts_together=False,
    different_users=False,
    guests_need_requeue=True,
    guests_host=False,
    equal_indices=True,
    revokes=True,
    start_s=1.3,
    vacate_s=0.3,
    readmit_s=1.2,
)
"""A guest's request is rewritten, while it waits, to a second GRES over the same device files (measured on Slurm 24.11.5).

One unit of that GRES a GPU: a host and one guest. The rewrite names a running host's node and indices, so hosts run
already, and a gang has equal indices on all nodes. Slurm does not know that both GRES are one device, so the host's epilog
requeues the guest before anybody else can start there: only batch jobs with Requeue=1 can be guests, and a guest has no
guests, which would be requeued one after the other. Without ``-multiuser-server`` MPS serves one user. A guest on GPUs of
several hosts, on some of a host's, and beside GPUs of its own started as asked.

``start_s``: the update (up to 0.04 s), reading it back with 10 000 jobs in the queue (0.21 s), and Slurm's own start (up to
1.0 s). ``vacate_s``: the next job started 0.28 s, in the median, after the host's epilog began; a guest that ignores SIGTERM
takes up to KillWait more. ``readmit_s``: requeued to running, once StartTime=now clears Slurm's wait of two minutes.
"""

MECHANISMS = {mechanism.name: mechanism for mechanism in (IDEAL, SLURM)}


def find_mechanism(name: str) -> Mechanism:
    """A mechanism by its name.

    Raises:
        PolicyError: there is none of that name.
    """
    try:
        return MECHANISMS[name]
    except KeyError:
        raise PolicyError(f"no mechanism {name!r}; choose one of: {', '.join(MECHANISMS)}") from None
