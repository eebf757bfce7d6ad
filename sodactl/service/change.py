"""``sodactl service scale`` and ``drain``: what an owner asks sodad to change while a service runs."""

from __future__ import annotations

import click

from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.job_identity import JOB_ID
from slurm_soda.sodactl.service.service_names import SERVICE_NAME
from slurm_soda.sodactl.service.service_views import ServiceView, change_service, choose_service, read_services
from slurm_soda.sodactl.service.show import OWNER, user_name
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site
from slurm_soda.wire.services.service_file import MOST_REPLICAS


@click.command()
@click.argument("name", type=SERVICE_NAME)
@click.option(
    "--least", type=click.IntRange(0, MOST_REPLICAS), metavar="N", help="Instances that run whatever the load."
)
@click.option("--most", type=click.IntRange(1, MOST_REPLICAS), metavar="N", help="Instances at a time, on all devices.")
@OWNER
@on_any_site
def scale(
    site: SiteAccess, *, as_json: bool, name: str, least: int | None, most: int | None, owner: str | None
) -> None:
    """Change how many instances a service has at least and at most.

    For its owner, root and SlurmUser. sodad follows from its next cycle on. No device can have more instances than its array
    has tasks: `sodactl service start --tasks N` submits more.

    \b
    Examples:
      sodactl service scale chat --least 2
      sodactl service scale chat --least 1 --most 8
    """  # noqa: D301 - click reads the control character
    if least is None and most is None:
        raise click.UsageError("give --least, --most or both")
    if least is not None and most is not None and least > most:
        raise click.UsageError(f"--least is {least}, and --most {most}; most must not be smaller")
    service = _chosen(site, name, owner)
    values = {"least": least, "most": most}
    answer = change_service(site, service, "scale", {key: str(one) for key, one in values.items() if one is not None})
    _tell(service, answer, "follows from sodad's next cycle on", as_json=as_json)


@click.command()
@click.argument("name", type=SERVICE_NAME)
@click.option(
    "--job",
    "-j",
    "job_ids",
    type=JOB_ID,
    multiple=True,
    metavar="ID",
    help="The instance of this job; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="Every instance that runs now.")
@OWNER
@on_any_site
def drain(
    site: SiteAccess, *, as_json: bool, name: str, job_ids: tuple[int, ...], everything: bool, owner: str | None
) -> None:
    """Let instances answer what they have and leave.

    For the service's owner, root and SlurmUser. A draining instance gets no new query from the router; once it has answered
    what it had, sodad requeues its task, which waits until it is needed again. Where the load needs as many instances as
    before, others start.

    \b
    Examples:
      sodactl service drain chat --job 4711      the one on a node that is to be repaired
      sodactl service drain chat --all           each anew, such as after new weights
    """  # noqa: D301 - click reads the control character
    if bool(job_ids) == everything:
        raise click.UsageError("give either --job ID or --all; `sodactl service show NAME` lists the instances' jobs")
    service = _chosen(site, name, owner)
    values = {"all": "true"} if everything else {"jobs": ",".join(map(str, job_ids))}
    _tell(service, change_service(site, service, "drain", values), "drain from sodad's next cycle on", as_json=as_json)


def _chosen(site: SiteAccess, name: str, owner: str | None) -> ServiceView:
    return choose_service(read_services(site), name, owner, user_name(site))


def _tell(service: ServiceView, answer: output.Document, otherwise: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"owner": service.owner, "name": service.name} | answer)
    else:
        output.print_line(f"{service.name} of {service.owner}: {answer.get('reason') or otherwise}")
