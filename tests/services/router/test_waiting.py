"""Queries that come while no instance serves wait for one that is to come, so many of them and so long."""

from __future__ import annotations

import csv
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurm_soda.services.router import haproxy_config, haproxy_control
from slurm_soda.services.router.haproxy_config import HaproxySettings
from slurm_soda.services.router.haproxy_process import find_haproxy, has_lua
from slurm_soda.services.router.waiting_queries import ANSWER_HOLDS_S, ExpectedInstances
from slurm_soda.wire.services.router_report import RouterAnswer
from tests.services.router.conftest import Site, wait_until
from tests.services.router.load import ask


@pytest.fixture
def lua(site: Site) -> None:
    """The HAProxy here has Lua (the site skips where there is none at all)."""
    if not has_lua(find_haproxy()):
        pytest.skip("haproxy is built without Lua here; those of Debian and Ubuntu have it")


def lets_wait(site: Site) -> bool:
    assert site.router is not None
    stats = site.router._haproxy.stats()
    return stats is not None and stats.comes


def waiting(site: Site) -> int:
    """Clients' connections at HAProxy."""
    assert site.router is not None
    rows = csv.DictReader(site.router._haproxy._process.worker.ask("show stat").removeprefix("# ").splitlines())
    return next(int(row["scur"]) for row in rows if row["svname"] == "FRONTEND")


def test_queries_wait_while_an_instance_starts(site: Site, lua: None) -> None:
    """Also one that is larger than what HAProxy keeps of a query."""
    site.backends.add(1, state="starting")
    site.start()
    wait_until(lambda: lets_wait(site), "the router knows of it")
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, site.endpoint, 60.0, b"x" * size) for size in (5, 5, 5, 1_000_000)]
        wait_until(lambda: waiting(site) == 4, "four wait")
        assert not any(one.done() for one in asked)
        site.backends.set(1, state="ready")
        assert [one.result() for one in asked] == [(200, "1")] * 4
    wait_until(lambda: not lets_wait(site), "none is to come any more")


def test_they_wait_no_longer_than_the_limit(site: Site, lua: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HaproxySettings, "wait_limit_s", 0.5)
    site.backends.add(1, state="starting")
    site.start()
    wait_until(lambda: lets_wait(site), "the router knows of it")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, site.endpoint, 60.0)
        wait_until(lambda: waiting(site) == 1 and not asked.done(), "it waits")
        assert asked.result()[0] == 503


def test_no_more_wait_than_the_limit_and_who_leaves_makes_room(
    site: Site, lua: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(haproxy_config, "MOST_WAITING", 1)
    site.backends.add(1, state="starting")
    site.start()
    wait_until(lambda: lets_wait(site), "the router knows of it")
    host, _, port = site.endpoint.rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
        wait_until(lambda: waiting(site) == 1, "one waits")
        assert ask(site.endpoint)[0] == 503
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
    with ThreadPoolExecutor(1) as pool:

        def served() -> tuple[int, str]:
            while (answer := ask(site.endpoint, 60.0))[0] == 503:
                pass
            return answer

        asked = pool.submit(served)
        wait_until(lambda: waiting(site) == 1 and not asked.done(), "another one waits")
        site.backends.set(1, state="ready")
        assert asked.result() == (200, "1")


def test_they_wait_for_an_instance_that_sodad_wants(site: Site, lua: None) -> None:
    site.sodad.answer = RouterAnswer(gpu=1)
    site.start(with_sodad=True)
    wait_until(lambda: lets_wait(site), "sodad's word")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, site.endpoint, 60.0)
        wait_until(lambda: waiting(site) == 1, "it waits")
        site.backends.add(7)
        assert asked.result() == (200, "7")


def test_without_lua_they_are_answered_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(haproxy_control, "has_lua", lambda _: False)
    site.backends.add(1, state="starting")
    router = site.start()
    wait_until(lambda: router.views, "it serves")
    assert ask(site.endpoint)[0] == 503


def test_whether_haproxy_has_lua(tmp_path: Path) -> None:
    for number, (said, expected) in enumerate((
        ("Feature list : -51DEGREES +LUA -MEMORY_PROFILING", True),
        ("Feature list : -51DEGREES -LUA -MEMORY_PROFILING", False),
        ("  OPTIONS = USE_PCRE2=1 USE_LUA=1 USE_SLZ=1", True),
        ("  OPTIONS = USE_PCRE2=1 USE_LUAU=1", False),
        ("", False),
    )):  # fmt: skip
        program = tmp_path / f"haproxy{number}"
        program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{said}\nEOF\n")
        program.chmod(0o755)
        assert has_lua(str(program)) == expected, said
    assert not has_lua(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("states", "wanted", "least", "comes"),
    [
        (["starting"], None, 1, True), (["failed"], None, 1, False), ([], None, 0, False),
        ([], 1, 1, True), (["failed"], 1, 1, False), (["failed"], 2, 1, True), (["draining"], 1, 1, True),
        ([], 0, 0, True), ([], 0, 1, False), (["failed"], 0, 0, False), (["ready"], 1, 1, False),
    ],
)  # fmt: skip
def test_when_an_instance_is_to_come(states: list[str], wanted: int | None, least: int, comes: bool) -> None:
    expected = ExpectedInstances()
    if wanted is not None:
        expected.take(RouterAnswer(cpu=wanted), 100.0)
    assert expected.any_comes(states, least, 101.0) == comes
    assert expected.any_comes(states, least, 101.0 + ANSWER_HOLDS_S) == ("starting" in states)
