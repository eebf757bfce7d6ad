"""The writing half of a cycle: from a plan's actions to the changes that the limits admit, and to what became of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.cycle.change_limits import ChangeLimits
from slurm_soda.daemon.cycle.daemon_state import DaemonContext, DaemonState
from slurm_soda.daemon.cycle.recorder import CycleResult
from slurm_soda.daemon.cycle.sending import RecordedChange, resolve_outcome, send_recorded_changes
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.cycle.stopwatch import Stopwatch
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.store import audit_log
from slurm_soda.daemon.store.audit_log import ChangeOutcome, UnsettledChange
from slurm_soda.daemon.store.tables.cpu_fit import CpuProposalRow
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.slurm_ext.write.job_changes import JobChange, order_changes, request_changes


class PlanExecutor:
    """Carries out plans, within the change limits."""

    def __init__(self, context: DaemonContext, settings: Settings) -> None:
        self._context, self._settings = context, settings
        self._limits = ChangeLimits(settings.change_limits)

    def use(self, settings: Settings) -> None:
        """Other settings hold from now on."""
        self._settings = settings
        self._limits.settings = settings.change_limits

    def recall(self) -> None:
        """What was changed a moment ago, also by an earlier daemon, is not changed again at once."""
        since_s = self._context.clock.now_s() - self._settings.change_limits.min_change_interval_s
        with self._context.store.read() as session:
            for job_id, at_s in audit_log.recent_changes(session, since_s):
                self._limits.remember(job_id, at_s)

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
        now_s, jobs, preemptions = slurm_state.now_s, slurm_state.jobs, state.preemptions
        settled = _settle(state, slurm_state)
        steps, changed = preemptions.advance(jobs, plan, now_s, may_begin=acts)
        state.count_preemptions()
        begun = [] if plan is None else preemptions.begin(plan, jobs, state.job_cache, now_s)
        ordinary: list[JobChange] = []
        if plan is not None:
            cycle = self._settings.cycle
            orders = order_changes(plan, snapshot, depth=cycle.order_depth, passing_limit_s=cycle.passing_limit_s)
            ordinary = request_changes(plan, snapshot) + orders
        planned = len(steps) + len(begun) + len(ordinary)
        if not acts:
            begun, ordinary = [], []
        elif plan is not None:
            state.job_cache.promote(plan.promoted.tolist(), now_s)
        preemption_steps = steps + begun
        admitted = self._limits.admit([step.change for step in preemption_steps], ordinary, now_s)
        admitted_keys = {change.key for change in admitted.changes}
        preemption_steps = [step for step in preemption_steps if step.change.key in admitted_keys]
        fresh = [step.active_preemption for step in begun if step.change.key in admitted_keys]
        preemptions.adopt(fresh)
        return CycleResult(
            slurm_state, snapshot, plan, preemption_steps, fresh, changed, settled, planned, admitted, cpu_proposals
        )

    def send(
        self, state: DaemonState, recorded: Sequence[RecordedChange], result: CycleResult, watch: Stopwatch
    ) -> None:
        """Send what is recorded, and take in what became of it.

        Raises:
            SupersededError: a newer daemon has taken over; nothing was sent.
        """
        if not recorded:
            return
        context, preemption_step_of = self._context, result.preemption_step_of
        with context.store.read() as session:
            context.daemon_epoch.check(session)
        with watch("act.send"):
            for outcome, (action_id, change) in zip(
                send_recorded_changes(context.client, recorded), recorded, strict=True
            ):
                result.outcomes.append(outcome)
                preemption_step = preemption_step_of.get(change.key)
                if preemption_step is not None:
                    state.preemptions.note(
                        preemption_step, outcome, result.slurm_state.jobs[change.job_id], context.clock.now_s()
                    )
                if outcome.state == "sent":
                    restart = preemption_step.active_preemption.restart if preemption_step else None
                    state.unsettled.append(UnsettledChange(action_id, change, restart))
                if outcome.state == "failed":
                    state.pools.refused(change, context.clock.now_s())
                if outcome.error:
                    log(logging.WARNING, "refused", job=change.job_id, kind=change.kind, error=outcome.error)
        state.count_preemptions()


def _settle(state: DaemonState, slurm_state: SlurmState) -> list[ChangeOutcome]:
    """What became of changes whose outcome nobody saw, as far as this reading of Slurm shows."""
    judged = []
    for each in state.unsettled:
        job_id = each.change.job_id
        site_factor = slurm_state.site_factors.get(job_id, 0)
        judged.append((each, resolve_outcome(each, slurm_state.jobs.get(job_id), site_factor, slurm_state.now_s)))
    state.unsettled = [each for each, outcome in judged if outcome is None]
    return [outcome for _, outcome in judged if outcome is not None]
