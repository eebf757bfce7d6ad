"""``sodactl pools``: divide a partition between CPU jobs, small and large GPU jobs, and take that back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from slurm_soda.daemon.pools import pool_plan, prerequisites
from slurm_soda.daemon.pools.configured_nodes import check_configured
from slurm_soda.daemon.pools.pool_plan import PoolPlan, ShareOverrides
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.policies.pools.layout.usage_history import PastPoolJob
from slurm_soda.slurm_ext.errors import SlurmError, SodaError
from slurm_soda.slurm_ext.pools.partition_settings import include_text
from slurm_soda.slurm_ext.pools.pool_installer import PoolChangeOutcome, PoolInstaller
from slurm_soda.slurm_ext.pools.pools_record import read_record
from slurm_soda.sodactl import output
from slurm_soda.sodactl.pools import documents, tables
from slurm_soda.sodactl.pools.log import log
from slurm_soda.sodactl.pools.waiting_jobs import WaitingJobMover, move_waiting_jobs
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site, on_site

_REVERT_POLL_S = 1.0
_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def pools() -> None:
    """Divide a partition among CPU, small and large GPU jobs.

    A partition keeps its name and its settings. Pool partitions are created beside it: PARTITION_cpu may hold some cores of
    each node, PARTITION_small is for jobs with fewer than 4 GPUs, PARTITION_large for jobs with 4 or more, and jobs in the
    partitions ending in _lend borrow what is idle: Slurm requeues them when the owners' jobs arrive. Users keep submitting
    to PARTITION; each job is routed at submission. docs/pools.md describes everything.

    \b
    Examples:
      sodactl pools plan       what would be created, why, and what slurm.conf needs first
      sodactl pools apply      create it in the running Slurm
      sodactl pools status     what is in force, and how full it is
      sodactl pools revert     remove it; no job is ended
    """  # noqa: D301 - click reads the control character


def _layout_options(function: _F) -> _F:
    """Options that say what is to be divided, and how."""
    for option in (
        click.option(
            "--partition",
            "-p",
            "partitions",
            multiple=True,
            help="Partition to divide; may be given several times.  [default: pools.partitions of the "
            "configuration, else Slurm's default partition]",
        ),
        click.option(
            "--cpu-cores",
            type=click.IntRange(0),
            metavar="N",
            help="Cores of each GPU node for CPU jobs.  [default: derived from history]",
        ),
        click.option(
            "--large-nodes",
            type=click.IntRange(0),
            metavar="N",
            help="Nodes of each kind for jobs with 4 GPUs or more.  [default: derived from history]",
        ),
        click.option("--force", is_flag=True, help="Overwrite what others changed in the pool partitions."),
    ):
        function = option(function)
    return function


@pools.command()
@_layout_options
@on_site
def plan(
    site: SiteAccess,
    *,
    as_json: bool,
    partitions: tuple[str, ...],
    cpu_cores: int | None,
    large_nodes: int | None,
    force: bool,
) -> int:
    """Show what `apply` would create, and what prevents it.

    Shares with their reasons, every call of scontrol, the lines that slurm.conf includes, and settings of Slurm that must
    be changed first. Changes nothing. Exit status: 0 if `apply` would go through, 1 if something prevents it.

    \b
    Examples:
      sodactl pools plan
      sodactl pools plan --partition gpu --cpu-cores 8
      sodactl pools plan --json | jq .obstacles
    """  # noqa: D301 - click reads the control character
    found, warnings = _plan(site, partitions, ShareOverrides(cpu_cores, large_nodes))
    document = documents.plan_document(found)
    document["warnings"] = warnings
    installer = _installer(WaitingJobMover(site, warnings))
    try:
        document["steps"] = documents.partition_change_documents(installer.steps(found.wanted, force=force))
        document["refused"] = ""
    except SlurmError as error:
        document["steps"], document["refused"] = [], str(error)
    if as_json:
        output.print_json(document)
    else:
        tables.print_plan(document)
    return 1 if document["obstacles"] or document["refused"] else 0


@pools.command()
@_layout_options
@click.option("--move-waiting", is_flag=True, help="Also route jobs that already wait in the divided partition.")
@on_site
def apply(
    site: SiteAccess,
    *,
    as_json: bool,
    partitions: tuple[str, ...],
    cpu_cores: int | None,
    large_nodes: int | None,
    force: bool,
    move_waiting: bool,
) -> int:
    """Create the pools in the running Slurm, or bring them up to date.

    What is to be created is recorded first, in the state directory. If Slurm refuses a call, those before it are undone. A
    second time nothing is changed, unless history now says otherwise. Running jobs stay where they are; jobs submitted from
    now on are routed. Needs the rights of root or SlurmUser, on slurmctld's host.
    Exit status: 0 if all is in force, 1 if not.

    \b
    Examples:
      sodactl pools apply
      sodactl pools apply --cpu-cores 8 --large-nodes 2
      sodactl pools apply --move-waiting     with a queue of jobs from before
    """  # noqa: D301 - click reads the control character
    found, warnings = _plan(site, partitions, ShareOverrides(cpu_cores, large_nodes))
    if found.obstacles:
        first = found.obstacles[0]
        more = f" ({len(found.obstacles) - 1} more: sodactl pools plan)" if len(found.obstacles) > 1 else ""
        raise SodaError(f"pools cannot be applied yet: {first.check}: {first.found}; {first.remedy}{more}")
    mover = WaitingJobMover(site, warnings)
    outcome = _installer(mover).apply(found.wanted, force=force)
    if move_waiting:
        outcome = move_waiting_jobs(mover, outcome, found.wanted.table, found.wanted.rules)
    _print_outcome(outcome, warnings, as_json=as_json)
    return 1 if outcome.problems else 0


@pools.command()
@click.option("--wait", is_flag=True, help="Continue until the last job has left the pool partitions.")
@click.option("--force", is_flag=True, help="Also where others changed the pool partitions.")
@on_any_site
def revert(site: SiteAccess, *, as_json: bool, wait: bool, force: bool) -> int:
    """Remove the pools. No job is ended.

    Jobs are no longer routed. Waiting jobs return to their partition. Pool partitions without jobs are deleted; one that
    jobs still run in accepts no more, and is deleted when `revert` is run again after they have ended. Works with sodad
    down.
    Exit status: 0 if nothing is left, 1 if something is.

    \b
    Examples:
      sodactl pools revert
      sodactl pools revert --wait     return when the last job has left
    """  # noqa: D301 - click reads the control character
    mover = WaitingJobMover(site, [])
    arranger = _installer(mover)
    outcome = arranger.revert(force=force)
    while wait and outcome.leaving:
        time.sleep(_REVERT_POLL_S)
        again = arranger.revert(force=force)
        outcome = replace(again, moved=outcome.moved + again.moved, steps=outcome.steps)
    _print_outcome(outcome, mover.warnings, as_json=as_json)
    return 1 if outcome.leaving or outcome.problems else 0


@pools.command()
@on_any_site
def status(site: SiteAccess, *, as_json: bool) -> int:
    """Show the pools in force: shares, nodes, jobs in each, and what somebody else changed.

    Exit status: 0 if pools are in force as recorded, 1 if not, 3 if there are none.

    \b
    Examples:
      sodactl pools status
      sodactl pools status --json | jq '.partitions[] | {name, running_jobs, waiting_jobs}'
    """  # noqa: D301 - click reads the control character
    record = read_record(Path(site.settings.state_dir))
    if record is None:
        document = documents.no_pools_document()
    else:
        port, include_path = site.partitions(), Path(record.include_path)
        try:
            config = port.config()
        except SlurmError:
            for obstacle in check_configured(record, {}):
                output.warn(f"{obstacle.found}; {obstacle.remedy}")
            raise
        obstacles = [
            *check_configured(record, config),
            *prerequisites.check_include(config, include_path, site.context.host()),
            *prerequisites.check_include_content(include_path, include_text(record.sent)),
        ]
        document = documents.status_document(record, port.partitions(), site.slurm().jobs(), obstacles)
    if as_json:
        output.print_json(document)
    else:
        tables.print_status(document)
    sound = document["phase"] == "applied" and not (document["changed"] or document["missing"] or document["obstacles"])
    return 3 if record is None else 0 if sound else 1


def _installer(mover: WaitingJobMover) -> PoolInstaller:
    site = mover.site
    state_dir = Path(site.settings.state_dir)
    return PoolInstaller(site.slurm(), site.partitions(), state_dir, site.now_s, site.context.who(), mover.send)


def _plan(site: SiteAccess, partitions: tuple[str, ...], overrides: ShareOverrides) -> tuple[PoolPlan, list[str]]:
    """The plan, and why it is based on less than it could be."""
    settings = site.settings
    record = read_record(Path(settings.state_dir))
    # Whoever named partitions once need not name them again.
    named = list(partitions) or settings.pools.partitions or ([] if record is None else list(record.bases))
    settings = settings.model_copy(update={"pools": settings.pools.model_copy(update={"partitions": named})})
    view = pool_plan.read_site_state(site.slurm(), site.partitions())
    past, warnings = _past_jobs(site, settings, view)
    return pool_plan.plan_pools(view, settings, past, record, host=site.context.host(), overrides=overrides), warnings


def _past_jobs(
    site: SiteAccess, settings: Settings, view: pool_plan.SlurmSiteState
) -> tuple[list[PastPoolJob], list[str]]:
    """Jobs of the store; without one shares are the defaults, or stay as they are."""
    try:
        with site.store() as store, store.read() as session:
            return pool_plan.read_past_pool_jobs(session, view, settings, site.now_s()), []
    except StoreError as error:
        return [], [f"shares without history: {error}"]


def _print_outcome(outcome: PoolChangeOutcome, warnings: list[str], *, as_json: bool) -> None:
    document = documents.outcome_document(outcome)
    document["warnings"] = warnings
    if as_json:
        output.print_json(document)
    else:
        tables.print_outcome(document)


pools.add_command(log)
