"""From a finished placement pass to the :class:`.plan.Plan` that leaves a policy."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.pipeline.actions import PreemptJob
from slurm_soda.policies.plan import JobNotes, JobVerdict, Plan
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState, JobTable


def build_plan(
    placing: PlacementPass,
    policy: str,
    ranked: IntColumn,
    *,
    score: FloatColumn,
    score_name: str,
    queue: IntColumn | None = None,
    preempts: tuple[PreemptJob, ...] = (),
    promoted: IntColumn | None = None,
    next_event_s: float = float("inf"),
    reserved_in_s: FloatColumn | None = None,
    price_s: FloatColumn | None = None,
    skips: IntColumn | None = None,
) -> Plan:
    """Build the plan.

    Args:
        placing: the pass, with the place and verdict of every job.
        policy: name of the policy.
        ranked: rows of PENDING and RUNNING jobs in the policy's order.
        score: one value a row, as the policy shows it.
        score_name: what the score is, with its unit.
        queue: one number a row.
        preempts: which running jobs leave, for whom.
        promoted: rows whose counters start again.
        next_event_s: when the plan may change by itself.
        reserved_in_s: one value a row, for a policy that reserves nodes.
        price_s: one value a row, for a policy that prices preemptions by what was learned of them.
        skips: rows as :attr:`.Plan.skips`.

    ``Plan.order`` has four parts, each in the policy's order: jobs that start now; jobs that wait only for resources
    that are being vacated, so that Slurm hands these over the moment they are free; the other waiting jobs; jobs that
    can never run.
    """
    jobs = placing.snapshot.jobs
    pending = placing.pending(ranked)
    verdict = placing.verdict[pending]
    starts = pending[verdict == JobVerdict.START]
    soon = pending[verdict == JobVerdict.WAIT_FOR_PREEMPTION]
    rest = pending[verdict == JobVerdict.WAIT]
    never = pending[verdict == JobVerdict.TOO_LARGE]
    position = np.full(len(jobs), -1, dtype=np.int64)
    position[ranked] = np.arange(len(ranked))
    behind = np.zeros(len(jobs) if placing.behind else 0, dtype=np.int64)
    behind[list(placing.behind)] = jobs.job_id[list(placing.behind.values())]
    notes = JobNotes(
        job_id=jobs.job_id,
        verdict=placing.verdict,
        queue=np.zeros(len(jobs), dtype=np.int64) if queue is None else queue,
        score=score,
        position=position,
        score_name=score_name,
        reserved_in_s=np.zeros(0) if reserved_in_s is None else reserved_in_s,
        behind=behind,
        unknown_nodes=jobs.unknown_nodes,
        price_s=np.zeros(0) if price_s is None else price_s,
    )
    return Plan(
        policy=policy,
        order=jobs.job_id[np.concatenate((starts, soon, rest, never))],
        starts=jobs.job_id[starts],
        notes=notes,
        actions=preempts,
        promoted=np.zeros(0, dtype=np.int64) if promoted is None else jobs.job_id[promoted],
        skips=np.zeros(0, dtype=np.int64) if skips is None else jobs.job_id[skips],
        next_event_s=next_event_s,
        places={int(jobs.job_id[row]): tuple(claim.pieces) for row, claim in placing.claims.items()},
        facts=_plan_facts(placing, len(preempts)),
    )


def rank_rows(jobs: JobTable, rows: IntColumn, *keys: FloatColumn | IntColumn | BoolColumn) -> IntColumn:
    """Sort rows by band, then by a policy's keys, the first key first; rows are in job id order, so ties go to the smaller
    job id.
    """
    before = (jobs.band,) if len(jobs.band) else ()
    return rows[np.lexsort([rows, *(key[rows] for key in reversed((*before, *keys)))])]


def find_rankable_rows(snapshot: ClusterSnapshot) -> IntColumn:
    """Rows of jobs that want or hold resources and can be decided on."""
    state = snapshot.jobs.state
    return np.flatnonzero((state == JobState.PENDING) | (state == JobState.RUNNING)).astype(np.int64)


def _plan_facts(placing: PlacementPass, preempts: int) -> dict[str, float]:
    nodes, state = placing.snapshot.nodes, placing.snapshot.jobs.state
    usable = nodes.usable
    return {
        "jobs_pending": float(np.count_nonzero(state == JobState.PENDING)),
        "jobs_running": float(np.count_nonzero(state == JobState.RUNNING)),
        "starts": float(np.count_nonzero(placing.verdict == JobVerdict.START)),
        "preempts": float(preempts),
        "gpus_usable": float(nodes.gpus[usable].sum()),
        "gpus_free": float(nodes.gpus_free[usable].sum()),
        "gpus_free_after": float(placing.free_capacity.now.gpus[usable].sum()),
    }
