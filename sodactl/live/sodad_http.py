"""One request to sodad's HTTP side, with a MUNGE credential of the user, and where sodad may be asked."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.slurm_config import (
    SlurmConfig,
    ask_config,
    config_of,
    list_config_values,
    runs_slurmctld,
)
from slurm_soda.sodactl.checks.check_result import CHECK_TIMEOUT_S, failure_text
from slurm_soda.sodactl.site_access import SiteAccess
from slurm_soda.wire.errors import MungeError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge

TIMEOUT_S = 2.0
"""For each step of a request: connecting, and every wait for more of the answer."""

MAX_ANSWER_BYTES = 64 * 1024 * 1024

VIEW_REFUSALS = (403, 429, 503)
"""Statuses with which sodad says why it does not tell."""


class SodadAbsentError(SodaError):
    """No answer, or none of sodad's."""


class SodadRefusalError(SodaError):
    """Sodad says why this user is not told, or why it does not do it."""


@dataclass(frozen=True, slots=True)
class SodadAddresses:
    """Where sodad may answer."""

    urls: Sequence[str]
    """Tried in order."""
    is_controller_host: bool = False
    """This is a host of slurmctld's, so that a store which is not here is nowhere."""
    unknown: str = ""
    """Why Slurm does not tell on which hosts it may be."""


def find_addresses(site: SiteAccess) -> SodadAddresses:
    """What the user or the configuration says, else each of Slurm's controllers."""
    url = site.context.url() or site.settings.api.url
    if url:
        return SodadAddresses([url.rstrip("/")])
    asked = ask_config(site.context.runner(), CHECK_TIMEOUT_S)
    config = config_of(asked)
    urls = [url for _, url in controller_urls(config, site.settings.api.port)]
    here = runs_slurmctld(config, site.context.host())
    unknown = "" if config else f"Slurm does not tell on which host sodad is ({failure_text(asked)})"
    return SodadAddresses(urls, here, unknown)


def controller_urls(config: SlurmConfig, port: int) -> list[tuple[str, str]]:
    """Slurm's controllers by name, and where a sodad on each answers."""
    hosts = [_name_and_address(value) for value in list_config_values(config, "SlurmctldHost")]
    return [(name, f"http://{address}:{port}") for name, address in hosts]


def request_sodad(
    url: str,
    path: str,
    query: Mapping[str, str],
    munge: Munge,
    *,
    method: str = "GET",
    refusals: Collection[int] = VIEW_REFUSALS,
) -> bytes:
    """What the sodad at ``url`` answers; the credential is over method, path and query, so nobody else can alter them.

    Raises:
        SodadAbsentError: no sodad answers there.
        SodadRefusalError: one answers with one of the statuses ``refusals``, and why.
    """
    # slow to import, and not needed where the store can be read
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415
    from urllib.parse import urlencode, urlsplit  # noqa: PLC0415

    target = f"{path}?{urlencode(query)}"
    try:
        parts = urlsplit(url)
        if not parts.hostname:
            raise SodadAbsentError("is no address such as http://ctl:6830")
        credential = munge.encode_request(f"{method} {target}".encode("ascii"))
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        # http.client knows no proxies: a variable of the user's cannot send this elsewhere.
        with closing(kind(parts.hostname, parts.port, timeout=TIMEOUT_S)) as connection:
            connection.request(method, parts.path + target, headers={CREDENTIAL_HEADER: credential})
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER_BYTES + 1)
    except (OSError, HTTPException, ValueError, MungeError) as error:
        raise SodadAbsentError(str(error) or type(error).__name__) from error
    if len(body) > MAX_ANSWER_BYTES:
        raise SodadAbsentError(f"more than {MAX_ANSWER_BYTES} bytes")
    if answer.status != 200:
        raise _refusal(answer.status, body, refusals)
    return body


def _refusal(status: int, body: bytes, refusals: Collection[int]) -> SodaError:
    """What an answer other than a view says."""
    if status in refusals:
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            return SodadRefusalError(str(json.loads(body)["detail"])[:500])
    return SodadAbsentError(f"{status} {body[:200].decode('utf-8', 'backslashreplace')}")


def _name_and_address(value: str) -> tuple[str, str]:
    """Take ``ctl`` or ``ctl(10.0.0.1)`` apart (slurm.conf, SlurmctldHost)."""
    name, _, rest = value.partition("(")
    address = rest.rstrip(")") or name
    return name, f"[{address}]" if ":" in address else address
