"""The reading half of a cycle: everything that a decision must know, from Slurm and from the store, in one snapshot."""

from __future__ import annotations

from dataclasses import replace

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.daemon_state import DaemonContext, DaemonState
from slurm_soda.daemon.cycle.slurm_state import SlurmReader, SlurmState
from slurm_soda.daemon.cycle.stopwatch import Stopwatch
from slurm_soda.daemon.learning.preemption_costs import PreemptionCostReader
from slurm_soda.daemon.learning.run_time_predictions import RunTimePredictor
from slurm_soda.daemon.learning.start_forecasts import StartForecaster
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.sharing.co_runners import find_sharing_jobs
from slurm_soda.daemon.sharing.sharing_snapshot import SharingSnapshotReader, limit_partings
from slurm_soda.policies.bands.bands import OFF
from slurm_soda.policies.cpu_fit.requests import CpuRequests
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.snapshot import ClusterSnapshot


class SnapshotReader:
    """The one reader of a daemon."""

    def __init__(self, context: DaemonContext) -> None:
        self._store, self._accounting_lookup = context.store, context.accounting_lookup
        self._slurm_reader, self._client = SlurmReader(context.client), context.client
        self.run_time_predictor = RunTimePredictor(context.store, context.accounting_past)
        self.preemption_costs = PreemptionCostReader(context.store)
        self.start_forecaster = StartForecaster(context.store, context.clock)
        self.sharing, self._guests = SharingSnapshotReader(context.store, context.guests), context.guests
        self._reporting_nodes = context.reporting_nodes

    def read(self, state: DaemonState, at: Instant, watch: Stopwatch, settings: Settings, *, asks: bool) -> SlurmState:
        """Read Slurm once, and take it in; with ``asks`` also what matters for a decision alone.

        Raises:
            SlurmError: Slurm did not answer, or not readably.
        """
        sharing, bands = settings.sharing, settings.policy.bands != OFF
        with watch("observe.shares"):
            if sharing.partitions or state.shares.by_guest or state.shares.manual.rows:
                state.shares.manual.read(self._store, at.now_s)
            devices = bool(sharing.partitions or state.shares.unshared)
        slurm_state = self._slurm_reader.read(at, watch, asks=asks, devices=devices, bands=bands)
        job_cache = state.job_cache
        self._reporting_nodes.note({node.name for node in slurm_state.nodes})
        with watch("observe.job_cache"):
            listed = set(slurm_state.jobs)
            job_cache.observe(list(slurm_state.jobs.values()), at.now_s)
            self._guests.note(slurm_state.jobs, slurm_state.allocations, at.now_s)
            job_cache.mark_shared(find_sharing_jobs(slurm_state.jobs, slurm_state.allocations))
            state.pools.read(slurm_state, job_cache)
            self._accounting_lookup.step(
                job_cache, listed, at, lambda answers: state.pools.explain(answers, slurm_state, job_cache)
            )
            job_cache.forget(listed, at.now_s, accounting=self._accounting_lookup.ask is not None)
        with watch("observe.shares"):
            state.shares.observe(slurm_state.jobs, at, job_cache)
        with watch("observe.services"):
            state.services.ask_limits(self._client, at)
            state.services.observe(slurm_state)
        with watch("observe.scope"):
            state.scope.read(slurm_state, state.pools.base_of, state.services.tasks)
            self._guests.left_out = state.scope.left_out_by_node()
        with watch("observe.former_runs"):
            again = state.services.waits_after_requeue
            requeued = {*state.preemptions.requeued, *state.services.requeued}
            followed = {*state.preemptions.by_job, *state.shares.by_guest, *again}
            state.former_runs.observe(
                slurm_state.jobs, slurm_state.nodes, job_cache, followed=followed, requeued=requeued
            )
        return slurm_state

    def snapshot(
        self,
        state: DaemonState,
        slurm_state: SlurmState,
        settings: Settings,
        watch: Stopwatch,
        *,
        asks: bool,
        acts: bool,
    ) -> ClusterSnapshot:
        """What the stages of the decision see.

        Args:
            asks: something is decided, so Slurm may be asked for details of single jobs.
            acts: changes may be sent, so that it matters what became of earlier ones.
        """
        requeued = {*state.preemptions.by_job, *state.pools.aborted(slurm_state.jobs)}
        preemptions, most = state.preemptions, settings.preemption.max_per_job
        refused = preemptions.refused.standing(slurm_state.steady_s)
        snapshot = slurm_state.snapshot(
            state.job_cache,
            leaving=preemptions.leaving,
            requeued=requeued,
            refused=refused,
            max_preemptions=most,
            paused=preemptions.vain.standing(slurm_state.steady_s),
            passing_limit_s=settings.cycle.passing_limit_s,
        )
        with watch("decide.run_times"):
            snapshot = self.run_time_predictor.fill(snapshot, slurm_state.jobs, state.job_cache, requeued)
        with watch("decide.preemption_costs"):
            snapshot = self.preemption_costs.fill(snapshot, slurm_state.jobs)
        with watch("decide.pools"):
            pools = state.pools.in_force(slurm_state, settings.pools, asks=asks)
        with watch("decide.cpu_fit"):
            requests = state.cpu_requests.read(slurm_state, state.job_cache, acts=acts) if asks else CpuRequests.none()
        snapshot = replace(snapshot, pools=pools, cpu_requests=requests)
        snapshot = slurm_state.with_bands(snapshot, settings.policy.bands)
        with watch("decide.services"):
            snapshot = state.services.fill(snapshot, Instant(slurm_state.now_s, slurm_state.steady_s))
        snapshot = state.scope.fill(snapshot)
        if not asks:
            return snapshot
        with watch("decide.sharing"):
            self.sharing.why_not_guest = state.shares.why_not_guest
            snapshot = self.sharing.fill(
                snapshot,
                slurm_state,
                settings.sharing,
                parts_by_hand=bool(state.shares.unshared),
                guests=state.shares.by_guest.keys(),
            )
            state.shares.unguarded = self.sharing.unguarded
            return state.shares.keep_apart(limit_partings(snapshot, refused, most))

    def learn(self, state: DaemonState, slurm_state: SlurmState, snapshot: ClusterSnapshot, plan: Plan | None) -> None:
        """Learn from jobs that ended or go on, and forecast when those start that wait."""
        at = Instant(slurm_state.now_s, slurm_state.steady_s)
        self.run_time_predictor.step(at, slurm_state.nodes, state.job_cache)
        self.preemption_costs.step(at, state.job_cache)
        self.start_forecaster.step(at, snapshot, plan, state.job_cache)
