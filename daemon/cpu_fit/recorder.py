"""What was concluded of waiting jobs' CPUs, kept for people: one row a job, written when something new is to be said."""

from __future__ import annotations

from collections.abc import Collection, Set

from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.store.cpu_fit import proposals_of, storable_text
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.cpu_fit import CpuProposalRow
from slurm_soda.policies.cpu_fit.fit import CpuFitNote
from slurm_soda.policies.pipeline.actions import ResizeRequest
from slurm_soda.policies.plan import Plan
from slurm_soda.slurm_ext.client import SlurmJob

_Conclusion = tuple[float, int, CpuFitNote, ResizeRequest | None]
"""First submission of a job, cores on each node that it asks for now, and what a plan says of it."""


class CpuFitRecorder:
    """Turns plans into rows; remembers the rows of jobs that wait."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._concluded: dict[int, tuple[SlurmJob, _Conclusion]] = {}
        """With the record that each is of."""
        self._rows: dict[int, CpuProposalRow] = {}
        self._recalled: set[int] = set()
        """Jobs whose row of an earlier daemon was looked for."""

    def conclude(self, plan: Plan, slurm_state: SlurmState, job_cache: JobCache) -> list[CpuProposalRow]:
        """New or changed rows, to be recorded before anything is sent."""
        self._recall(plan.cpu_fits.keys())
        resizes = {action.job_id: action for action in plan.actions if isinstance(action, ResizeRequest)}
        fresh = []
        for job_id, note in plan.cpu_fits.items():
            job, resize = slurm_state.jobs[job_id], resizes.get(job_id)
            seen, known = self._concluded.get(job_id, (None, None))
            if seen is job and known is not None and known[2:] == (note, resize):
                continue  # the same record has the same submission and CPUs
            found = (job_cache.submit_s(job_id), -(-job.cpus // job.nodes), note, resize)
            self._concluded[job_id] = job, found
            if known == found:
                continue
            row = _row(self._rows.get(job_id), job_id, found, slurm_state.now_s)
            if row is not None:
                self._rows[job_id] = row
                fresh.append(row)
        unsaid = self._recalled - plan.cpu_fits.keys()
        self._forget([job_id for job_id in unsaid if not _waits(slurm_state.jobs.get(job_id))])
        return fresh

    def _recall(self, job_ids: Set[int]) -> None:
        """Rows of an earlier daemon."""
        unseen = sorted(job_ids - self._recalled)
        if not unseen:
            return
        self._recalled.update(unseen)
        with self._store.read() as session:
            # The newest of an id comes last: Slurm may give ids anew.
            self._rows |= {
                row.job_id: row for row in sorted(proposals_of(session, unseen), key=lambda row: row.submit_s)
            }

    def _forget(self, job_ids: Collection[int]) -> None:
        self._recalled.difference_update(job_ids)
        for job_id in job_ids:
            self._concluded.pop(job_id, None)
            self._rows.pop(job_id, None)


def _waits(job: SlurmJob | None) -> bool:
    return job is not None and job.state == "PENDING"


def _row(before: CpuProposalRow | None, job_id: int, found: _Conclusion, now_s: float) -> CpuProposalRow | None:
    """What to write; ``None``: nothing new, or nothing to say of a request that is right as it was submitted."""
    submit_s, present, note, resize = found
    if before is not None and before.submit_s != submit_s:
        before = None  # of an earlier job with this id
    if before is None and resize is None and not note.left_alone:
        return None
    ours = before is not None and present in (before.asked_cores, before.cores)
    row = CpuProposalRow(
        job_id=job_id,
        submit_s=submit_s,
        at_s=now_s,
        asked_cores=before.asked_cores if before and ours else present,
        cores=note.cores,
        source=note.source,
        left_alone=storable_text(note.left_alone, 255),
    )
    return None if before is not None and _said(before) == _said(row) else row


def _said(row: CpuProposalRow) -> tuple[object, ...]:
    return row.asked_cores, row.cores, row.source, row.left_alone
