"""``sodactl service list`` and ``show``: what routers report, or, without sodad, what instances say of themselves."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from slurm_soda.daemon.api import viewers
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.output import Column, Document, format_duration
from slurm_soda.sodactl.service.check import SERVICE_PATH
from slurm_soda.sodactl.service.day_chart import draw_day
from slurm_soda.sodactl.service.service_names import SERVICE_NAME
from slurm_soda.sodactl.service.service_on_disk import read_instances, read_service
from slurm_soda.sodactl.service.service_views import (
    ServiceSourceError,
    ServiceView,
    choose_service,
    read_day,
    read_services,
)
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site
from slurm_soda.wire.services.instance_file import INSTANCES, InstanceFile
from slurm_soda.wire.services.service_profile import DEVICES

SILENT_S = 10.0
"""An instance that did not write its file for so long is said to be silent; it writes every 2 s."""

FOLDER = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of services, for when sodad does not answer.",
)
OWNER = click.option("--owner", "-u", metavar="USER", help="Whose service.  [default: yours, else the only one]")


def user_name(site: SiteAccess) -> str:
    """Of whoever types, as sodad finds it out: without the words on sudo."""
    return viewers.user_name(site.context.uid())


@click.command("list")
@FOLDER
@on_any_site
def list_services(site: SiteAccess, *, as_json: bool, folder: Path | None) -> int:
    """List services: load, latency, instances on each device.

    What routers reported to sodad, within what Slurm's PrivateData lets you see. If sodad does not answer, --folder shows
    what the instances in a folder say of themselves.
    Exit status: 0, or 3 if it is from the instances' files because sodad does not answer.

    \b
    Examples:
      sodactl service list
      sodactl service list --folder ~/services
      sodactl service list --json | jq '.services[] | {name, p99_ms, target_ms}'
    """  # noqa: D301 - click reads the control character
    try:
        services = read_services(site)
    except ServiceSourceError as error:
        if folder is None:
            raise _with_remedy(error, "--folder DIR") from error
        return _show_files(site, _directories(folder), error, as_json=as_json)
    if as_json:
        output.print_json({"now_s": site.now_s(), "source": "sodad", "services": [asdict(one) for one in services]})
    elif services:
        _draw_list(services, site.now_s())
    else:
        output.print_line(
            "no service has reported; `sodactl service start FILE` and `sodactl service router FILE` begin one"
        )
    return 0


@click.command()
@click.argument("name", type=SERVICE_NAME)
@OWNER
@click.option("--file", type=SERVICE_PATH, help="Service file, for when sodad does not answer.")
@FOLDER
@click.option(
    "--width", type=click.IntRange(40, 200), metavar="N", help="Columns of the charts.  [default: the terminal's]"
)
@on_any_site
def show(
    site: SiteAccess,
    *,
    as_json: bool,
    name: str,
    owner: str | None,
    file: Path | None,
    folder: Path | None,
    width: int | None,
) -> int:
    """Show a service's latency, load and placement over the day.

    Also each instance. The charts have the highest p99 latency, load and number of instances of each stretch of time. If
    sodad does not answer, --file or --folder shows what the instances say of themselves.
    Exit status: 0, or 3 if it is from the instances' files because sodad does not answer.

    \b
    Examples:
      sodactl service show chat
      sodactl service show chat --owner alice
      sodactl service show chat --file chat.toml
      sodactl service show chat --json | jq '.minutes[-1]'
    """  # noqa: D301 - click reads the control character
    place = read_service(file).folder if file else folder
    try:
        service = choose_service(read_services(site), name, owner, user_name(site))
        minutes = read_day(site, service)
    except ServiceSourceError as error:
        if place is None:
            raise _with_remedy(error, "--file FILE or --folder DIR") from error
        return _show_files(site, [place / name], error, as_json=as_json)
    if as_json:
        day = [asdict(minute) for minute in minutes]
        output.print_json({"now_s": site.now_s(), "source": "sodad", "service": asdict(service), "minutes": day})
        return 0
    _draw_service(service, site.now_s())
    output.print_line()
    columns = width or shutil.get_terminal_size((80, 24)).columns
    output.print_lines(draw_day(minutes, service.target_ms, site.now_s(), columns))
    return 0


def _with_remedy(error: ServiceSourceError, option: str) -> SodaError:
    return SodaError(f"{error}; {option} shows what the instances say of themselves, `sodactl doctor` what is wrong")


def _draw_list(services: Sequence[ServiceView], now_s: float) -> None:
    titles = ["owner", "service", "load/s", "forecast/s", "p99 ms", "target ms", *DEVICES, "waiting", "reported", "why"]
    columns = [Column(title, right=title not in ("owner", "service", "why")) for title in titles]
    output.print_table(columns, [_row(service, now_s) for service in services])


def _row(service: ServiceView, now_s: float) -> tuple[str, ...]:
    return (
        service.owner,
        service.name,
        output.format_amount(_known(service.load_qps)),
        output.format_amount(_known(service.forecast_qps)),
        output.format_amount(_known(service.p99_ms)),
        f"{service.target_ms:g}",
        *(f"{_ready(service, device)} of {service.wanted.get(device, 0)}" for device in DEVICES),
        str(sum(service.waiting.values())),
        f"{format_duration(max(0.0, now_s - service.reported_at_s))} ago",
        service.reason,
    )


def _known(value: float) -> float | None:
    return None if value != value else value  # noqa: PLR0124 - NaN


def _ready(service: ServiceView, device: str) -> int:
    return sum(one.device == device and one.state == "ready" for one in service.instances)


def _draw_service(service: ServiceView, now_s: float) -> None:
    p50, p95, p99 = (output.format_amount(_known(value)) for value in (service.p50_ms, service.p95_ms, service.p99_ms))
    load, forecast = (output.format_amount(_known(value)) for value in (service.load_qps, service.forecast_qps))
    silent_s = max(0.0, now_s - service.reported_at_s)
    output.print_fields(
        (
            ("service", f"{service.name} of {service.owner}"),
            ("latency", f"p50 {p50} ms, p95 {p95} ms, p99 {p99} ms; target {service.target_ms:g} ms"),
            ("instances", f"{service.least} to {service.most}"),
            ("router", service.endpoint or "-"),
            ("load", f"{load} queries a second, {forecast} expected"),
            (
                "queries",
                f"{service.queries:,}, {service.errors:,} failed, {service.violations:,} later than the target",
            ),
            ("wanted", ", ".join(f"{service.wanted.get(one, 0)} on {one.upper()}" for one in DEVICES)),
            ("waiting", ", ".join(f"{service.waiting.get(one, 0)} on {one.upper()}" for one in DEVICES)),
            ("because", service.reason or "-"),
            ("reported", f"{format_duration(silent_s)} ago"),
        )
    )
    if not service.instances:
        return
    output.print_line()
    titles = ("job", "on", "state", "node", "since", "in flight", "why")
    rows = [
        (
            str(one.job_id),
            one.device,
            one.state,
            one.host,
            f"{format_duration(max(0.0, now_s - one.since_s))} ago",
            str(one.queries),
            one.reason,
        )
        for one in service.instances
    ]
    output.print_table([Column(title, right=title in ("job", "since", "in flight")) for title in titles], rows)


def _directories(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.expanduser().iterdir() if (path / INSTANCES).is_dir())
    except OSError as error:
        raise SodaError(f"{folder} cannot be read: {error.strerror}; name the folder of the service file") from error


def _show_files(site: SiteAccess, directories: Sequence[Path], because: SodaError, *, as_json: bool) -> int:
    """What instance files say; the exit status."""
    rows: list[Document] = []
    problems = [str(because)]
    for directory in directories:
        found, unreadable = read_instances(directory)
        rows += [_file_document(one, site.now_s()) for one in found]
        problems += unreadable
    if as_json:
        document = {"now_s": site.now_s(), "source": "files", "instances": rows, "warnings": problems}
        output.print_json(document)
        return 3
    for problem in problems:
        output.warn(problem)
    if not rows:
        output.print_line(
            f"no instance file in {', '.join(str(path / INSTANCES) for path in directories) or 'the folder'}"
        )
        return 3
    titles = ("service", "job", "on", "state", "address", "since", "written", "restarts", "why")
    columns = [Column(title, right=title in ("job", "since", "written", "restarts")) for title in titles]
    output.print_table(columns, [_file_row(row) for row in rows])
    return 3


def _file_document(one: InstanceFile, now_s: float) -> Document:
    age_s = max(0.0, now_s - one.heartbeat_s)
    return one.to_dict() | {"silent": age_s > SILENT_S, "age_s": age_s, "since_ago_s": max(0.0, now_s - one.since_s)}


def _file_row(row: Document) -> tuple[str, ...]:
    return (
        row["service"],
        str(row["job_id"]),
        row["device"],
        f"{row['state']}, silent" if row["silent"] else row["state"],
        f"{row['host']}:{row['port']}",
        f"{format_duration(row['since_ago_s'])} ago",
        f"{format_duration(row['age_s'])} ago",
        str(row["restarts"]),
        row["reason"],
    )
