"""The two transactions of a cycle: what will be sent, before it is sent; and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_soda.daemon.cycle.change_limits import AdmittedChanges
from slurm_soda.daemon.cycle.epoch import DaemonEpoch
from slurm_soda.daemon.cycle.sending import RecordedChange
from slurm_soda.daemon.cycle.slurm_state import SlurmState
from slurm_soda.daemon.pools.pool_stage import PoolStage
from slurm_soda.daemon.preemption.active_preemptions import PreemptionStep
from slurm_soda.daemon.preemption.state_machine import ActivePreemption
from slurm_soda.daemon.store import audit_log
from slurm_soda.daemon.store.audit_log import ChangeOutcome, IntendedChange
from slurm_soda.daemon.store.cpu_fit import prune_measurements, save_proposals
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.jobs.job_notes import JobNoteWriter
from slurm_soda.daemon.store.preemptions import add_preemptions, save_phases
from slurm_soda.daemon.store.tables.cpu_fit import CpuProposalRow
from slurm_soda.policies.plan import Plan
from slurm_soda.slurm_ext.write.job_changes import JobChange

KEEP_IDLE_CYCLES_S = 86_400.0
"""Cycles that changed nothing are kept this long."""

KEEP_MEASUREMENTS_S = 90 * 86_400.0
"""What was measured of jobs' cores is kept this long; what was found is kept."""

PRUNE_EVERY = 500

MAX_SHOWN = 50
"""Starts and preemptions of a plan that a cycle's row names."""


@dataclass(slots=True)
class CycleResult:
    """One cycle in the making: what the plan wants and what may be done about it."""

    slurm_state: SlurmState
    plan: Plan | None
    preemption_steps: list[PreemptionStep]
    """Steps of preemptions, those that begin included."""
    begun: list[ActivePreemption]
    """Preemptions that begin with this cycle; others that the rails held back are forgotten."""
    changed: list[ActivePreemption]
    """Preemptions whose phase changed by what Slurm shows."""
    settled: list[ChangeOutcome]
    """Changes of earlier cycles whose outcome is known now."""
    planned: int
    passed: AdmittedChanges
    starts: Sequence[CpuProposalRow] = ()
    """New thoughts about waiting jobs' requests."""
    cycle_id: int = 0
    """Key of the cycle's row, once it is recorded."""
    outcomes: list[ChangeOutcome] = field(default_factory=list)
    """Of the changes that were sent, in their order."""


@dataclass(frozen=True, slots=True)
class CycleRecorder:
    """Writes cycles down, for one life of the daemon."""

    store: Store
    daemon_epoch: DaemonEpoch

    def intend(
        self, work: CycleResult, job_cache: JobCache, arrays: PoolStage, *, now_s: float, mode: str, policy: str
    ) -> list[RecordedChange]:
        """First transaction: everything known, and every change that is about to be sent.

        Raises:
            SupersededError: a newer daemon has taken over; nothing was written.
        """
        by_change = {
            id(preemption_step.change): preemption_step.active_preemption for preemption_step in work.preemption_steps
        }
        with self.store.write() as session:
            self.daemon_epoch.check(session)
            self.daemon_epoch.write_heartbeat(session, now_s)
            work.cycle_id = audit_log.open_cycle(
                session, epoch_id=self.daemon_epoch.epoch_id, started_s=now_s, mode=mode, policy=policy
            )
            audit_log.record_outcomes(session, work.settled, now_s)
            save_phases(session, work.changed, now_s)
            add_preemptions(session, work.begun)
            job_cache.save(session, now_s)
            arrays.save(session)
            save_proposals(session, work.starts)
            intents = [_intended_change(change, by_change.get(id(change)), job_cache) for change in work.passed.changes]
            keys = audit_log.record_intents(
                session, intents, epoch_id=self.daemon_epoch.epoch_id, cycle_id=work.cycle_id, now_s=now_s
            )
        job_cache.saved()
        arrays.saved()
        return list(zip(keys, work.passed.changes, strict=True))

    def close(
        self,
        work: CycleResult,
        job_cache: JobCache,
        notes: JobNoteWriter,
        *,
        now_s: float,
        columns: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Second transaction: what became of it all."""
        moved = [
            preemption_step.active_preemption
            for preemption_step in work.preemption_steps
            if preemption_step.active_preemption.pk
        ]
        with self.store.write() as session:
            audit_log.record_outcomes(session, work.outcomes, now_s)
            save_phases(session, moved, now_s)
            job_cache.save(session, now_s)
            if work.plan is not None:
                notes.write(session, work.plan.notes, job_cache.jobs)
            audit_log.close_cycle(session, work.cycle_id, **columns())
            if work.cycle_id % PRUNE_EVERY == 0:
                audit_log.prune_cycles(session, before_s=now_s - KEEP_IDLE_CYCLES_S)
                prune_measurements(session, before_s=now_s - KEEP_MEASUREMENTS_S)
        job_cache.saved()

    def fail(self, *, now_s: float, mode: str, policy: str, columns: Mapping[str, Any]) -> None:
        """A cycle that did nothing, and why."""
        with self.store.write() as session:
            self.daemon_epoch.check(session)
            self.daemon_epoch.write_heartbeat(session, now_s)
            cycle_id = audit_log.open_cycle(
                session, epoch_id=self.daemon_epoch.epoch_id, started_s=now_s, mode=mode, policy=policy
            )
            audit_log.close_cycle(session, cycle_id, **columns)


def _intended_change(
    change: JobChange, active_preemption: ActivePreemption | None, job_cache: JobCache
) -> IntendedChange:
    return IntendedChange(
        change, job_cache.submit_s(change.job_id), active_preemption.pk if active_preemption else None
    )


def summarize_plan(plan: Plan) -> dict[str, Any]:
    """The heart of a plan as plain data, for people; long lists are cut."""
    preempts: Sequence[dict[str, Any]] = [
        {"job_id": wish.job_id, "for_jobs": list(wish.for_jobs)[:MAX_SHOWN], "reason": wish.reason}
        for wish in plan.preempts[:MAX_SHOWN]
    ]
    return {
        "starts": plan.starts[:MAX_SHOWN].tolist(),
        "preempts": list(preempts),
        "promoted": plan.promoted[:MAX_SHOWN].tolist(),
    }
