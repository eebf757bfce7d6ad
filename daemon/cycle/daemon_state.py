"""What sodad works with, and what it keeps from one cycle to the next; all of it comes back from the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.orm import Session

from slurm_soda.daemon.clock import Clock, Instant
from slurm_soda.daemon.cpu_fit.limits_lookup import LimitsLookup
from slurm_soda.daemon.cpu_fit.reader import CpuRequestReader
from slurm_soda.daemon.cpu_fit.recorder import CpuFitRecorder
from slurm_soda.daemon.cycle.accounting_lookup import AccountingLookup
from slurm_soda.daemon.cycle.lease import Lease
from slurm_soda.daemon.learning.accounting_past import AccountingPast
from slurm_soda.daemon.logs import log
from slurm_soda.daemon.pools.pools_reader import PoolsReader
from slurm_soda.daemon.preemption.active_preemptions import ActivePreemptions
from slurm_soda.daemon.preemption.former_runs import FormerRuns
from slurm_soda.daemon.scope.jobs_in_scope import JobsInScope
from slurm_soda.daemon.services.node_bandwidths import NodeBandwidths
from slurm_soda.daemon.services.open_services import OpenServices
from slurm_soda.daemon.services.service_board import ServiceBoard
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.sharing.co_runners import GuestsByNode
from slurm_soda.daemon.sharing.may_join import JoinChecks
from slurm_soda.daemon.sharing.open_shares import OpenShares
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.jobs.job_notes import JobNoteWriter
from slurm_soda.daemon.store.preemptions import (
    load_preemptions,
    load_vain_preemptions,
    refused_runs,
    save_vain_preemptions,
)
from slurm_soda.daemon.store.reporting_nodes import ReportingNodes
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.slurm_ext.client import SlurmClient

REFUSALS_FOR_S = 86_400.0
"""A refusal of Slurm's older than this makes no pause longer."""


@dataclass(frozen=True, slots=True)
class DaemonContext:
    """Where a daemon reads and writes; stays the same as long as it lives."""

    store: Store
    client: SlurmClient
    lease: Lease
    clock: Clock
    accounting_lookup: AccountingLookup
    limits_lookup: LimitsLookup
    reason_to_observe: Callable[[], str] = str
    """Why nothing may be changed now, whatever the mode; empty: it may."""
    cluster_name: Callable[[], str] = str
    """ClusterName; empty while Slurm does not tell."""
    guests: GuestsByNode = field(default_factory=GuestsByNode)
    """For agents, whose nodes cannot tell them."""
    services: ServiceBoard = field(default_factory=ServiceBoard)
    """What routers of inference services report."""
    bandwidths: NodeBandwidths = field(default_factory=NodeBandwidths)
    """What agents report of their nodes."""
    reporting_nodes: ReportingNodes = field(default_factory=ReportingNodes)
    """Whose agents are remembered."""
    accounting_past: AccountingPast = field(default_factory=AccountingPast)
    """Jobs of the time before the store."""

    def close(self) -> None:
        """End the daemon epoch in good order."""
        self.accounting_lookup.close()
        self.accounting_past.close()
        self.limits_lookup.close()
        try:
            with self.store.explained(), self.store.write() as session:
                self.lease.daemon_epoch.end(session, self.clock.now_s())
        except StoreError as error:
            log(logging.ERROR, "end-not-recorded", error=error)


@dataclass(slots=True)
class DaemonState:
    """What a daemon must know to go on."""

    job_cache: JobCache
    notes: JobNoteWriter
    pools: PoolsReader
    preemptions: ActivePreemptions
    cpu_requests: CpuRequestReader
    cpu_fits: CpuFitRecorder
    shares: OpenShares
    former_runs: FormerRuns
    services: OpenServices
    scope: JobsInScope

    @classmethod
    def recalled(cls, settings: Settings, context: DaemonContext, before: DaemonState | None = None) -> DaemonState:
        """As the store has it; ``before`` is what this process knew until now."""
        preemptions = ActivePreemptions(settings.preemption)
        requests = CpuRequestReader(settings.cpu_fit, context.store, context.client, context.limits_lookup)
        fits = CpuFitRecorder(context.store)
        job_cache = JobCache(context.store)
        checks = JoinChecks(context.client, context.limits_lookup)
        with context.store.read() as session:
            pools = PoolsReader(Path(settings.state_dir), session, context.client)
            at = Instant.read(context.clock)
            preemptions.adopt(load_preemptions(session, at))
            if before is not None:
                preemptions.keep_times(before.preemptions)
            preemptions.vain.recall(load_vain_preemptions(session, at))
            for job_id, restart, at_s in refused_runs(session, at.now_s - REFUSALS_FOR_S):
                preemptions.refused.note(job_id, restart, at.steady_since(at_s, REFUSALS_FOR_S))
            shares = OpenShares(settings.sharing, context.client, checks)
            shares.pauses.most_revocations = settings.preemption.max_per_job
            shares.recall(session, at, None if before is None else before.shares)
            former_runs = FormerRuns(context.store) if before is None else before.former_runs
            services = OpenServices(settings.services, context.services, context.bandwidths)
            services.recall(session, at, None if before is None else before.services)
            scope = JobsInScope(settings.scope)
            scope.keep(None if before is None else before.scope)
            return cls(
                job_cache, JobNoteWriter(), pools, preemptions, requests, fits, shares, former_runs, services, scope
            )

    def use(self, settings: Settings) -> None:
        """Other settings hold from now on."""
        self.preemptions.settings = settings.preemption
        self.cpu_requests.settings = settings.cpu_fit
        self.shares.settings = settings.sharing
        self.services.use(settings.services)
        self.scope.use(settings.scope)
        self.shares.pauses.most_revocations = settings.preemption.max_per_job

    def count_preemptions(self) -> None:
        """Preempted jobs that are back in the queue count one more."""
        for job_id in self.preemptions.take_succeeded():
            self.job_cache.count_preemption(job_id)

    def save(self, session: Session, at: Instant) -> None:
        """Write what changed; call :meth:`saved` once the transaction is through."""
        self.job_cache.save(session, at.now_s)
        self.pools.save(session)
        save_vain_preemptions(session, self.preemptions.vain, at)
        self.services.save(session, at)

    def saved(self) -> None:
        """What :meth:`save` wrote is committed."""
        self.job_cache.saved()
        self.pools.saved()
        self.services.saved()
        self.preemptions.vain.changed = False
