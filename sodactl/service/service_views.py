"""What sodad tells of services, and what it is asked to change, over HTTP with the user's MUNGE credential."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from slurm_soda.daemon.api.view_json import ViewJsonError, decode_view
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.sodad_http import SodadAbsentError, SodadRefusalError, find_addresses, request_sodad
from slurm_soda.sodactl.output import Document
from slurm_soda.sodactl.site_access import SiteAccess

T = TypeVar("T")

_REFUSALS = (400, 401, 403, 404, 409, 422, 429, 503)
_NO_SUCH_PATH = "Not Found"
"""What a sodad says that does not know a path at all."""

SERVES_ON = (
    "instances that run go on serving through their router, and Slurm starts waiting ones as tasks of an ordinary array"
)


class ServiceSourceError(SodaError):
    """No sodad tells of services."""


@dataclass(frozen=True, slots=True)
class ServiceInstanceView:
    """One instance, as its router last saw it."""

    job_id: int
    device: str
    state: str
    host: str
    since_s: float
    queries: int
    """In flight."""
    reason: str


@dataclass(frozen=True, slots=True)
class ServiceView:
    """One service, as its router last reported it, and what sodad wants of it."""

    owner: str
    name: str
    target_ms: float
    load_qps: float
    forecast_qps: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    queries: int
    errors: int
    violations: int
    """Answered later than the target."""
    least: int
    most: int
    """Instances at a time, by the file or, since, by `scale`."""
    endpoint: str
    """Address at which the router serves."""
    wanted: Mapping[str, int]
    """Instances by device."""
    waiting: Mapping[str, int]
    """Tasks by device."""
    reason: str
    reported_at_s: float
    instances: list[ServiceInstanceView]


@dataclass(frozen=True, slots=True)
class ServiceListView:
    """All services that this user may see."""

    services: list[ServiceView]


@dataclass(frozen=True, slots=True)
class MinuteView:
    """One minute of a service."""

    at_s: float
    load_qps: float
    p99_ms: float
    cpu: int
    gpu: int
    """Instances that answered, by device."""


@dataclass(frozen=True, slots=True)
class ServiceDayView:
    """The last day of a service, minute by minute; minutes without a report are missing."""

    minutes: list[MinuteView]


def read_services(site: SiteAccess) -> list[ServiceView]:
    """Every service that this user may see, by owner and name.

    Raises:
        ServiceSourceError: no sodad tells.
    """
    listed = _ask(site, ServiceListView, "/v1/services").services
    return sorted(listed, key=lambda service: (service.owner, service.name))


def read_day(site: SiteAccess, service: ServiceView) -> list[MinuteView]:
    """The last day of one service, oldest minute first.

    Raises:
        ServiceSourceError: no sodad tells.
    """
    path = f"/v1/services/{quote(service.owner, safe='')}/{quote(service.name, safe='')}/day"
    minutes = _ask(site, ServiceDayView, path).minutes
    return sorted(minutes, key=lambda minute: minute.at_s)


def change_service(site: SiteAccess, name: str, what: str, values: Mapping[str, str]) -> Document:
    """Ask sodad for a change (``scale``, ``drain``) to a service of this user's, and give its answer.

    Raises:
        ServiceSourceError: no sodad answers.
        SodaError: sodad refuses; says why.
    """
    raw = _request(site, f"/v1/services/{name}/{what}", values, method="POST")
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ServiceSourceError(f"sodad's answer to {what} is not JSON; update sodactl or sodad") from error
    return answer if isinstance(answer, dict) else {}


def choose_service(services: list[ServiceView], name: str, owner: str | None, user: str) -> ServiceView:
    """The service of this name: of the owner who is named, else the user's own, else the only one.

    Raises:
        SodaError: there is none, or several of others.
    """
    named = [service for service in services if service.name == name and owner in (None, service.owner)]
    mine = [service for service in named if service.owner == user]
    if len(named) == 1 or mine:
        return (mine or named)[0]
    if named:
        owners = output.format_first([service.owner for service in named])
        raise SodaError(f"several users have a service {name}: {owners}; choose with --owner")
    whose = f" of {owner}" if owner else ""
    names = sorted({service.name for service in services if owner in (None, service.owner)})
    known = output.format_first(names) or "none"
    raise SodaError(
        f"sodad knows no service {name}{whose} (known: {known}); it learns of one when its router reports:"
        " `sodactl service router FILE`"
    )


def _ask(site: SiteAccess, kind: type[T], path: str) -> T:
    try:
        return decode_view(kind, _request(site, path, {}))
    except ViewJsonError as error:
        raise ServiceSourceError(f"sodad answers as no sodad of this version does ({error}); update it") from error


def _request(site: SiteAccess, path: str, query: Mapping[str, str], method: str = "GET") -> bytes:
    addresses = find_addresses(site)
    problems = [addresses.unknown] if addresses.unknown else []
    for url in addresses.urls:
        try:
            return request_sodad(url, path, query, site.context.munge, method=method, refusals=_REFUSALS)
        except SodadRefusalError as error:
            if str(error) == _NO_SUCH_PATH:
                problems.append(f"{url}: a sodad that knows no services; update it")
                continue
            raise SodaError(f"sodad at {url} refuses: {error}") from error
        except SodadAbsentError as error:
            problems.append(f"{url}: {error}")
    why = "; ".join(problems) or "Slurm names no controller"
    raise ServiceSourceError(f"sodad does not answer ({why}): {SERVES_ON}")
