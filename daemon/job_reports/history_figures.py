"""What waiting, giving way and sharing did to a job; pure functions of the store's rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from slurm_soda.daemon.job_reports.model import Preemptions, Sharing, Waiting, WaitReason
from slurm_soda.daemon.job_reports.stored_facts import StoredFacts
from slurm_soda.daemon.sharing.observed_pairs import own_alone_s
from slurm_soda.daemon.store.jobs.wait_times import WaitTimes
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.daemon.store.tables.sharing import ShareRow


def run_time_s(job: Job, runs: Sequence[JobRun], now_s: float) -> float:
    """All runs together, the present one until now."""
    return math.fsum(max(_until_s(job, run, now_s) - run.start_s, 0.0) for run in runs)


def _until_s(job: Job, run: JobRun, now_s: float) -> float:
    ends = (end_s for end_s in (run.end_s, job.end_s) if end_s is not None)
    return next(ends, now_s)


def waiting_of(facts: StoredFacts, now_s: float) -> Waiting:
    """Time in the queue, and what Slurm said of it."""
    job, until_s = facts.job, now_s if facts.job.end_s is None else facts.job.end_s
    first_start_s = facts.runs[0].start_s if facts.runs else job.first_start_s
    first_s = max((until_s if first_start_s is None else first_start_s) - job.submit_s, 0.0)
    in_all_s = max(until_s - job.submit_s - run_time_s(job, facts.runs, now_s), 0.0)
    reasons = WaitTimes.from_json(job.waits).until(until_s)
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return Waiting(
        first_s=first_s,
        later_s=max(in_all_s - first_s, 0.0) if len(facts.runs) > 1 or job.preemptions else 0.0,
        reasons=[WaitReason(reason, waited_s) for reason, waited_s in ordered if waited_s > 0],
    )


def preemptions_of(facts: StoredFacts) -> Preemptions:
    """What it did again after it gave way: iterations that it had done and that its next run did not begin with."""
    told, iterations_s = _farthest(facts.progress), _iterations_s(facts.paces)
    lost: list[tuple[float, float]] = []
    reload_s: list[float] = []
    for before, after in zip(facts.runs, facts.runs[1:], strict=False):
        last, first = told.get(before.restart), told.get(after.restart)
        if first is not None:
            reload_s.append(max(first.began_s - after.start_s, 0.0))
        iteration_s = iterations_s.get(before.restart)
        if last is not None and first is not None and iteration_s is not None:
            iterations = max(last.iterations - first.began_iterations, 0.0)
            lost.append((iterations, iterations * iteration_s))
    return Preemptions(
        times=facts.job.preemptions,
        requeues=max(len(facts.runs) - 1, 0),
        lost_s=math.fsum(seconds for _, seconds in lost) if lost else None,
        lost_iterations=math.fsum(iterations for iterations, _ in lost) if lost else None,
        reload_s=math.fsum(reload_s) if reload_s else None,
    )


def _farthest(progress: Iterable[JobProgressRow]) -> dict[int, JobProgressRow]:
    """By restart, of several nodes the one that is farthest."""
    found: dict[int, JobProgressRow] = {}
    for row in progress:
        if row.restart not in found or row.iterations > found[row.restart].iterations:
            found[row.restart] = row
    return found


def _iterations_s(paces: Iterable[JobPaceRow]) -> dict[int, float]:
    """Mean time of an iteration by restart."""
    by_run: dict[int, list[JobPaceRow]] = defaultdict(list)
    for pace in paces:
        by_run[pace.restart].append(pace)
    sums = {
        restart: (math.fsum(one.iterations for one in of_run), math.fsum(one.clock_s for one in of_run))
        for restart, of_run in by_run.items()
    }
    return {restart: clock_s / iterations for restart, (iterations, clock_s) in sums.items() if iterations > 0}


def sharing_of(facts: StoredFacts, now_s: float) -> Sharing | None:
    """With how many others it had GPUs together, and for how long; ``None``: with none, as far as sodad knows."""
    job_id = facts.job.job_id
    began = [share for share in facts.shares if share.started_s is not None]
    if not began:
        return None
    others = {other for share in began for other in _others(share, job_id)}
    beside, alone_s = [pace for pace in facts.paces if pace.co_runners], own_alone_s(facts.paces)
    iterations, clock_s = math.fsum(one.iterations for one in beside), math.fsum(one.clock_s for one in beside)
    return Sharing(
        other_jobs=len(others),
        as_guest=sum(share.guest == job_id for share in began),
        as_host=sum(share.guest != job_id for share in began),
        shared_s=_together_s([_times(share, facts.job, now_s) for share in began]),
        slowdown_ratio=clock_s / iterations / alone_s if alone_s and iterations > 0 else None,
    )


def _others(share: ShareRow, job_id: int) -> Iterable[int]:
    """Who was on its GPUs: of a guest its hosts, of a host its guest."""
    return share.hosts if share.guest == job_id else (share.guest,)


def _times(share: ShareRow, job: Job, now_s: float) -> tuple[float, float]:
    ends = (end_s for end_s in (share.ended_s, job.end_s) if end_s is not None)
    return share.started_s or 0.0, min(ends, default=now_s)


def _together_s(times: Sequence[tuple[float, float]]) -> float:
    """How long at least one of these times lasted."""
    together_s, reached_s = 0.0, -math.inf
    for start_s, end_s in sorted(times):
        together_s += max(end_s - max(start_s, reached_s), 0.0)
        reached_s = max(reached_s, end_s)
    return together_s
