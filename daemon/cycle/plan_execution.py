"""The writing half of a cycle: from a plan's actions to the changes that the limits admit, and to what became of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.change_limits import ChangeLimits
from slurm_soda.daemon.cycle.daemon_state import DaemonContext, DaemonState
from slurm_soda.daemon.cycle.recorder import CycleResult
from slurm_soda.daemon.cycle.sending import RecordedChange, send_recorded_changes
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.cycle.stopwatch import Stopwatch
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.preemption.boot_time import read_boot_s
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.sharing.new_shares import begin_shares, refused_joins
from slurm_soda.daemon.store import audit_log
from slurm_soda.daemon.store.audit_log import ChangeOutcome, IntendedChange
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.settlement import judge_unsettled_changes
from slurm_soda.daemon.store.tables.cpu_fit import CpuProposalRow
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.write.job_changes import JobChange, order_changes, request_changes
from slurm_soda.slurm_ext.write.sending import JobChangeResult
from slurm_soda.slurm_ext.write.starts_behind import find_jobs_ahead

SETTLE_EVERY_S = 60.0
"""How often the store is asked for changes by hand whose command was killed."""


class PlanExecutor:
    """Carries out plans, within the change limits."""

    def __init__(self, context: DaemonContext, settings: Settings) -> None:
        self._context, self._settings = context, settings
        self._limits = ChangeLimits(settings.change_limits)
        self._settle_s = float("-inf")
        """When the store is next asked for changes of unknown outcome, by the steady clock."""
        self._sent = 0
        """Changes since the last cycle began."""
        self._job_cache: JobCache | None = None
        """As recalled; ``None`` before."""

    def use(self, settings: Settings) -> None:
        """Other settings hold from now on."""
        self._settings = settings
        self._limits.settings = settings.change_limits

    def begin_cycle(self) -> None:
        """The limit on a cycle's changes counts anew, also in one that comes to no plan."""
        self._sent = 0

    def recall(self, job_cache: JobCache) -> None:
        """What was changed a moment ago, also by an earlier daemon, is not changed again at once."""
        self._job_cache = job_cache
        self._settle_s = float("-inf")
        at, longest_s = Instant.read(self._context.clock), self._settings.change_limits.min_change_interval_s
        with self._context.store.read() as session:
            for job_id, changed_s in audit_log.recent_changes(session, at.now_s - longest_s):
                self._limits.remember(job_id, at.steady_since(changed_s, longest_s))

    def prepare(
        self,
        state: DaemonState,
        slurm_state: SlurmState,
        snapshot: ClusterSnapshot,
        plan: Plan | None,
        cpu_proposals: Sequence[CpuProposalRow],
        *,
        acts: bool,
    ) -> CycleResult:
        """From a plan to changes, and from these to the ones that the limits admit."""
        now_s, jobs, preemptions, shares = slurm_state.now_s, slurm_state.jobs, state.preemptions, state.shares
        at = Instant(now_s, slurm_state.steady_s)
        settled = self._settle(slurm_state) + state.scope.take_undone()
        boot_s = read_boot_s(self._context.client, preemptions.by_job.values(), jobs)
        details = slurm_state.waiting or {}
        left = state.former_runs.left
        first: Collection[int] = ()
        led: Collection[int] = ()
        if plan is not None:
            first, led = state.services.choose_first(plan, snapshot, at, left)
        steps, changed = preemptions.advance(
            jobs, plan, at, may_begin=acts, left=left, boot_s=boot_s, details=details, led=led
        )
        state.count_preemptions()
        begun = [] if plan is None else preemptions.begin(plan, jobs, state.job_cache, at, details)
        share_steps, changed_shares = shares.advance(
            slurm_state, acts=acts, preemptions=preemptions, left=left, out_of_scope=state.scope.why
        )
        service_steps = state.services.advance(
            slurm_state, snapshot, plan, state.job_cache, left, acts=acts, out_of_scope=state.scope.why_service
        )
        # A guest gets its own request back before its wait after a requeue ends.
        steps = [step for step in steps if step.send != "start-now" or step.change.job_id not in shares.by_guest]
        ordinary: list[JobChange] = []
        if plan is not None:
            ordinary, plan = self._waiting_changes(state, snapshot, plan.led_by(first))
        joins = begin_shares(shares, plan if acts else None, slurm_state, state.job_cache, preemptions)
        shares.refusals, ordinary = joins.refusals, joins.order(ordinary)
        if plan is not None:
            shares.refusals |= refused_joins(plan, state.scope.why)
        if acts:
            ordinary = state.scope.take_back(self._context.store, slurm_state) + ordinary
        planned = len(service_steps) + len(share_steps) + len(steps) + len(begun) + len(joins.begun) + len(ordinary)
        if not acts:
            begun, ordinary = [], []
        elif plan is not None:
            state.job_cache.promote(plan.promoted.tolist(), now_s)
        preemption_steps, share_steps = steps + begun, share_steps + joins.begun
        urgent = [step.change for step in share_steps] + [step.change for step in preemption_steps]
        services = [step.change for step in service_steps]
        admitted = self._limits.admit(urgent, ordinary, at.steady_s, services=services)
        self._sent = len(admitted.changes)
        admitted_keys = {change.key for change in admitted.changes}
        preemption_steps = [step for step in preemption_steps if step.change.key in admitted_keys]
        share_steps = [step for step in share_steps if step.change.key in admitted_keys]
        service_steps = [step for step in service_steps if step.change.key in admitted_keys]
        fresh = [step.active_preemption for step in begun if step.change.key in admitted_keys]
        preemptions.adopt(fresh)
        shares.adopt(step.share for step in share_steps if step.send == "share")
        parted = set() if plan is None else {one.job_id for one in plan.preempts if one.parted_from}
        changed_shares += shares.part({one.job_id: one.reason for one in fresh if one.job_id in parted})
        manual = shares.manual.conclude(
            plan,
            parts=isinstance(snapshot, SharingSnapshot),
            refusals=shares.refusals,
            shares=shares.by_guest,
            jobs=jobs,
            job_cache=state.job_cache,
            now_s=now_s,
        )
        return CycleResult(
            slurm_state, snapshot, plan, preemption_steps, fresh, changed, settled, planned, admitted, cpu_proposals,
            share_steps, changed_shares, manual, service_steps,
        )  # fmt: skip

    def _waiting_changes(
        self, state: DaemonState, snapshot: ClusterSnapshot, plan: Plan
    ) -> tuple[list[JobChange], Plan]:
        """What the plan changes of waiting jobs, and the plan with what that means for others."""
        cycle = self._settings.cycle
        orders = order_changes(
            plan,
            snapshot,
            depth=cycle.order_depth,
            skipping_limit_s=cycle.skipping_limit_s,
            successors=state.preemptions.successors,
        )
        requests = [change for change in request_changes(plan, snapshot) if change.job_id not in state.shares.by_guest]
        behind = find_jobs_ahead(plan, snapshot, orders)
        return requests + orders, replace(plan, notes=replace(plan.notes, behind=behind))

    def send(
        self,
        state: DaemonState,
        recorded: Sequence[RecordedChange],
        result: CycleResult,
        watch: Stopwatch,
        still_wanted: Callable[[Session], None],
    ) -> None:
        """Send what is recorded, and take in what became of it.

        Raises:
            ModeChangedError: by ``still_wanted``, which looks into the store before each chunk; nothing more is sent.
            SupersededError: a newer daemon has taken over; nothing more is sent, and it finds out what became of the rest.
            LeaseLapsedError: this daemon was paused; nothing more is sent.
        """
        if not recorded:
            return
        context, preemption_step_of = self._context, result.preemption_step_of
        with watch("act.send"):
            for each in result.service_steps:
                state.services.note_sent(each)
            outcomes = send_recorded_changes(context.client, recorded, partial(context.lease.check, still_wanted))
            for outcome, (_, change) in zip(outcomes, recorded, strict=True):
                result.outcomes.append(outcome)
                preemption_step = preemption_step_of.get(change.key)
                if preemption_step is not None:
                    state.preemptions.note(
                        preemption_step, outcome, result.slurm_state.jobs[change.job_id], context.clock.elapsed_s()
                    )
                share_step = result.share_step_of.get(change.key)
                if share_step is not None:
                    state.shares.note(share_step, outcome, context.clock.elapsed_s())
                service_step = result.service_step_of.get(change.key)
                if service_step is not None:
                    state.services.note(service_step, outcome, context.clock.elapsed_s())
                state.scope.note(change, outcome, context.clock.elapsed_s())
                if outcome.state == "sent":
                    self._settle_s = float("-inf")
                if outcome.state == "failed":
                    state.pools.refused(change, context.clock.elapsed_s())
                if outcome.error:
                    log(logging.WARNING, "refused", job=change.job_id, kind=change.kind, error=outcome.error)
        state.count_preemptions()

    def send_outside_plan(self, changes: Sequence[JobChange], jobs: Mapping[int, SlurmJob]) -> list[JobChangeResult]:
        """Record and send what no plan says: waiting jobs that leave partitions of pools.

        The change limits hold, and what the last cycle sent counts; the caller asks again for what they held back.

        Args:
            changes: most urgent first.
            jobs: those jobs as Slurm shows them.

        Returns:
            One result for each change that was sent, in order.

        Raises:
            SupersededError: a newer daemon has taken over; nothing more was sent.
            LeaseLapsedError: this daemon was paused too long; nothing more was sent.
        """
        context, at, daemon_epoch = self._context, Instant.read(self._context.clock), self._context.lease.daemon_epoch
        admitted = self._limits.admit([], changes, at.steady_s, already=self._sent).changes
        job_cache = self._job_cache
        if not admitted or job_cache is None:
            return []
        self._sent += len(admitted)
        intents = [IntendedChange(each, job_cache.first_submit_s(jobs[each.job_id])) for each in admitted]
        with context.store.write() as session:
            daemon_epoch.check(session)
            keys = audit_log.record_intents(
                session, intents, epoch_id=daemon_epoch.epoch_id, cycle_id=None, now_s=at.now_s
            )
        recorded = list(zip(keys, admitted, strict=True))
        outcomes = list(send_recorded_changes(context.client, recorded, context.lease.check))
        if any(outcome.state == "sent" for outcome in outcomes):
            self._settle_s = float("-inf")
        with context.store.write() as session:
            audit_log.record_outcomes(session, outcomes, context.clock.now_s())
        return [
            JobChangeResult(change, outcome.error, answered=outcome.state != "sent")
            for change, outcome in zip(admitted, outcomes, strict=True)
        ]

    def _settle(self, slurm_state: SlurmState) -> list[ChangeOutcome]:
        """What became of changes whose outcome nobody recorded, as far as this reading of Slurm shows."""
        now_s, steady_s = slurm_state.now_s, slurm_state.steady_s
        if steady_s < self._settle_s:
            return []
        with self._context.store.read() as session:
            unsettled = audit_log.unsettled_changes(session)
            settled = judge_unsettled_changes(
                session, unsettled, slurm_state.jobs, slurm_state.site_factors, now_s, in_daemon=True
            )
        still_open = {each.action_id for each in unsettled} - {outcome.action_id for outcome in settled}
        self._settle_s = steady_s if still_open else steady_s + SETTLE_EVERY_S
        return settled
