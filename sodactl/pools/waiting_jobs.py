"""``sodactl pools apply --move-waiting``: jobs from before, routed as if they were submitted now."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from slurm_soda.daemon.store.engine import Store, StoreError
from slurm_soda.policies.pipeline.actions import RouteJob
from slurm_soda.policies.pools.layout.partitions import PoolTable
from slurm_soda.slurm_ext.pools.pool_installer import PoolChangeOutcome
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules
from slurm_soda.slurm_ext.pools.waiting_jobs import route_waiting_jobs
from slurm_soda.slurm_ext.read.squeue_waiting import read_waiting_jobs
from slurm_soda.slurm_ext.write.job_changes import route_change
from slurm_soda.sodactl.control import manual_changes
from slurm_soda.sodactl.control.manual_changes import ManualChange
from slurm_soda.sodactl.site_access import SiteAccess


def move_waiting_jobs(
    site: SiteAccess, outcome: PoolChangeOutcome, table: PoolTable, rules: RoutingRules, warnings: list[str]
) -> PoolChangeOutcome:
    """The outcome with the jobs that were moved, each recorded as a change by hand that `sodactl undo` takes back."""
    slurm, runner = site.slurm(), site.context.runner()
    waiting = read_waiting_jobs(runner, table.bases, site.settings.slurm.read_timeout_s)
    jobs = {job.job_id: job for job in slurm.jobs()}
    wanted = [
        ManualChange(
            route_change(RouteJob(job_id, "routed to its pool", partitions, jobs[job_id].partition)),
            jobs[job_id].submit_s,
        )
        for job_id, partitions in route_waiting_jobs(table, rules, jobs.values(), waiting).items()
    ]
    with ExitStack() as stack:
        results = manual_changes.send_manual_changes(_store(stack, site, warnings), slurm, wanted, site.now_s())
    moved = tuple(result.change.job_id for result in results if not result.error)
    failed = tuple(f"job {result.change.job_id}: {result.error}" for result in results if result.error)
    return replace(outcome, moved=outcome.moved + moved, problems=outcome.problems + failed)


def _store(stack: ExitStack, site: SiteAccess, warnings: list[str]) -> Store | None:
    try:
        return stack.enter_context(site.store())
    except StoreError as error:
        warnings.append(f"moves of jobs are not recorded: {error}")
        return None
