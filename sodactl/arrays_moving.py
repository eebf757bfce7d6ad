"""``sodactl arrays apply --move-waiting``: jobs from before, routed as if they were submitted now."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from slurm_soda.daemon.store.engine import Store, StoreError
from slurm_soda.policies.arrays.layout import ArrayTable
from slurm_soda.slurm_ext.actuator import Change
from slurm_soda.slurm_ext.arranging import Outcome
from slurm_soda.slurm_ext.cli.waiting import waiting_in
from slurm_soda.slurm_ext.moving import moves
from slurm_soda.slurm_ext.routes import RoutingRules
from slurm_soda.sodactl import changes
from slurm_soda.sodactl.changes import ByHand
from slurm_soda.sodactl.site import Site


def with_moves(site: Site, outcome: Outcome, table: ArrayTable, rules: RoutingRules, warnings: list[str]) -> Outcome:
    """The outcome with the jobs that were moved, each recorded as a change by hand that `sodactl undo` takes back."""
    slurm, runner = site.slurm(), site.outside.runner()
    waiting = waiting_in(runner, table.bases, site.settings.slurm.read_timeout_s)
    jobs = {job.job_id: job for job in slurm.jobs()}
    wanted = [
        ByHand(
            Change(
                job_id,
                "rewrite",
                {"Partition": partitions},
                {"Partition": jobs[job_id].partition},
                "routed to its array",
            ),
            jobs[job_id].submit_s,
        )
        for job_id, partitions in moves(table, rules, jobs.values(), waiting).items()
    ]
    with ExitStack() as stack:
        results = changes.make(_store(stack, site, warnings), slurm, wanted, site.now_s())
    moved = tuple(result.change.job_id for result in results if not result.error)
    failed = tuple(f"job {result.change.job_id}: {result.error}" for result in results if result.error)
    return replace(outcome, moved=outcome.moved + moved, problems=outcome.problems + failed)


def _store(stack: ExitStack, site: Site, warnings: list[str]) -> Store | None:
    try:
        return stack.enter_context(site.store())
    except StoreError as error:
        warnings.append(f"moves of jobs are not recorded: {error}")
        return None
