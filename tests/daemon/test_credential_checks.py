"""What junk in place of credentials costs, and who is served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import HTTPException, Request

from slurm_soda.daemon.api.credential_checks import CheckLimits, CredentialChecks
from slurm_soda.wire.munge import CREDENTIAL_HEADER, KNOWN_HEADER, Munge
from tests.daemon.fake_slurm import FakeClock
from tests.wire.fake_munged import FakeMunged

LIMITS = CheckLimits(failures_of_host=5, forgotten_of_host_per_s=1, failures=20, forgotten_per_s=2, hosts=100)
JUNK = "MUNGE:AAAA:"


def request_of(host: str, credential: str = JUNK, known: str = "") -> Request:
    headers = [
        (CREDENTIAL_HEADER.lower().encode(), credential.encode()),
        (KNOWN_HEADER.lower().encode(), known.encode("latin-1")),
    ]
    return Request({"type": "http", "headers": headers, "client": (host, 1)})


@dataclass
class Door:
    """Checks of credentials, as requests meet them."""

    limits: CheckLimits = LIMITS
    munged: FakeMunged = field(default_factory=FakeMunged)
    clock: FakeClock = field(default_factory=FakeClock)
    retry_after: str = ""
    """What the last refusal said."""

    def __post_init__(self) -> None:
        self.checks = CredentialChecks(Munge(run=self.munged), self.clock, self.limits)

    def knock(self, host: str, credential: str = JUNK, known: str = "") -> int:
        """The status of the answer to a request."""
        try:
            asyncio.run(self.checks.sender(request_of(host, credential, known), None))
        except HTTPException as error:
            self.retry_after = (error.headers or {}).get("Retry-After", "")
            return error.status_code
        return 200

    def good(self) -> str:
        return Munge(run=self.munged).encode(b"x")


def test_of_a_flood_from_one_host_a_few_are_checked() -> None:
    door = Door()
    assert [door.knock("10.0.0.1") for _ in range(50)] == [403] * 5 + [429] * 45
    assert door.munged.decoded == 5
    assert door.retry_after == "1"
    assert door.knock("10.0.0.2", door.good()) == 200
    door.clock.at_s += 10
    assert [door.knock("10.0.0.1") for _ in range(50)] == [403] * 5 + [429] * 45


def test_a_flood_of_minutes_costs_one_check_a_second() -> None:
    door = Door()
    for _ in range(600):
        door.knock("10.0.0.1")
        door.clock.at_s += 0.1
    assert door.munged.decoded <= 5 + 61


def test_a_host_is_served_again_when_its_failures_are_forgotten() -> None:
    door = Door()
    for _ in range(9):
        door.knock("10.0.0.1")
    assert door.knock("10.0.0.1", door.good()) == 429
    door.clock.at_s += 1.5
    assert door.knock("10.0.0.1", door.good()) == 200


def test_good_credentials_count_for_nothing() -> None:
    door = Door()
    assert {door.knock("10.0.0.1", door.good()) for _ in range(50)} == {200}


def test_a_flood_from_many_hosts_is_bounded_in_all_and_other_hosts_are_served() -> None:
    door = Door()
    for second in range(20):
        door.clock.at_s += 1
        for host in range(30):
            door.knock(f"10.0.1.{host}")
        assert door.knock(f"10.0.2.{second}", door.good()) == 200
    assert door.munged.decoded - 20 <= 30 + LIMITS.failures + 20 * LIMITS.forgotten_per_s


def test_addresses_of_one_ipv6_network_are_one_host() -> None:
    door = Door()
    assert [door.knock(f"2001:db8::{at:x}") for at in range(1, 20)].count(403) == 5
    assert door.knock("2001:db8:0:1::1", door.good()) == 200


@pytest.mark.parametrize("address", ["::ffff:10.0.0.1", "10.0.0.1"])
def test_an_ipv4_address_is_one_host_however_it_is_written(address: str) -> None:
    door = Door()
    for _ in range(9):
        door.knock("10.0.0.1")
    assert door.knock(address) == 429


@pytest.mark.parametrize("address", ["fe80::1%eth0", "::1", "2001:db8::1"])
def test_ipv6_is_served(address: str) -> None:
    door = Door()
    assert door.knock(address, door.good()) == 200


def test_remembered_hosts_are_bounded() -> None:
    door = Door(CheckLimits(hosts=3))
    for host in range(10):
        door.knock(f"10.0.0.{host}")
    assert len(door.checks._hosts) == 3


def test_what_munge_cannot_have_made_costs_nothing() -> None:
    door = Door()
    assert {door.knock("10.0.0.1", junk) for junk in ["", "MUNGE:", "MUNGE:" + 5000 * "A" + ":"]} == {403}
    assert door.munged.decoded == 0


def test_a_munged_that_does_not_run_is_not_the_hosts_fault() -> None:
    door = Door()
    credential = door.good()
    door.munged.is_silent = True
    assert {door.knock("10.0.0.1", credential) for _ in range(20)} == {503}
    door.munged.is_silent = False
    assert door.knock("10.0.0.1", credential) == 200


def test_so_many_are_checked_at_a_time() -> None:
    running, most = 0, 0

    async def knock_at_once() -> None:
        checks = CredentialChecks(Munge(run=slow), FakeClock(), CheckLimits(at_a_time=3))
        await asyncio.gather(*(checks.sender(request_of(f"10.0.0.{host}"), None) for host in range(12)))

    def slow(argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        asyncio.run(asyncio.sleep(0.01))
        running -= 1
        return 0, b"UID: 0\nENCODE_HOST: n1 (10.0.0.2)\n\n", b""

    asyncio.run(knock_at_once())
    assert most == 3


def test_what_is_carried_is_verified_and_counts() -> None:
    door = Door()

    async def ask(verify: Callable[[Any], None]) -> None:
        await door.checks.sender(request_of("10.0.0.1", door.good()), None, verify)

    for _ in range(5):
        with pytest.raises(HTTPException, match="another request"):
            asyncio.run(ask(lambda message: message.check_request(b"GET /")))
    assert door.knock("10.0.0.1", door.good()) == 429


def test_an_agent_that_is_known_is_served_while_a_user_of_its_host_floods() -> None:
    door = Door()
    token = door.checks.token(request_of("10.0.0.1"))
    for _ in range(9):
        door.knock("10.0.0.1")
    assert door.knock("10.0.0.1", door.good(), token) == 200
    for guess in ("", "x", "\xff", token[:-1], door.checks.token(request_of("10.0.0.2"))):
        assert door.knock("10.0.0.1", door.good(), guess) == 429
    assert [door.knock("10.0.0.1", JUNK, token) for _ in range(9)].count(
        403
    ) == 5  # a token frees nobody from the limit
    assert door.knock("10.0.0.2", JUNK, token) == 403
