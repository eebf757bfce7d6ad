"""``sodactl service start`` and ``stop``: an owner's arrays."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.service.assessment import Assessment, assess, check_target
from slurm_soda.sodactl.service.check import SERVICE_PATH
from slurm_soda.sodactl.service.service_names import SERVICE_NAME
from slurm_soda.sodactl.service.service_on_disk import ServiceOnDisk, read_profile, read_service
from slurm_soda.sodactl.service.submission import Submission, plan_submission, put_program
from slurm_soda.sodactl.service.submitted import SubmittedArray, cancel, find_submitted, show_call, submit_all
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site
from slurm_soda.wire.services.service_file import MOST_REPLICAS


@click.command()
@click.argument("file", type=SERVICE_PATH)
@click.option(
    "--tasks",
    type=click.IntRange(1, MOST_REPLICAS),
    metavar="N",
    help="Tasks of each array: most instances on one device.  [default: replicas.most of the file]",
)
@click.option("--dry-run", is_flag=True, help="Show the calls of sbatch; submit and write nothing.")
@on_any_site
def start(site: SiteAccess, *, as_json: bool, file: Path, tasks: int | None, dry_run: bool) -> None:
    """Submit a service's arrays, as their owner.

    One array for each device that the file allows: [cpu], whose tasks ask for cores, and [gpu], whose tasks ask for GPUs;
    one for each type if [gpu] has types. Each task runs one instance. sodad decides how many of each run; without sodad
    they start as any array of yours. Cores and batch are those of the file, else those of the profile. A copy of the
    program that runs an instance is put into the service's directory, which nodes must see. If Slurm refuses one array the
    others are cancelled. Start the router first (`sodactl service router FILE`): sodad learns of a service from its reports.

    \b
    Examples:
      sodactl service start chat.toml --dry-run     the calls of sbatch, word by word
      sodactl service start chat.toml
      sodactl service start chat.toml --tasks 8
    """  # noqa: D301 - click reads the control character
    found = read_service(file)
    assessment = assess(found.service, read_profile(found))
    check_target(assessment, found.service)
    most = tasks or found.service.replicas.most
    submissions = [plan_submission(found, plan, most) for plan in assessment.plans if not plan.objection]
    if not dry_run:
        _refuse_root(site)
        _refuse_second(site, found)
        put_program(found)
    done = [] if dry_run else submit_all(site.context.runner(), submissions)
    if as_json:
        output.print_json(_document(found, assessment, submissions, done))
    else:
        _draw(found, assessment, submissions, done)


def _refuse_root(site: SiteAccess) -> None:
    if site.context.uid() == 0:
        raise SodaError(
            "a service runs as its owner, and this is root: run it as that user (sudo -u USER sodactl service start …)"
        )


def _refuse_second(site: SiteAccess, found: ServiceOnDisk) -> None:
    name = found.service.name
    if arrays := find_submitted(site.slurm().jobs(), name, site.context.uid()):
        ids = output.format_first([array.array_job_id for array in arrays])
        raise SodaError(
            f"{name} has arrays already: {ids}; `sodactl service stop {name}` cancels them,"
            f" `sodactl service scale {name}` changes how many instances there are"
        )


def _document(
    found: ServiceOnDisk, assessment: Assessment, submissions: list[Submission], done: list[SubmittedArray]
) -> Document:
    return {
        "name": found.service.name,
        "directory": str(found.directory),
        "calls": [{"device": one.plan.device, "argv": list(one.argv), "script": one.script} for one in submissions],
        "arrays": [asdict(array) for array in done],
        "warnings": list(assessment.remarks),
    }


def _draw(
    found: ServiceOnDisk, assessment: Assessment, submissions: list[Submission], done: list[SubmittedArray]
) -> None:
    for remark in assessment.remarks:
        output.warn(remark)
    if not done:
        output.print_lines(line for one in submissions for line in show_call(one).splitlines())
        return
    for array in done:
        output.print_line(f"array {array.array_job_id} on {array.device}: {output.format_count(array.tasks, 'task')}")
    output.print_line(f"their output: {found.directory}/logs")
    output.print_line("tasks start when sodad says so, without it all of them after a minute")
    output.print_line(f"if the router does not run yet: `sodactl service router {found.path}`")


@click.command()
@click.argument("name", type=SERVICE_NAME)
@click.option("--yes", "-y", "agrees", is_flag=True, help="Do not ask.")
@on_any_site
def stop(site: SiteAccess, *, as_json: bool, name: str, agrees: bool) -> None:
    """Cancel your arrays of a service.

    Running instances get SIGTERM, answer the queries that they have, and end; no new one starts. The router, if it runs,
    stays, and answers 503. Files of the service stay. Needs no sodad.

    \b
    Examples:
      sodactl service stop chat
      sodactl service stop chat --yes
    """  # noqa: D301 - click reads the control character
    if as_json and not agrees:
        raise click.UsageError("--json asks nothing: add --yes")
    arrays = find_submitted(site.slurm().jobs(), name, site.context.uid())
    if not arrays:
        raise SodaError(f"you have no array of service {name}; `squeue --me` shows your jobs")
    if not agrees:
        for array in arrays:
            output.print_line(
                f"array {array.array_job_id} {array.name}: {array.running} running, {array.waiting} waiting"
            )
        click.confirm("Cancel them?", abort=True)
    cancel(site.context.runner(), [array.array_job_id for array in arrays])
    if as_json:
        output.print_json({"name": name, "cancelled": [asdict(array) for array in arrays]})
    else:
        output.print_line(f"cancelled {', '.join(str(array.array_job_id) for array in arrays)}")
