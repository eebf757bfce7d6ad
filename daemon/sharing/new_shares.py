"""The shares that a plan begins: asked of Slurm as far as a snapshot cannot tell, each with its update."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.preemption.active_preemptions import ActivePreemptions
from slurm_soda.daemon.sharing.open_shares import OpenShares, ShareStep
from slurm_soda.daemon.sharing.share_state import Share
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.policies.pipeline.actions import JoinGpus, ResizeRequest, RouteJob
from slurm_soda.policies.plan import Plan
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.shown_request import shown_request
from slurm_soda.slurm_ext.sharing.guest_record import parse_guest_record
from slurm_soda.slurm_ext.write import job_changes
from slurm_soda.slurm_ext.write.job_changes import JobChange


@dataclass(slots=True)
class NewShares:
    """What becomes of a plan's joins."""

    shares: OpenShares
    jobs: Mapping[int, SlurmJob]
    at: Instant
    job_cache: JobCache
    begun: list[ShareStep] = field(default_factory=list)
    """Each with its update; :meth:`OpenShares.adopt` those that the change limits let through."""
    splits: list[JobChange] = field(default_factory=list)
    """Of arrays of which a task is to join."""
    refusals: dict[int, str] = field(default_factory=dict)
    """Why jobs do not join, by id."""
    _single_tasks: dict[int, list[SlurmJob]] | None = None
    """By array, waiting tasks that are jobs of their own; looked for once, when an array is to join."""

    def order(self, ordinary: Iterable[JobChange]) -> list[JobChange]:
        """Ordinary changes with those of arrays that lose a task, whose own order has time."""
        splitting = {change.job_id for change in self.splits}
        return [*self.splits, *(change for change in ordinary if change.job_id not in splitting)]

    def _begin(self, action: JoinGpus, touched: Collection[int], leaving: Collection[int]) -> None:
        action = self._of_single_task(action)
        job = self.jobs.get(action.job_id)
        if job is None or job.state != "PENDING" or action.job_id in leaving:
            self.refusals[action.job_id] = "it does not wait for GPUs any more"
            return
        if why := self._why_not(action, job, touched, leaving):
            self.refusals[action.job_id] = why
        elif job.array_rest:
            self.splits.append(job_changes.split_change(action, job))
        else:
            try:
                self.begun.append(self._step(action, job))
            except SlurmReplyError as error:
                self.refusals[action.job_id] = str(error)

    def _of_single_task(self, action: JoinGpus) -> JoinGpus:
        """The same for a task that is a job of its own already, where one waits that asks for the same."""
        shares, steady_s, rest = self.shares, self.at.steady_s, self.jobs.get(action.job_id)
        if rest is None or not rest.array_rest:
            return action
        asked = shown_request(rest)
        for job in self._singles().get(rest.array_job_id, ()):
            free = not job.shared_gpus and job.job_id not in shares.by_guest
            if free and shown_request(job) == asked and not shares.pauses.why_refused(job, steady_s):
                return replace(action, job_id=job.job_id)
        return action

    def _singles(self) -> dict[int, list[SlurmJob]]:
        if self._single_tasks is None:
            self._single_tasks = {}
            for job in self.jobs.values():
                if job.array_task and not job.array_rest and job.state == "PENDING":
                    self._single_tasks.setdefault(job.array_job_id, []).append(job)
        return self._single_tasks

    def _why_not(self, action: JoinGpus, job: SlurmJob, touched: Collection[int], leaving: Collection[int]) -> str:
        if why := self._why_taken(action, leaving):
            return why
        pauses, steady_s = self.shares.pauses, self.at.steady_s
        hosts = [self.jobs[host] for host in action.hosts]
        apart = (pauses.why_owners_apart(job.user, host.user, steady_s) for host in hosts)
        if why := next(filter(None, apart), "") or pauses.why_not(action.job_id, action.hosts, steady_s):
            return why
        if action.job_id in touched:
            return "something else of its request is changed first"
        why = self.shares.checks.why_not(action, job, hosts, self.shares.settings, steady_s)
        if not why and (why := self.shares.checks.why_not_as_it_asks(job)):
            # That holds whoever its hosts would be.
            pauses.note_refused(job.job_id, why, shown_request(job), steady_s)
        return why

    def _why_taken(self, action: JoinGpus, leaving: Collection[int]) -> str:
        for host in action.hosts:
            known = self.jobs.get(host)
            if known is None or known.state != "RUNNING" or host in leaving:
                return f"job {host}, beside which it would start, leaves"
        for share in (*self.shares.by_guest.values(), *(step.share for step in self.begun)):
            if not set(share.nodes).isdisjoint(action.nodes) and not set(share.record.gpus).isdisjoint(action.gpus):
                return f"job {share.guest} has that place already"
        return ""

    def _step(self, action: JoinGpus, job: SlurmJob) -> ShareStep:
        settings = self.shares.settings
        change = job_changes.join_change(action, job, settings.gres)
        share = Share(
            guest=action.job_id,
            submit_s=self.job_cache.submit_s(action.job_id),
            restart=job.restarts,
            nodes=action.nodes,
            record=parse_guest_record(change.new["Extra"]),
            wrote={name: value for name, value in change.new.items() if name != "Extra"},
            phase="intended",
            created_s=self.at.now_s,
            deadline_s=self.at.steady_s + settings.start_within_s,
            users=(job.user, *(self.jobs[host].user for host in action.hosts)),
            host_restarts={host: self.jobs[host].restarts for host in action.hosts},
            why=action.reason,
        )
        return ShareStep(share, "share", change)


def refused_joins(plan: Plan, why_out: Callable[[int], str]) -> dict[int, str]:
    """Why jobs do not join that a plan would have join, by id: the scope does not let them.

    Args:
        plan: with what it withholds.
        why_out: why a job is not in scope; empty if it is.
    """
    found = {}
    for action in plan.withheld:
        if isinstance(action, JoinGpus):
            host = next((host for host in action.hosts if why_out(host)), 0)
            behind = "it stays behind a job that is not in scope"
            found[action.job_id] = why_out(action.job_id) or (f"job {host} is {why_out(host)}" if host else behind)
    return found


def begin_shares(
    shares: OpenShares, plan: Plan | None, slurm_state: SlurmState, job_cache: JobCache, preemptions: ActivePreemptions
) -> NewShares:
    """What becomes of the joins of a plan, if there is one."""
    at = Instant(slurm_state.now_s, slurm_state.steady_s)
    new = NewShares(shares, slurm_state.jobs, at, job_cache)
    if plan is None:
        return new
    touched = {action.job_id for action in plan.actions if isinstance(action, ResizeRequest | RouteJob)}
    leaving = {*preemptions.by_job, *(action.job_id for action in plan.preempts)}
    for action in plan.actions:
        if isinstance(action, JoinGpus) and action.job_id not in shares.by_guest:
            new._begin(action, touched, leaving)
    return new
