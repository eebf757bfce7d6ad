"""``sodactl service profile``: measures a service on this machine."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from slurm_soda.services.load.http_client import content_type_of
from slurm_soda.services.profiling.device_profile import MOST_BATCH, DeviceFindings, ProfileLimits, profile_device
from slurm_soda.services.profiling.measurement import ProfileError, Query
from slurm_soda.services.router.service_folder import refuse_root
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.service.service_directory import put_file, refuse_foreign
from slurm_soda.sodactl.service.service_on_disk import PROFILE, ServiceOnDisk, read_profile, read_service
from slurm_soda.sodactl.site_access import SiteAccess, on_any_site
from slurm_soda.wire.services.service_profile import DEVICES, MOST_PROFILES, ProfiledDevice, ServiceProfile

LARGEST_QUERY = 64 * 1024 * 1024


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--device",
    "devices",
    type=click.Choice(DEVICES),
    multiple=True,
    help="Only this device; repeatable.  [default: those of the file]",
)
@click.option("--gpu-type", default="", help="Type of the GPU here, as Slurm's GRES names it.")
@click.option(
    "--most-batch",
    type=click.IntRange(1, 100_000),
    default=MOST_BATCH,
    show_default=True,
    help="Larger batches are not tried.",
)
@click.option(
    "--most-cores", type=click.IntRange(1), help="More cores are not tried.  [default: all that this process may use]"
)
@click.option(
    "--limit-s",
    type=click.FloatRange(10.0),
    default=240.0,
    show_default=True,
    help="After this time nothing more is tried.",
)
@on_any_site
def profile(
    _site: SiteAccess,
    *,
    as_json: bool,
    file: Path,
    devices: tuple[str, ...],
    gpu_type: str,
    most_batch: int,
    most_cores: int | None,
    limit_s: float,
) -> int:
    """Measure how many queries an instance answers on this machine.

    Starts the service's command here, several times, and sends it the query that its file names. Run it where an instance
    would run, such as under `srun`, and with nothing else on the cores. On each device it finds the largest batch of which
    window_ms + 2 x batch_ms x (1 + error) is within target_ms, then the fewest cores that reach it, and writes both,
    with the memory bandwidth where resctrl can be read, to profile.json in the service's folder. That a device cannot
    meet the target is a result too. What cores and batch in the file fix is not searched.
    Exit status: 0 if it was measured, 1 if not.

    \b
    Examples:
      srun -c 16 sodactl service profile chat.toml --device cpu
      srun --gres=gpu:a100 -c 8 sodactl service profile chat.toml --device gpu --gpu-type a100
    """  # noqa: D301 - click reads the control character
    refuse_root(file)
    found = read_service(file)
    wanted = devices or tuple(one for one in DEVICES if getattr(found.service, one) is not None)
    query = read_query(found)
    with suppress(FileNotFoundError):  # it is made once something was measured
        refuse_foreign(found)
    mine = len(os.sched_getaffinity(0))
    begun_s = time.monotonic()
    findings: list[DeviceFindings] = []
    for number, device in enumerate(wanted, 1):
        limits = ProfileLimits(begun_s + limit_s * number / len(wanted), min(most_cores or mine, mine), most_batch)
        findings.append(
            profile_device(
                found.service,
                device,
                query,
                str(found.path.parent),
                limits,
                gpu_type=gpu_type if device == "gpu" else "",
                tell=partial(_tell, device),
            )
        )
        write_profile(found, findings[-1].profile)
    if as_json:
        devices_json = [{**asdict(one.profile), "meaning": one.meaning} for one in findings]
        output.print_json({"profile": str(found.directory / PROFILE), "devices": devices_json})
    else:
        click.echo("\n".join([*(one.meaning for one in findings), f"written to {found.directory / PROFILE}"]))
    return 0


def _tell(device: str, line: str) -> None:
    click.echo(f"{device}: {output.escape_unprintable(line)}", err=True)


def read_query(found: ServiceOnDisk) -> Query:
    """The query that the service's file names.

    Raises:
        SodaError: it names none, or the file cannot be read.
    """
    service = found.service
    if not service.query:
        raise ProfileError(f'{found.path} names no query; add query = "FILE", a file with the body of one query')
    path = found.path.parent / service.query
    try:
        if path.stat().st_size > LARGEST_QUERY:
            raise ProfileError(f"{path} has more than {LARGEST_QUERY} bytes; name a smaller query")
        body = path.read_bytes()
    except OSError as error:
        raise ProfileError(
            f"{path} cannot be read: {error.strerror}; query names a file with the body of one"
        ) from error
    return Query(service.query_path, body, content_type_of(path.name))


def write_profile(found: ServiceOnDisk, profiled: ProfiledDevice) -> None:
    """Put a device into the service's profile, in place of an earlier one of the same device and GPU type.

    What was measured for another target or window is dropped: it says nothing about these.

    Raises:
        SodaError: see :func:`.put_file`.
    """
    service = found.service
    kept: list[ProfiledDevice] = []
    try:
        former = read_profile(found)
    except SodaError:  # no profile, and to be replaced
        former = None
    if former is not None and (former.target_ms, former.window_ms) == (service.target_ms, service.window_ms):
        same = (profiled.device, profiled.gpu_type)
        kept = [one for one in former.devices if (one.device, one.gpu_type) != same]
    devices = (*kept, profiled)[-MOST_PROFILES:]
    profile = ServiceProfile(service.target_ms, service.window_ms, time.time(), devices)
    content = json.dumps(profile.to_dict(), indent=2).encode() + b"\n"
    put_file(found, PROFILE, content, mode=0o644)
