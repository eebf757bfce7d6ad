"""Waiting jobs that ``sodactl pools`` moves: each move is a recorded change by hand, which ``sodactl undo`` takes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.policies.pipeline.actions import RouteJob
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.pools.pool_installer import PoolChangeOutcome
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules
from slurm_soda.slurm_ext.pools.waiting_jobs import route_waiting_jobs
from slurm_soda.slurm_ext.read.squeue_waiting import read_waiting_jobs
from slurm_soda.slurm_ext.write.job_changes import JobChange, route_change
from slurm_soda.slurm_ext.write.sending import JobChangeResult
from slurm_soda.sodactl.control import manual_changes
from slurm_soda.sodactl.control.manual_changes import ManualChange
from slurm_soda.sodactl.site_access import SiteAccess


@dataclass(frozen=True, slots=True)
class WaitingJobMover:
    """Records moves of waiting jobs, then sends them; without a usable store they are sent all the same, with a warning."""

    site: SiteAccess
    warnings: list[str]

    def send(self, changes: Sequence[JobChange], jobs: Mapping[int, SlurmJob]) -> Sequence[JobChangeResult]:
        """One result for each change, of these jobs."""
        if not changes:
            return []
        with ExitStack() as stack:
            store = None
            try:
                store = stack.enter_context(self.site.store())
            except StoreError as error:
                self._warn(f"moves of jobs are not recorded: {error}")
            submit_s = manual_changes.first_submit_times(store, [jobs[change.job_id] for change in changes])
            wanted = [ManualChange(change, submit_s[change.job_id]) for change in changes]
            results, unrecorded = manual_changes.send_even_unrecorded(
                store, self.site.slurm(), wanted, self.site.now_s()
            )
            self._warn(unrecorded)
            return results

    def _warn(self, warning: str) -> None:
        """Once."""
        if warning and warning not in self.warnings:
            self.warnings.append(warning)


def move_waiting_jobs(
    mover: WaitingJobMover, outcome: PoolChangeOutcome, table: PoolTable, rules: RoutingRules
) -> PoolChangeOutcome:
    """``--move-waiting``: jobs from before, routed as if they were submitted now. The outcome with them."""
    site = mover.site
    waiting = read_waiting_jobs(site.context.runner(), table.bases, site.settings.slurm.read_timeout_s)
    jobs = {job.job_id: job for job in site.slurm().jobs()}
    changes = [
        route_change(RouteJob(job_id, "routed to its pool", partitions, jobs[job_id].partition))
        for job_id, partitions in route_waiting_jobs(table, rules, jobs.values(), waiting).items()
    ]
    results = mover.send(changes, jobs)
    moved = tuple(result.change.job_id for result in results if not result.error)
    failed = tuple(f"job {result.change.job_id}: {result.error}" for result in results if result.error)
    return replace(outcome, moved=outcome.moved + moved, problems=outcome.problems + failed)
