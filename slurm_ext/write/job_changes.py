"""From a plan to changes of Slurm, and from changes to calls: only the difference, each with its old value and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import JobUpdate, SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError
from slurm_soda.slurm_ext.read.job_states import waits_for_resources
from slurm_soda.slurm_ext.write.site_factors import PRIORITY_CEILING, compute_site_factors

JobChangeKind = Literal["order", "signal", "requeue", "start-now", "rewrite", "release"]

REQUEUE_IF_ENDED = {"Ended": "yes"}
"""Marks a requeue that shall hit a job which has ended after its checkpoint."""

DEFAULT_ORDER_DEPTH = 1000
DEFAULT_PRIORITY_BASE = 1_000_000


@dataclass(frozen=True, slots=True)
class JobChange:
    """One change of one job: fields in Slurm's words, before and after, and why."""

    job_id: int
    kind: JobChangeKind
    new: Mapping[str, str]
    old: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class JobChangeResult:
    """What became of a change; ``error`` is empty when Slurm took it."""

    change: JobChange
    error: str = ""
    answered: bool = True
    """False if Slurm said nothing in time: it may have taken the change all the same."""


def order_changes(
    snapshot: ClusterSnapshot,
    plan: Plan,
    *,
    depth: int = DEFAULT_ORDER_DEPTH,
    base: int = DEFAULT_PRIORITY_BASE,
    least: int = 0,
    ceiling: int = PRIORITY_CEILING,
) -> list[JobChange]:
    """SiteFactors after which Slurm's order equals ``plan.order`` for its first ``depth`` jobs (0: all), most urgent first.

    An order that is right already needs no change. Jobs behind ``depth`` are left alone unless an old SiteFactor would put
    them in front.
    """
    jobs, order = snapshot.jobs, plan.order.tolist()
    depth = depth or len(order)
    wanted = compute_site_factors(jobs, order, depth=depth, base=base, least=least, ceiling=ceiling)
    present = dict(zip(jobs.job_id.tolist(), jobs.site_factor.tolist(), strict=True))
    rank = {job_id: position for position, job_id in enumerate(order)}
    starts = set(plan.starts.tolist())
    changes = []
    for job_id in sorted(wanted, key=lambda i: rank.get(i, len(order))):
        if wanted[job_id] == present[job_id]:
            continue
        changes.append(
            JobChange(
                job_id=job_id,
                kind="order",
                new={"SiteFactor": str(wanted[job_id])},
                old={"SiteFactor": str(present[job_id])},
                reason=_order_reason(job_id, rank, depth, starts, plan.policy),
            )
        )
    return changes


def _order_reason(job_id: int, rank: Mapping[int, int], depth: int, starts: set[int], policy: str) -> str:
    if rank.get(job_id, depth) >= depth:
        return f"{policy}: behind the first {depth} jobs, an old order is withdrawn"
    word = "starts now" if job_id in starts else "waits"
    return f"{policy}: {word}, place {rank[job_id] + 1} of {len(rank)}"


def start_now_change(job_id: int, reason: str) -> JobChange:
    """Clears the two minutes that Slurm makes a requeued job wait; only for a job that shows PENDING."""
    return JobChange(job_id, "start-now", {"StartTime": "now"}, {}, reason)


def signal_change(job_id: int, name: str, reason: str) -> JobChange:
    """Asks a job for its checkpoint; ``name`` without SIG."""
    return JobChange(job_id, "signal", {"Signal": name}, {}, reason)


def requeue_change(job_id: int, reason: str) -> JobChange:
    """Puts a running job back into the queue."""
    return JobChange(job_id, "requeue", {}, {}, reason)


def _earliest_start(job: SlurmJob, now_s: float) -> str:
    """The earliest safe start of a requeued job, in Slurm's words; its submit time is that of the requeue."""
    return "now" if now_s >= job.submit_s + MIN_RESTART_GAP_S else f"now+{int(MIN_RESTART_GAP_S)}"


MIN_RESTART_GAP_S = 2.0
"""Least time between a requeue and a new start. A node turns away credentials that are not at least a second younger than
the end of the job's last run there, both in whole seconds ("Job credential revoked"), and Slurm then fails the job. The
wait that Slurm itself imposes, the lifetime of a credential and a second, is the long way around this."""

MAX_REQUEUE_WAIT_S = 180.0
"""Slurm lets a requeued job wait about 121 s; a begin time that is further away is the user's own."""


def release_changes(jobs: Sequence[SlurmJob], site_factors: Mapping[int, int], *, now_s: float) -> list[JobChange]:
    """Everything of ours that Slurm still shows, taken back: needs no daemon and no store.

    SiteFactors go to 0, also where Slurm does not tell them (held jobs, jobs before their begin time); jobs that wait out a
    requeue may start at once. We never hold a job, so no hold is touched.

    Args:
        jobs: all jobs.
        site_factors: as :meth:`SlurmClient.site_factors` gives them.
        now_s: the instant, Unix seconds.
    """
    changes = []
    for job in jobs:
        if job.state != "PENDING":
            continue
        factor = site_factors.get(job.job_id, 0 if waits_for_resources(job.reason) else None)
        if factor != 0:
            old = {} if factor is None else {"SiteFactor": str(factor)}
            changes.append(
                JobChange(job.job_id, "release", {"SiteFactor": "0"}, old, "release-all: Slurm's own order again")
            )
        if job.reason == "BeginTime" and job.restarts and job.eligible_s - now_s <= MAX_REQUEUE_WAIT_S:
            changes.append(
                JobChange(
                    job.job_id,
                    "release",
                    {"StartTime": _earliest_start(job, now_s)},
                    {},
                    "release-all: the wait after a requeue ends",
                )
            )
    return changes


def apply_changes(client: SlurmClient, changes: Sequence[JobChange]) -> list[JobChangeResult]:
    """Send changes in order, one result each; see :func:`send_changes`."""
    return list(send_changes(client, changes))


def send_changes(client: SlurmClient, changes: Sequence[JobChange]) -> Iterator[JobChangeResult]:
    """Send changes in order and tell each result as it comes; updates that follow each other share one process.

    Never raises for what Slurm refuses: the error is in the result.
    """
    batch: list[JobChange] = []
    for change in changes:
        if change.kind not in ("signal", "requeue"):
            batch.append(change)
            continue
        yield from _send_updates(client, batch)
        batch = []
        yield _send_single(client, change)
    yield from _send_updates(client, batch)


def _send_updates(client: SlurmClient, batch: Sequence[JobChange]) -> Iterator[JobChangeResult]:
    if not batch:
        return
    try:
        answers = client.update([JobUpdate(change.job_id, tuple(change.new.items())) for change in batch])
    except SlurmError as error:
        yield from (_failed(change, error) for change in batch)
        return
    for change, answer in zip(batch, answers, strict=True):
        yield JobChangeResult(change, answer.error)


def _send_single(client: SlurmClient, change: JobChange) -> JobChangeResult:
    try:
        if change.kind == "signal":
            client.signal(change.job_id, change.new["Signal"])
        else:
            client.requeue(change.job_id, ended=dict(change.new) == REQUEUE_IF_ENDED)
    except SlurmError as error:
        return _failed(change, error)
    return JobChangeResult(change)


def _failed(change: JobChange, error: SlurmError) -> JobChangeResult:
    return JobChangeResult(
        change, str(error), answered=not (isinstance(error, SlurmCommandError) and error.status is None)
    )
