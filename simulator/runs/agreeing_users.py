"""Which users' jobs can checkpoint, and which users let theirs share GPUs, drawn where a person says how many."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from slurm_soda.policies.snapshot import BoolColumn
from slurm_soda.simulator.errors import SimulatorError
from slurm_soda.simulator.node.model_core_curves import INFERENCE
from slurm_soda.simulator.workload import Workload

TRACE_SEED = 1
"""Of the draw where jobs come from a trace and nobody names a seed."""
LEAST_USERS = 10
"""Of fewer users one may have most of the jobs, so that a ratio could not be met: then each job is drawn by itself."""


@dataclass(frozen=True, slots=True)
class AgreeingUsers:
    """Parts of the jobs, from 0 to 1, by whole users; None: as the workload says.

    Raises:
        SimulatorError: a number that is no such part.
    """

    can_checkpoint: float | None = None
    """Of the jobs' users, those whose jobs save their state and may therefore be preempted."""
    consent: float | None = None
    """Those whose jobs may share their GPUs."""

    def __post_init__(self) -> None:
        for name, ratio in (("can_checkpoint", self.can_checkpoint), ("consent", self.consent)):
            if ratio is not None and not 0.0 <= ratio <= 1.0:
                raise SimulatorError(f"{name} = {ratio!r} is not allowed; use a ratio from 0 to 1")

    def drawn(self, workload: Workload, seed: int | None) -> Workload:
        """The workload, in which so many can checkpoint and agree to share. The two are drawn apart from each other.

        Inference jobs have no state to save: they are preempted only if the trace says so, whoever their user is.
        """
        seed = TRACE_SEED if seed is None else seed
        preemptible, shares = workload.preemptible, workload.shares
        if self.can_checkpoint is not None:
            able = draw_agreeing(workload, self.can_checkpoint, f"{seed}/checkpoint")
            preemptible = np.where(_is_inference(workload), preemptible, able)
        if self.consent is not None:
            shares = draw_agreeing(workload, self.consent, f"{seed}/share")
        return workload.with_columns(preemptible=preemptible, shares=shares)

    def notes(self, workload: Workload) -> tuple[str, ...]:
        """What was drawn, a sentence each."""
        by = "user" if draws_by_user(workload) else f"job, as there are fewer than {LEAST_USERS} users"
        return tuple(
            f"{100 * float(column.mean()):.0f} % of the jobs {what} ({option}, drawn by {by})"
            for ratio, column, what, option in (
                (
                    self.can_checkpoint,
                    workload.preemptible,
                    "can checkpoint",
                    f"--can-checkpoint {self.can_checkpoint}",
                ),
                (self.consent, workload.shares, "may share their GPUs", f"--consent {self.consent}"),
            )
            if ratio is not None and len(workload)
        )


def draws_by_user(workload: Workload) -> bool:
    """Whether there are users enough to draw by."""
    return len(np.unique(workload.user[workload.user >= 0])) >= LEAST_USERS


def draw_agreeing(workload: Workload, ratio: float, stream: str) -> BoolColumn:
    """Of each job, whether its user agrees: users in a random order, until they have this part of the jobs.

    The order follows from ``stream`` and the users' names alone, so whoever agrees at a ratio does so at every larger one.
    The part is met to half of the jobs of the user at whom it ends; 0 is nobody and 1 everybody. O(n log n) in jobs.
    """
    owner, names = _owners(workload)
    jobs = np.bincount(owner, minlength=len(names))
    place = [hashlib.blake2b(f"{stream}/{name}".encode(errors="surrogateescape")).digest() for name in names]
    order = np.array(sorted(range(len(names)), key=place.__getitem__), dtype=np.int64)
    middle = np.cumsum(jobs[order]) - jobs[order] / 2.0
    agrees = np.zeros(len(names), dtype=np.bool_)
    agrees[order] = middle < ratio * len(workload)
    return np.asarray(agrees[owner])


def _owners(workload: Workload) -> tuple[np.ndarray, tuple[str, ...]]:
    """Who decides on each job, as an index into names: its user; itself, where nobody says or users are too few."""
    labels = tuple(f"job {label}" for label in workload.label)
    itself = np.arange(len(workload), dtype=np.int64)
    if not draws_by_user(workload):
        return itself, labels
    users = len(workload.users)
    owner = np.where(workload.user >= 0, workload.user, users + itself)
    return owner, (*(f"user {name}" for name in workload.users), *labels)


def _is_inference(workload: Workload) -> BoolColumn:
    if INFERENCE not in workload.categories:
        return np.zeros(len(workload), dtype=np.bool_)
    return np.asarray(workload.category == workload.categories.index(INFERENCE))
