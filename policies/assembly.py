"""From a finished walk to the :class:`.plan.Plan` that leaves a policy."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.plan import JobNotes, Plan, Preempt, Verdict
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState
from slurm_soda.policies.walk import Walk


def assemble(
    walk: Walk,
    policy: str,
    ranked: IntColumn,
    *,
    score: FloatColumn,
    score_name: str,
    queue: IntColumn | None = None,
    preempts: tuple[Preempt, ...] = (),
    promoted: IntColumn | None = None,
    next_event_s: float = float("inf"),
    reserved_in_s: FloatColumn | None = None,
) -> Plan:
    """Build the plan.

    Args:
        walk: where every job ended up.
        policy: name of the policy.
        ranked: rows of PENDING and RUNNING jobs in the policy's order.
        score: one value a row, as the policy shows it.
        score_name: what the score is, with its unit.
        queue: one number a row.
        preempts: which running jobs leave, for whom.
        promoted: rows whose counters start again.
        next_event_s: when the plan may change by itself.
        reserved_in_s: one value a row, for a policy that reserves room.

    ``Plan.order`` has four parts, each in the policy's order: jobs that start now; jobs that wait only for resources
    that are being vacated, so that Slurm hands these over the moment they are free; the other waiting jobs; jobs that
    can never run.
    """
    jobs = walk.snapshot.jobs
    pending = walk.pending(ranked)
    verdict = walk.verdict[pending]
    starts = pending[verdict == Verdict.START]
    soon = pending[verdict == Verdict.WAIT_FOR_PREEMPTION]
    rest = pending[verdict == Verdict.WAIT]
    never = pending[verdict == Verdict.TOO_LARGE]
    position = np.full(len(jobs), -1, dtype=np.int64)
    position[ranked] = np.arange(len(ranked))
    notes = JobNotes(
        job_id=jobs.job_id,
        verdict=walk.verdict,
        queue=np.zeros(len(jobs), dtype=np.int64) if queue is None else queue,
        score=score,
        position=position,
        score_name=score_name,
        reserved_in_s=np.zeros(0) if reserved_in_s is None else reserved_in_s,
    )
    return Plan(
        policy=policy,
        order=jobs.job_id[np.concatenate((starts, soon, rest, never))],
        starts=jobs.job_id[starts],
        preempts=preempts,
        notes=notes,
        promoted=np.zeros(0, dtype=np.int64) if promoted is None else jobs.job_id[promoted],
        next_event_s=next_event_s,
        places={int(jobs.job_id[row]): tuple(claim.pieces) for row, claim in walk.claims.items()},
        facts=_facts(walk, len(preempts)),
    )


def rank(jobs_rows: IntColumn, *keys: FloatColumn | IntColumn | BoolColumn) -> IntColumn:
    """Sort rows by keys, the first key first; rows are in job id order, so ties go to the smaller job id."""
    return jobs_rows[np.lexsort([jobs_rows, *(key[jobs_rows] for key in reversed(keys))])]


def rankable(snapshot: ClusterSnapshot) -> IntColumn:
    """Rows of jobs that want or hold resources and can be decided on."""
    state = snapshot.jobs.state
    return np.flatnonzero((state == JobState.PENDING) | (state == JobState.RUNNING)).astype(np.int64)


def _facts(walk: Walk, preempts: int) -> dict[str, float]:
    nodes, state = walk.snapshot.nodes, walk.snapshot.jobs.state
    usable = nodes.usable
    return {
        "jobs_pending": float(np.count_nonzero(state == JobState.PENDING)),
        "jobs_running": float(np.count_nonzero(state == JobState.RUNNING)),
        "starts": float(np.count_nonzero(walk.verdict == Verdict.START)),
        "preempts": float(preempts),
        "gpus_usable": float(nodes.gpus[usable].sum()),
        "gpus_free": float(nodes.gpus_free[usable].sum()),
        "gpus_free_after": float(walk.room.now.gpus[usable].sum()),
    }
