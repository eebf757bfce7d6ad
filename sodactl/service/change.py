"""``sodactl service scale`` and ``drain``: what an owner asks sodad to change while a service runs."""

from __future__ import annotations

import click

from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.job_identity import JOB_ID
from slurm_soda.sodactl.service.service_names import SERVICE_NAME
from slurm_soda.sodactl.service.service_views import change_service, choose_service, read_services
from slurm_soda.sodactl.service.show import user_name
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site
from slurm_soda.wire.services.service_file import MOST_REPLICAS


@click.command()
@click.argument("name", type=SERVICE_NAME)
@click.option(
    "--least", type=click.IntRange(0, MOST_REPLICAS), metavar="N", help="Instances that run whatever the load."
)
@click.option("--most", type=click.IntRange(1, MOST_REPLICAS), metavar="N", help="Instances at a time, on all devices.")
@on_any_site
def scale(site: SiteAccess, *, as_json: bool, name: str, least: int | None, most: int | None) -> None:
    """Change how many instances a service of yours has.

    sodad follows from its next cycle on, until the service file says other limits; the one that is not given stays. No
    device can have more instances than its array has tasks: `sodactl service start --tasks N` submits more.

    \b
    Examples:
      sodactl service scale chat --least 2
      sodactl service scale chat --least 1 --most 8
    """  # noqa: D301 - click reads the control character
    if least is None and most is None:
        raise click.UsageError("give --least, --most or both")
    if least is None or most is None:
        user = user_name(site)
        now = choose_service(read_services(site), name, user, user)
        least, most = now.least if least is None else least, now.most if most is None else most
    if least > most:
        raise click.UsageError(f"least is {least}, and most {most}; most must not be smaller")
    answer = change_service(site, name, "scale", {"least": str(least), "most": str(most)})
    if as_json:
        output.print_json(answer)
    else:
        output.print_line(
            f"{name}: {answer.get('least')} to {answer.get('most')} instances, from sodad's next cycle on"
        )


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
@on_any_site
def drain(site: SiteAccess, *, as_json: bool, name: str, job_ids: tuple[int, ...], everything: bool) -> None:
    """Let instances of a service of yours answer what they have and leave.

    A draining instance gets no new query from the router; once it has answered what it had, sodad requeues its task, which
    waits until it is needed again. Where the load needs as many instances as before, others start.

    \b
    Examples:
      sodactl service drain chat --job 4711      the one on a node that is to be repaired
      sodactl service drain chat --all           each anew, such as after new weights
    """  # noqa: D301 - click reads the control character
    if bool(job_ids) == everything:
        raise click.UsageError("give either --job ID or --all; `sodactl service show NAME` lists the instances' jobs")
    asked = ["all"] if everything else list(map(str, job_ids))
    answers = [change_service(site, name, "drain", {"job_id": one}) for one in asked]
    if as_json:
        output.print_json({"name": name, "drain": [answer.get("drain") for answer in answers]})
    else:
        which = "every instance" if everything else f"job {', '.join(asked)}"
        output.print_line(f"{name}: {which} drains from sodad's next cycle on")
