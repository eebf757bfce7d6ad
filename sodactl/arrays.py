"""``sodactl arrays``: divide a partition between CPU jobs, small and large GPU jobs, and take that back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from slurm_soda.daemon.arrays import planning, readiness
from slurm_soda.daemon.arrays.planning import ArrayPlan, Overrides
from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.store.engine import StoreError
from slurm_soda.policies.arrays.history import PastJob
from slurm_soda.slurm_ext.arranging import Arranger, Outcome
from slurm_soda.slurm_ext.arrays import read_record
from slurm_soda.slurm_ext.cli.partitions import CliPartitions
from slurm_soda.slurm_ext.errors import SlurmError, SodaError
from slurm_soda.slurm_ext.partitions import include_text
from slurm_soda.sodactl import arrays_documents, arrays_drawing, arrays_moving, output
from slurm_soda.sodactl.arrays_log import log
from slurm_soda.sodactl.site import Site, on_any_site, on_site

_POLL_S = 1.0
_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def arrays() -> None:
    """Divide a partition between CPU jobs, small and large GPU jobs.

    A partition keeps its name and its settings. Beside it stand array partitions: PARTITION_cpu may hold some cores of each
    node, PARTITION_small and PARTITION_large are for jobs with fewer than 4 GPUs and with more, and the partitions ending in
    _lend are for what is idle: Slurm requeues their jobs when the owners come. Users go on submitting to PARTITION; each
    job is routed at submission. docs/arrays.md has the whole story.

    \b
    Examples:
      sodactl arrays plan       what would be made, why, and what slurm.conf needs first
      sodactl arrays apply      make it in the running Slurm
      sodactl arrays status     what is in force, and how full it is
      sodactl arrays revert     take it back; no job is ended
    """  # noqa: D301 - click reads the control character


def _shape(function: _F) -> _F:
    """Options that say what is to be divided, and how."""
    for option in (
        click.option("--partition", "-p", "partitions", multiple=True,
                     help="Partition to divide; may be given several times.  [default: arrays.partitions of the "
                     "configuration, else Slurm's default partition]"),
        click.option("--cpu-cores", type=click.IntRange(0), metavar="N",
                     help="Cores of each GPU node that CPU jobs own.  [default: derived from history]"),
        click.option("--large-nodes", type=click.IntRange(0), metavar="N",
                     help="Nodes of each kind that jobs with 4 GPUs or more own.  [default: derived from history]"),
        click.option("--force", is_flag=True, help="Overwrite what somebody else changed in the array partitions."),
    ):  # fmt: skip
        function = option(function)
    return function


@arrays.command()
@_shape
@on_site
def plan(
    site: Site,
    *,
    as_json: bool,
    partitions: tuple[str, ...],
    cpu_cores: int | None,
    large_nodes: int | None,
    force: bool,
) -> int:
    """Show what `apply` would make, and what stands in its way.

    Shares with their reasons, every call of scontrol, the lines that slurm.conf includes, and settings of Slurm that must
    be changed first. Changes nothing. Exit status: 0 if `apply` would go through, 1 if something stands in its way.

    \b
    Examples:
      sodactl arrays plan
      sodactl arrays plan --partition gpu --cpu-cores 8
      sodactl arrays plan --json | jq .obstacles
    """  # noqa: D301 - click reads the control character
    found, warnings = _plan(site, partitions, Overrides(cpu_cores, large_nodes))
    document = arrays_documents.plan(found)
    document["warnings"] = warnings
    try:
        document["steps"] = arrays_documents.steps(_arranger(site).steps(found.wanted, force=force))
        document["refused"] = ""
    except SlurmError as error:
        document["steps"], document["refused"] = [], str(error)
    if as_json:
        output.print_json(document)
    else:
        arrays_drawing.draw_plan(document)
    return 1 if document["obstacles"] or document["refused"] else 0


@arrays.command()
@_shape
@click.option("--move-waiting", is_flag=True, help="Route jobs that wait in the divided partition already, too.")
@on_site
def apply(
    site: Site,
    *,
    as_json: bool,
    partitions: tuple[str, ...],
    cpu_cores: int | None,
    large_nodes: int | None,
    force: bool,
    move_waiting: bool,
) -> int:
    """Make the arrays in the running Slurm, or bring them up to date.

    What is to be made is recorded first, in the state directory. If Slurm refuses a call, those before it are undone. A
    second time nothing is changed, unless history now says otherwise. Running jobs stay where they are; jobs submitted from
    now on are routed. Needs the rights of root or SlurmUser, on slurmctld's host.
    Exit status: 0 if all is in force, 1 if not.

    \b
    Examples:
      sodactl arrays apply
      sodactl arrays apply --cpu-cores 8 --large-nodes 2
      sodactl arrays apply --move-waiting     with a queue of jobs from before
    """  # noqa: D301 - click reads the control character
    found, warnings = _plan(site, partitions, Overrides(cpu_cores, large_nodes))
    if found.obstacles:
        first = found.obstacles[0]
        more = f" ({len(found.obstacles) - 1} more: sodactl arrays plan)" if len(found.obstacles) > 1 else ""
        raise SodaError(f"arrays cannot be applied yet: {first.check}: {first.found}; {first.remedy}{more}")
    outcome = _arranger(site).apply(found.wanted, force=force)
    if move_waiting:
        outcome = arrays_moving.with_moves(site, outcome, found.wanted.table, found.wanted.rules, warnings)
    _report(outcome, warnings, as_json=as_json)
    return 1 if outcome.problems else 0


@arrays.command()
@click.option("--wait", is_flag=True, help="Go on until the last job has left the array partitions.")
@click.option("--force", is_flag=True, help="Also where somebody else changed the array partitions.")
@on_any_site
def revert(site: Site, *, as_json: bool, wait: bool, force: bool) -> int:
    """Take the arrays back. No job is ended.

    Jobs are no longer routed. Waiting jobs go back to their partition. Array partitions without jobs are deleted; one that
    jobs still run in takes no more, and goes when `revert` is run again after they have ended. Works with sodad down.
    Exit status: 0 if nothing is left, 1 if something is.

    \b
    Examples:
      sodactl arrays revert
      sodactl arrays revert --wait     come back when the last job has left
    """  # noqa: D301 - click reads the control character
    arranger = _arranger(site)
    outcome = arranger.revert(force=force)
    while wait and outcome.leaving:
        time.sleep(_POLL_S)
        again = arranger.revert(force=force)
        outcome = replace(again, moved=outcome.moved + again.moved, steps=outcome.steps)
    _report(outcome, [], as_json=as_json)
    return 1 if outcome.leaving or outcome.problems else 0


@arrays.command()
@on_any_site
def status(site: Site, *, as_json: bool) -> int:
    """Show the arrays in force: shares, nodes, jobs in each, and what somebody else changed.

    Exit status: 0 if arrays are in force as recorded, 1 if not, 3 if there are none.

    \b
    Examples:
      sodactl arrays status
      sodactl arrays status --json | jq '.partitions[] | {name, running_jobs, waiting_jobs}'
    """  # noqa: D301 - click reads the control character
    record = read_record(Path(site.settings.state_dir))
    if record is None:
        document = arrays_documents.none()
    else:
        port, include_path = _port(site), Path(record.include_path)
        obstacles = [
            *readiness.include(port.config(), include_path, site.outside.host()),
            *readiness.carried(include_path, include_text(record.sent)),
        ]
        document = arrays_documents.status(record, port.partitions(), site.slurm().jobs(), obstacles)
    if as_json:
        output.print_json(document)
    else:
        arrays_drawing.draw_status(document)
    sound = document["phase"] == "applied" and not (document["changed"] or document["missing"] or document["obstacles"])
    return 3 if record is None else 0 if sound else 1


def _port(site: Site) -> CliPartitions:
    limits = site.settings.slurm
    return CliPartitions(site.outside.runner(), read_s=limits.read_timeout_s, act_s=limits.write_timeout_s)


def _arranger(site: Site) -> Arranger:
    state_dir = Path(site.settings.state_dir)
    return Arranger(site.slurm(), _port(site), state_dir, site.now_s, site.outside.who())


def _plan(site: Site, partitions: tuple[str, ...], overrides: Overrides) -> tuple[ArrayPlan, list[str]]:
    """The plan, and why it is based on less than it could be."""
    settings = site.settings
    record = read_record(Path(settings.state_dir))
    # Whoever named partitions once need not name them again.
    named = list(partitions) or settings.arrays.partitions or ([] if record is None else list(record.bases))
    settings = settings.model_copy(update={"arrays": settings.arrays.model_copy(update={"partitions": named})})
    view = planning.look(site.slurm(), _port(site))
    past, warnings = _history(site, settings, view)
    return planning.plan(view, settings, past, record, host=site.outside.host(), overrides=overrides), warnings


def _history(site: Site, settings: Settings, view: planning.SiteView) -> tuple[list[PastJob], list[str]]:
    """Jobs of the store; without one shares are the defaults, or stay as they are."""
    try:
        with site.store() as store, store.read() as session:
            return planning.history(session, view, settings, site.now_s()), []
    except StoreError as error:
        return [], [f"shares without history: {error}"]


def _report(outcome: Outcome, warnings: list[str], *, as_json: bool) -> None:
    document = arrays_documents.outcome(outcome)
    document["warnings"] = warnings
    if as_json:
        output.print_json(document)
    else:
        arrays_drawing.draw_outcome(document)


arrays.add_command(log)
