"""From a plan to changes of Slurm, and from changes to calls: only the difference, each with its old value and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_soda.policies.plan import Plan, Rewrite
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import JobRecord, SlurmClient, Update
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmError
from slurm_soda.slurm_ext.ordering import PRIORITY_CEILING, site_factors_for
from slurm_soda.slurm_ext.states import waits_for_resources

ChangeKind = Literal["order", "signal", "requeue", "start-now", "rewrite", "release"]

ENDED_TOO = {"Ended": "yes"}
"""Marks a requeue that shall hit a job which has ended after its checkpoint."""

DEFAULT_DEPTH = 1000
DEFAULT_BASE = 1_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one job: fields in Slurm's words, before and after, and why."""

    job_id: int
    kind: ChangeKind
    new: Mapping[str, str]
    old: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What became of a change; ``error`` is empty when Slurm took it."""

    change: Change
    error: str = ""
    answered: bool = True
    """False if Slurm said nothing in time: it may have taken the change all the same."""


def order_changes(
    snapshot: ClusterSnapshot,
    plan: Plan,
    *,
    depth: int = DEFAULT_DEPTH,
    base: int = DEFAULT_BASE,
    least: int = 0,
    ceiling: int = PRIORITY_CEILING,
) -> list[Change]:
    """SiteFactors after which Slurm's order equals ``plan.order`` for its first ``depth`` jobs (0: all), most urgent first.

    An order that is right already needs no change. Jobs behind ``depth`` are left alone unless an old SiteFactor would put
    them in front.
    """
    jobs, order = snapshot.jobs, plan.order.tolist()
    depth = depth or len(order)
    wanted = site_factors_for(jobs, order, depth=depth, base=base, least=least, ceiling=ceiling)
    present = dict(zip(jobs.job_id.tolist(), jobs.site_factor.tolist(), strict=True))
    rank = {job_id: position for position, job_id in enumerate(order)}
    starts = set(plan.starts.tolist())
    changes = []
    for job_id in sorted(wanted, key=lambda i: rank.get(i, len(order))):
        if wanted[job_id] == present[job_id]:
            continue
        changes.append(
            Change(
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


def start_now(job_id: int, reason: str) -> Change:
    """Clears the two minutes that Slurm makes a requeued job wait; only for a job that shows PENDING."""
    return Change(job_id, "start-now", {"StartTime": "now"}, {}, reason)


def signal(job_id: int, name: str, reason: str) -> Change:
    """Asks a job for its checkpoint; ``name`` without SIG."""
    return Change(job_id, "signal", {"Signal": name}, {}, reason)


def requeue(job_id: int, reason: str) -> Change:
    """Puts a running job back into the queue."""
    return Change(job_id, "requeue", {}, {}, reason)


def rewrite_changes(plan: Plan, jobs: Mapping[int, JobRecord]) -> list[Change]:
    """The plan's rewrites of pending jobs, without those that Slurm's records already agree with.

    Arrays are left alone: their tasks cannot be told apart by a job id.
    """
    known = [(rewrite, jobs[rewrite.job_id]) for rewrite in plan.rewrites if rewrite.job_id in jobs]
    changes = [_rewrite_change(rewrite, job) for rewrite, job in known if not job.array_task]
    return [change for change in changes if change.new]


def _rewrite_change(rewrite: Rewrite, job: JobRecord) -> Change:
    new: dict[str, str] = {}
    old: dict[str, str] = {}
    if rewrite.cpus is not None and rewrite.cpus != job.cpus:
        per_task = max(1, rewrite.cpus // max(job.tasks, 1))
        new |= {"CPUsPerTask": str(per_task), "NumCPUs": str(per_task * max(job.tasks, 1))}
        old |= {"CPUsPerTask": str(job.cpus_per_task), "NumCPUs": str(job.cpus)}
    if rewrite.gres is not None and rewrite.gres != job.tres_per_node:
        new["TresPerNode"], old["TresPerNode"] = rewrite.gres, job.tres_per_node
    if rewrite.node_names is not None and rewrite.node_names != job.req_node_names:
        new["ReqNodeList"], old["ReqNodeList"] = rewrite.node_names, job.req_node_names
    return Change(job.job_id, "rewrite", new, old, rewrite.reason)


def _soonest(job: JobRecord, now_s: float) -> str:
    """The earliest safe start of a requeued job, in Slurm's words; its submit time is that of the requeue."""
    return "now" if now_s >= job.submit_s + RESTART_GAP_S else f"now+{int(RESTART_GAP_S)}"


RESTART_GAP_S = 2.0
"""Least time between a requeue and a new start. A node turns away credentials that are not at least a second younger than
the end of the job's last run there, both in whole seconds ("Job credential revoked"), and Slurm then fails the job. The
wait that Slurm itself imposes, the lifetime of a credential and a second, is the long way around this."""

REQUEUE_WAIT_S = 180.0
"""Slurm lets a requeued job wait about 121 s; a begin time that is further away is the user's own."""


def release_changes(jobs: Sequence[JobRecord], site_factors: Mapping[int, int], *, now_s: float) -> list[Change]:
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
                Change(job.job_id, "release", {"SiteFactor": "0"}, old, "release-all: Slurm's own order again")
            )
        if job.reason == "BeginTime" and job.restarts and job.eligible_s - now_s <= REQUEUE_WAIT_S:
            changes.append(
                Change(
                    job.job_id,
                    "release",
                    {"StartTime": _soonest(job, now_s)},
                    {},
                    "release-all: the wait after a requeue ends",
                )
            )
    return changes


def apply(client: SlurmClient, changes: Sequence[Change]) -> list[ChangeResult]:
    """Send changes in order, one result each; see :func:`applied`."""
    return list(applied(client, changes))


def applied(client: SlurmClient, changes: Sequence[Change]) -> Iterator[ChangeResult]:
    """Send changes in order and tell each result as it comes; updates that follow each other share one process.

    Never raises for what Slurm refuses: the error is in the result.
    """
    batch: list[Change] = []
    for change in changes:
        if change.kind not in ("signal", "requeue"):
            batch.append(change)
            continue
        yield from _send_updates(client, batch)
        batch = []
        yield _send_single(client, change)
    yield from _send_updates(client, batch)


def _send_updates(client: SlurmClient, batch: Sequence[Change]) -> Iterator[ChangeResult]:
    if not batch:
        return
    try:
        answers = client.update([Update(change.job_id, tuple(change.new.items())) for change in batch])
    except SlurmError as error:
        yield from (_failed(change, error) for change in batch)
        return
    for change, answer in zip(batch, answers, strict=True):
        yield ChangeResult(change, answer.error)


def _send_single(client: SlurmClient, change: Change) -> ChangeResult:
    try:
        if change.kind == "signal":
            client.signal(change.job_id, change.new["Signal"])
        else:
            client.requeue(change.job_id, ended=dict(change.new) == ENDED_TOO)
    except SlurmError as error:
        return _failed(change, error)
    return ChangeResult(change)


def _failed(change: Change, error: SlurmError) -> ChangeResult:
    return ChangeResult(
        change, str(error), answered=not (isinstance(error, SlurmCommandError) and error.status is None)
    )
