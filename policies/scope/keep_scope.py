"""The last stage of a decision: a plan of the whole cluster becomes one that changes jobs in scope alone.

**The rule.** No job in scope is put before one out of scope that Slurm has before it, if both may take the same nodes. So
before each job out of scope there are, in Slurm's order, the very jobs that would be there without us; those in scope
change places among each other only. From this follows all that is done here:

- Nothing is done to a job out of scope: no order, other request, other partition, preemption or shared GPU, and it shares
  with nobody. Its SiteFactor is the site's own.
- Nobody is preempted for a job that stays behind one out of scope, which would take what becomes free; nor does such a job
  start beside another one. Of the jobs that would make way for one job all are in scope, or none of them is preempted.
- A service is in scope if all its tasks are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from slurm_soda.policies.pipeline.actions import (
    Action,
    DrainInstance,
    JoinGpus,
    OrderJobs,
    PreemptJob,
    RouteJob,
    ScaleService,
)
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.scope.fence import behind_fence, find_fence
from slurm_soda.policies.snapshot import ClusterSnapshot, IntColumn


@dataclass(frozen=True, slots=True)
class KeepScope:
    """Takes out of a plan what it may not do, and keeps it as :attr:`.Plan.withheld`.

    O(jobs) where some are out of scope, and as :func:`.find_fence_bounds` where jobs are preempted or share.
    """

    name: str = "scope"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan for jobs in scope."""
        outside = snapshot.jobs.left_out
        services = snapshot.services.left_out
        if not (outside.any() or services.any()):
            return plan
        check = _ScopeCheck(snapshot, find_fence(snapshot.jobs))
        wanted = [check.admit(action) for action in _without_split_groups(plan.actions, check)]
        kept = {action.id: action for action in wanted if action is not None}
        actions = tuple(kept[action.id] for action in plan.actions if action.id in kept)
        withheld = tuple(action for action in plan.actions if action.id not in kept)
        promoted = plan.promoted[[check.may_change(job_id) for job_id in plan.promoted.tolist()]]
        return replace(plan, actions=actions, withheld=withheld, promoted=promoted)


@dataclass(slots=True)
class _ScopeCheck:
    """What may be done to whom, on one snapshot."""

    snapshot: ClusterSnapshot
    fence: IntColumn
    _behind: dict[int, bool] = field(default_factory=dict)
    """Of jobs that were asked for."""
    _services: set[tuple[str, str]] = field(default_factory=set)
    """Those out of scope, by owner and name."""

    def __post_init__(self) -> None:
        table = self.snapshot.services
        rows = np.flatnonzero(table.left_out).tolist()
        self._services = {(table.services[row].owner, table.services[row].name) for row in rows}

    def may_change(self, job_id: int) -> bool:
        """It is a job of this snapshot, in scope."""
        row = self._row(job_id)
        left_out = self.snapshot.jobs.left_out
        return row >= 0 and not (len(left_out) and left_out[row])

    def goes_first(self, job_id: int) -> bool:
        """It is in scope, and no job out of scope that may take the same nodes is before it."""
        if not self.may_change(job_id):
            return False
        if job_id not in self._behind:
            rows = np.array([self._row(job_id)], dtype=np.int64)
            self._behind[job_id] = bool(behind_fence(self.snapshot, rows, self.fence)[0])
        return not self._behind[job_id]

    def look_up(self, job_ids: Iterable[int]) -> None:
        """Find out of these jobs at once what :meth:`goes_first` is asked one by one."""
        found = sorted({job_id for job_id in job_ids if self.may_change(job_id)} - self._behind.keys())
        if found:
            rows = np.array([self._row(job_id) for job_id in found], dtype=np.int64)
            behind = behind_fence(self.snapshot, rows, self.fence).tolist()
            self._behind |= dict(zip(found, behind, strict=True))

    def admit(self, action: Action) -> Action | None:
        """What may be done of an action; ``None``: nothing."""
        if isinstance(action, OrderJobs):
            return self._order(action)
        if isinstance(action, ScaleService | DrainInstance):
            return None if (action.owner, action.service) in self._services else action
        if not self.may_change(action.job_id):
            return None
        if isinstance(action, JoinGpus):
            together = all(self.may_change(host) for host in action.hosts)
            return action if together and self.goes_first(action.job_id) else None
        if isinstance(action, RouteJob) and action.first_in is not None and not self.goes_first(action.job_id):
            return replace(action, first_in=None)
        return action

    def _order(self, action: OrderJobs) -> OrderJobs:
        """The order of those in scope; no job of the fence is passed, in whatever queue it is."""
        jobs = self.snapshot.jobs
        if not len(jobs.left_out):  # services alone are out of scope
            return action
        columns = {name: getattr(action, name) for name in ("job_ids", "others", "unranked", "guests")}
        inside = {name: ids[jobs.left_out[np.searchsorted(jobs.job_id, ids)] == 0] for name, ids in columns.items()}
        reserving = int(np.isin(action.job_ids[: action.reserving], inside["job_ids"]).sum())
        return replace(action, **inside, reserving=reserving, fence=jobs.job_id[self.fence])

    def _row(self, job_id: int) -> int:
        jobs = self.snapshot.jobs
        at = int(np.searchsorted(jobs.job_id, job_id))
        return at if at < len(jobs) and jobs.job_id[at] == job_id else -1


def _without_split_groups(actions: Sequence[Action], check: _ScopeCheck) -> list[Action]:
    """The actions without preemptions that would be in vain: for whom not all make way that would have to, for them none."""
    preempts = [action for action in actions if isinstance(action, PreemptJob) and not action.parted_from]
    asked = {job_id for action in preempts for job_id in (*action.for_jobs, action.job_id)}
    check.look_up(asked | {action.job_id for action in actions if isinstance(action, JoinGpus)})
    served = {job_id for action in preempts for job_id in action.for_jobs if check.goes_first(job_id)}
    for action in preempts:
        if not check.may_change(action.job_id):
            served.difference_update(action.for_jobs)
    found: list[Action] = []
    for action in actions:
        if isinstance(action, PreemptJob) and not action.parted_from:
            for_jobs = tuple(job_id for job_id in action.for_jobs if job_id in served)
            if for_jobs or (not action.for_jobs and check.goes_first(action.job_id)):
                found.append(replace(action, for_jobs=for_jobs))
        else:
            found.append(action)
    return found
