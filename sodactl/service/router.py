"""``sodactl service router`` and ``endpoints``: what passes a service's queries to its instances."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from pathlib import Path

import click

from slurm_soda.services.router.endpoints import healthy_endpoints
from slurm_soda.services.router.errors import ReportError
from slurm_soda.services.router.listen_address import ListenAddress
from slurm_soda.services.router.router import Router, load_service
from slurm_soda.services.router.service_folder import ServiceFolder
from slurm_soda.services.router.sodad_reports import Controllers, SodadReports
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.slurm_config import ask_config, config_of, slurm_user_id
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.check_result import CHECK_TIMEOUT_S, failure_text
from slurm_soda.sodactl.live.sodad_http import controller_urls
from slurm_soda.sodactl.output import Column
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site

_SERVICE_PATH = click.Path(path_type=Path, dir_okay=False)


def _say(line: str) -> None:
    click.echo(output.escape_unprintable(line), err=True)


@click.command()
@click.argument("file", type=_SERVICE_PATH)
@click.option(
    "--listen",
    default="0.0.0.0:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Where it serves; port 0: a free one, the same again after a restart.",
)
@click.option(
    "--controller",
    "urls",
    multiple=True,
    metavar="URL",
    help="Where sodad answers; repeatable.  [default: as for all commands, each of Slurm's controllers]",
)
@click.option(
    "--once", is_flag=True, help="Check file, folder and HAProxy's configuration, show the instances, and end."
)
@on_any_site
def router(site: SiteAccess, *, as_json: bool, file: Path, listen: str, urls: tuple[str, ...], once: bool) -> None:
    """Pass queries to the instances of a service that are ready.

    Runs HAProxy as you, with the instances whose files are in the service's folder; on a login node, or in a job. It tells
    sodad what it sees, and lets instances that sodad names answer what they have and leave; without sodad every healthy
    instance serves. SIGTERM ends it once all queries in flight are answered, SIGHUP reads the service's file again.
    docs/services.md.

    \b
    Examples:
      sodactl service router chat.toml                         serve, until it is ended
      sodactl service router chat.toml --listen 0.0.0.0:8080
      sodactl service router chat.toml --once --json | jq .instances
    """  # noqa: D301 - click reads the control character
    address = ListenAddress.parse(listen)
    reports = SodadReports(lambda: _find_controllers(site, urls), site.context.munge, _say)
    served = Router(file, address, None if once else reports, _say, serves=not once)
    try:
        if once:
            served.check()
            _show_once(served, as_json=as_json)
            return
        signal.signal(signal.SIGTERM, lambda *_: served.stop.set())
        signal.signal(signal.SIGINT, lambda *_: served.stop.set())
        signal.signal(signal.SIGHUP, lambda *_: served.reread.set())
        served.run()
        _say("ending: queries in flight are answered first")
    finally:
        served.close()


@click.command()
@click.argument("file", type=_SERVICE_PATH)
@on_any_site
def endpoints(_site: SiteAccess, *, as_json: bool, file: Path) -> None:
    """List the instances that answer queries, for a router of your own.

    Those that are ready by their files, still write them, and answer the health path with 200 when asked now.
    Exit status: 0 if there is one, 1 if there is none.

    \b
    Examples:
      sodactl service endpoints chat.toml
      sodactl service endpoints chat.toml --json | jq -r '.endpoints[] | "\\(.host):\\(.port)"'
    """  # noqa: D301 - click reads the control character
    _, service = load_service(file)
    folder = ServiceFolder(file, service)
    try:
        found, content = healthy_endpoints(folder, service.health)
    except OSError as error:
        raise SodaError(f"{folder.path}: {error.strerror}; has an instance of the service been started?") from error
    for problem in content.problems:
        _say(problem)
    keys = ("job_id", "host", "port", "device", "gpu_type", "batch", "cores")
    rows = [{key: value for key, value in asdict(one).items() if key in keys} for one in found]
    if as_json:
        output.print_json({"service": service.name, "endpoints": rows, "instances": len(content.instances)})
    elif rows:
        columns = [Column("endpoint"), Column("device"), Column("job", right=True)]
        output.print_table(columns, [(f"{one.host}:{one.port}", one.device, str(one.job_id)) for one in found])
    else:
        click.echo(f"no instance of {service.name} answers; {len(content.instances)} have a file in {folder.path}")
    if not rows:
        sys.exit(1)


def _show_once(served: Router, *, as_json: bool) -> None:
    found = sorted(served.instances.items())
    if as_json:
        output.print_json({"service": served.service.name, "instances": [asdict(one) for _, one in found]})
        return
    for stem, one in found:
        click.echo(
            output.escape_unprintable(f"{stem}: {one.state} on {one.device} at {one.host}:{one.port} {one.reason}")
        )
    click.echo(f"service {served.service.name}: {len(found)} instances; HAProxy accepts its configuration")


def _find_controllers(site: SiteAccess, urls: tuple[str, ...]) -> Controllers:
    """Where sodad answers, and as whom, from Slurm's configuration; ``urls`` are what the user said."""
    said = urls or tuple(url for url in (site.context.url() or site.settings.api.url,) if url)
    asked = ask_config(site.context.runner(), CHECK_TIMEOUT_S)
    config = config_of(asked)
    uid = slurm_user_id(config)
    if uid is None:
        raise ReportError(f"Slurm does not tell who SlurmUser is ({failure_text(asked)}), so no answer can be believed")
    found = tuple(url for _, url in controller_urls(config, site.settings.api.port))
    return Controllers(said or found, frozenset({0, uid}))
