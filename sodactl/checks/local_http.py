"""Asks a sodad on this host over HTTP, at an address where it wants no credential."""

from __future__ import annotations

import http.client
import ipaddress
from contextlib import closing

from slurm_soda.sodactl.checks.check_result import CheckResult

_TIMEOUT_S = 2.0
"""For each wait; docs/metrics.md says what an answer costs."""
_MOST_BYTES = 16 * 1024 * 1024


def ask_own_address(
    section: str, address: tuple[str, int], shown: str, *, path: str, mark: bytes
) -> bytes | CheckResult:
    """What sodad answers at the address of a section of the configuration, or what is wrong there.

    Args:
        section: of the configuration; also the name of the check.
        address: host and port.
        shown: the URL, for people.
        path: that is asked for.
        mark: stands in every answer of sodad's.
    """
    log = f"journalctl -u sodad | grep {section}"
    try:
        status, text = _get_local(*address, path)
    except (OSError, http.client.HTTPException) as error:
        because = getattr(error, "strerror", None) or str(error) or type(error).__name__
        remedy = f"restart sodad if {section}.listen is new, else free the address or change {section}.listen; {log}"
        return CheckResult(section, "fail", f"{shown} does not answer ({because})", remedy)
    if status != http.HTTPStatus.OK or mark not in text:
        found = f"{shown} answers with status {status}, and not with sodad's {section}"
        return CheckResult(section, "fail", found, f"end what else listens there (ss -ltnp), and restart sodad; {log}")
    return text


def _get_local(host: str, port: int, path: str) -> tuple[int, bytes]:
    """Status and body.

    Raises:
        OSError: nobody answers.
        http.client.HTTPException: not in HTTP.
    """
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared
    with closing(http.client.HTTPConnection(here, port, timeout=_TIMEOUT_S)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)


def is_loopback(host: str) -> bool:
    """Whether only this host reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
