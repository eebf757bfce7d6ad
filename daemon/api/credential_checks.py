"""Checks MUNGE credentials of requests, each of which costs a process, so that junk cannot cost processes without limit.

A credential that fails counts against the host that it came from, and is forgotten after a while. Of a host with many
failures, nothing is checked until some are forgotten; nor, while many hosts fail, of a host with one lately. All others are
served as ever, and so is an agent whose report was taken before: it shows a token that users of its host do not have.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import math
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass

from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool

from slurm_soda.daemon.clock import Clock
from slurm_soda.wire.errors import MungeError, MungeUnavailableError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, KNOWN_HEADER, Munge, MungeMessage, check_form


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """How many credentials are checked at a time, and how many may fail."""

    at_a_time: int = 16
    failures_of_host: int = 20
    """At once; after that :attr:`forgotten_of_host_per_s`."""
    forgotten_of_host_per_s: float = 1.0
    failures: int = 100
    """At once, of all hosts together; after that :attr:`forgotten_per_s`."""
    forgotten_per_s: float = 20.0
    suspect_s: float = 60.0
    """While there are too many of all hosts, nothing is checked of those whose last one is so young."""
    hosts: int = 10_000
    """Hosts with failures that are remembered."""


@dataclass(slots=True)
class _RecentFailures:
    """A number that grows by one with each failure and shrinks steadily with time."""

    most: int
    forgotten_per_s: float
    at_s: float
    count: float = 0.0

    def left(self, now_s: float) -> float:
        """Failures that are not forgotten."""
        return max(self.count - (now_s - self.at_s) * self.forgotten_per_s, 0.0)

    def add(self, now_s: float) -> None:
        """One more."""
        self.count, self.at_s = self.left(now_s) + 1, now_s

    def wait_s(self, now_s: float) -> float:
        """Until another one may be made; 0: now."""
        return max(self.left(now_s) - self.most + 1, 0.0) / self.forgotten_per_s


class CredentialChecks:
    """Checks the credentials of requests."""

    def __init__(self, munge: Munge, clock: Clock, limits: CheckLimits | None = None) -> None:
        self._munge, self._clock, self._limits = munge, clock, limits or CheckLimits()
        self._places = asyncio.Semaphore(self._limits.at_a_time)
        self._secret = secrets.token_bytes()
        self._hosts: dict[str, _RecentFailures] = {}
        """By host, and by its agent; the one whose credential failed last comes last."""
        self._all = _RecentFailures(self._limits.failures, self._limits.forgotten_per_s, clock.elapsed_s())

    async def sender(
        self,
        request: Request,
        allowed_uids: Collection[int] | None,
        verify: Callable[[MungeMessage], None] = lambda _message: None,
    ) -> MungeMessage:
        """What the request's credential carries, if it is valid and of an allowed user (``None``: of any).

        Args:
            request: of which the header alone is read.
            allowed_uids: who may send it.
            verify: further checks of what the credential carries; raises ``MungeError``.

        Raises:
            HTTPException: 403 without a good credential, 429 after too many bad ones of this host, 503 while munged does
                not answer.
        """
        credential, host = request.headers.get(CREDENTIAL_HEADER, ""), self._counted_as(request)
        if not credential:
            raise HTTPException(403, "the request carries no MUNGE credential; ask with sodactl")
        try:
            check_form(credential)
        except MungeError as error:
            raise HTTPException(403, str(error)) from error
        self._refuse_failing(host)
        async with self._places:
            self._refuse_failing(host)  # meanwhile others of this host may have failed
            try:
                message = await run_in_threadpool(self._munge.decode, credential, allowed_uids)
                verify(message)
            except MungeUnavailableError as error:
                raise HTTPException(503, f"sodad cannot check credentials: {error}") from error
            except MungeError as error:
                self.count_failure(request)
                raise HTTPException(403, str(error)) from error
        return message

    def count_failure(self, request: Request) -> None:
        """Remember that a credential of this request's host was worth nothing."""
        host, now_s = self._counted_as(request), self._clock.elapsed_s()
        limits = self._limits
        failures = self._hosts.pop(host, None) or _RecentFailures(
            limits.failures_of_host, limits.forgotten_of_host_per_s, now_s
        )
        for one in (failures, self._all):
            one.add(now_s)
        self._hosts[host] = failures
        if len(self._hosts) > limits.hosts:
            del self._hosts[next(iter(self._hosts))]

    def token(self, request: Request) -> str:
        """What an agent of the request's host may show next time, for its failures to be counted apart."""
        return hmac.new(self._secret, _host(request).encode(), "sha256").hexdigest()

    def _counted_as(self, request: Request) -> str:
        shown = request.headers.get(KNOWN_HEADER, "").encode("utf-8", "replace")
        is_known = hmac.compare_digest(shown, self.token(request).encode())
        return f"the agent of {_host(request)}" if is_known else _host(request)

    def _refuse_failing(self, host: str) -> None:
        """Raise HTTPException if nothing of this host is checked now."""
        failures, now_s = self._hosts.get(host), self._clock.elapsed_s()
        if failures is None:
            return
        wait_s = failures.wait_s(now_s)
        if now_s < failures.at_s + self._limits.suspect_s:
            wait_s = max(wait_s, self._all.wait_s(now_s))
        if wait_s > 0:
            wait_s = math.ceil(wait_s)
            detail = f"too many false credentials came from {host}; ask again in {wait_s} s"
            raise HTTPException(429, detail, {"Retry-After": str(wait_s)})


def _host(request: Request) -> str:
    """Address of who asks; of IPv6 the network of a link, of which a host may take any number of addresses."""
    if request.client is None:
        return ""
    address = ipaddress.ip_address(request.client.host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
