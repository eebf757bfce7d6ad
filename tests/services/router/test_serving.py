"""Queries reach instances that are ready and well, and nobody else, whatever happens to them."""

from __future__ import annotations

import http.client
import os
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

from slurm_soda.services.router import haproxy_control
from slurm_soda.services.router.errors import FolderError
from slurm_soda.services.router.listen_address import ListenAddress
from slurm_soda.services.router.router import Router
from tests.services.router.conftest import SERVICE, Site, wait_until
from tests.services.router.load import Load, ask

_ESTABLISHED, _KEEPALIVE = "01", "02"
"""State and timer in ``/proc/net/tcp``."""


def test_queries_go_to_all_that_are_ready(site: Site) -> None:
    """Also to one that comes while the router runs; none to one that only starts."""
    site.backends.add(1)
    site.backends.add(2, state="starting")
    site.start()
    site.wait_serving(1)
    assert site.asked(10) == {"1"}
    site.backends.set(2, state="ready")
    site.wait_serving(2)
    assert site.asked(20) == {"1", "2"}


def test_a_large_query_goes_through(site: Site) -> None:
    """Also one that is too large to be kept for a second try."""
    site.backends.add(1)
    site.start()
    site.wait_serving(1)
    assert ask(site.endpoint, body=b"x" * 3_000_000) == (200, "1")


def test_an_instance_that_lies_about_its_health_gets_nothing(site: Site) -> None:
    """HAProxy's own check decides, and sodad is told why."""
    site.backends.add(1)
    liar = site.backends.add(2, healthy=False)
    site.start(with_sodad=True)
    site.wait_serving(1)
    with Load(site.endpoint, 100) as load:
        wait_until(lambda: site.status(2) == "DOWN" and load.by["1"] > 100, "a hundred queries")
    wait_until(lambda: any(i.job_id == 2 and "503" in i.reason for i in site.sodad.reports[-1].instances), "reported")
    told = {i.job_id: i.state for i in site.sodad.reports[-1].instances}
    assert told == {1: "ready", 2: "failed"}
    assert (liar.answered, set(load.results)) == (0, {200})


def test_a_new_instance_is_not_held_for_failed_by_the_check_of_the_one_before(site: Site) -> None:
    """HAProxy shows the last result of a server until the next, also to another instance that has got it: sodad would have
    a healthy one leave.
    """
    site.backends.add(1)
    gone = site.backends.add(2)
    site.start(with_sodad=True)
    site.wait_serving(1, 2)
    site.backends.do(gone.die())
    wait_until(lambda: site.status(2) == "DOWN", "the check fails")
    site.backends.remove(2)
    site.backends.add(3, health_s=1.5)
    site.wait_serving(3)
    wait_until(lambda: "ready" in _told_of(site, 3), "told")
    assert "failed" not in _told_of(site, 3)


def _told_of(site: Site, job_id: int) -> set[str]:
    """States in which sodad was told of an instance."""
    return {one.state for report in site.sodad.reports for one in report.instances if one.job_id == job_id}


def test_a_killed_instance_loses_at_most_what_it_had(site: Site) -> None:
    """Queries that it had not answered go to another one."""
    victim = site.backends.add(1, answer_s=0.05)
    site.backends.add(2, answer_s=0.05)
    site.start()
    site.wait_serving(1, 2)
    with Load(site.endpoint, 100) as load:
        wait_until(lambda: victim.in_flight > 0 and load.results[200] > 50, "load")
        had = victim.in_flight
        site.backends.do(victim.die())
        before = load.by["2"]
        wait_until(lambda: load.by["2"] > before + 100, "the other one answers")
    lost = sum(count for status, count in load.results.items() if status != 200)
    assert lost <= had


def test_the_kernel_asks_whether_a_node_is_there_that_owes_an_answer(site: Site) -> None:
    """A node that loses its power says nothing: without that, what it had would wait for the time of an answer, 30 s."""
    held = site.backends.add(1, hold=True)
    site.start()
    site.wait_serving(1)
    thread = threading.Thread(target=lambda: ask(site.endpoint))
    thread.start()
    wait_until(lambda: held.in_flight == 1, "in flight")
    try:
        wait_until(lambda: _keepalive_s(held.port) is not None, "a keep-alive timer", 5.0)
        asked_s = _keepalive_s(held.port)
        assert asked_s is None or asked_s <= 5.0
    finally:
        held.hold = False
        thread.join(20)


def _keepalive_s(port: int) -> float | None:
    """When the kernel asks next whether the other side of a connection to this port is there; None: it does not."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        timer, _, ticks = words[5].partition(":")
        if words[2].endswith(f":{port:04X}") and words[3] == _ESTABLISHED and timer == _KEEPALIVE:
            return int(ticks, 16) / os.sysconf("SC_CLK_TCK")
    return None


def test_an_instance_on_a_node_that_hangs_is_left(site: Site) -> None:
    """Its file is not written any more: it gets no queries, though it still would answer."""
    site.backends.add(1)
    site.backends.add(2)
    router = site.start()
    site.wait_serving(1, 2)
    stale = site.backends.files.pop("127.0.0.1.2")
    router._heartbeats._seen["127.0.0.1.2"].changed_s -= 9
    wait_until(lambda: site.status(2) == "DRAIN", "drained")
    assert site.asked(10) == {"1"}
    site.backends.say(stale)
    site.wait_serving(2)


def test_a_dead_haproxy_is_started_again(site: Site) -> None:
    """At the same place, with the same instances."""
    site.backends.add(1)
    router = site.start()
    site.wait_serving(1)
    before = router.haproxy_pid
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: router.haproxy_pid != before, "another HAProxy")
    wait_until(lambda: _status(site) == 200, "it serves")
    assert any("started again" in line for line in site.said)


def test_a_haproxy_whose_socket_was_removed_is_started_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as by what cleans /tmp: without it no instance could come or go."""
    monkeypatch.setattr(haproxy_control, "SILENT_S", 0.5)
    site.backends.add(1)
    router = site.start()
    site.wait_serving(1)
    before = router.haproxy_pid
    router._haproxy._settings.worker_socket.unlink()
    wait_until(lambda: router.haproxy_pid != before, "another HAProxy")
    site.backends.add(2)
    site.wait_serving(1, 2)
    assert site.asked(10) == {"1", "2"}


def _status(site: Site) -> int:
    try:
        return ask(site.endpoint, 2)[0]
    except OSError:
        return 0


def test_a_new_file_is_taken_without_losing_queries(site: Site) -> None:
    """SIGHUP: another health path needs a reload; the instances stay as they were, and one that is not well gets nothing."""
    site.backends.add(1)
    liar = site.backends.add(2, healthy=False)
    router = site.start()
    site.wait_serving(1)
    with Load(site.endpoint, 100) as load:
        for path in ("/healthz", "/health", "/healthy"):
            wait_until(lambda: load.results[200] > 20, "load")
            site.file.write_text(f'health = "{path}"\n' + SERVICE.replace("= 200", "= 150"))
            router.reread.set()
            wait_until(lambda path=path: router.service.health == path, "read again")
            load.results[200] -= 20
    assert (set(load.results), liar.answered) == ({200}, 0)
    assert router.service.target_ms == 150


def test_a_reload_that_fails_its_check_keeps_serving(site: Site) -> None:
    """HAProxy's message is told; process and configuration stay."""
    site.backends.add(1)
    router = site.start()
    site.wait_serving(1)
    pid, config = router.haproxy_pid, router._haproxy._process._config
    before = config.read_text()
    listen = router._haproxy._settings
    object.__setattr__(listen, "listen", "no/such:address")
    site.file.write_text('health = "/healthz"\n' + SERVICE)
    router.reread.set()
    wait_until(lambda: any("refuses its configuration" in line for line in site.said), "told")
    assert any("no/such" in line for line in site.said)
    assert site.asked(5) == {"1"}
    assert (router.haproxy_pid, config.read_text(), router.service.health) == (pid, before, "/health")


def test_a_file_that_is_not_right_is_not_taken(site: Site) -> None:
    """The service goes on by the one before."""
    site.backends.add(1)
    router = site.start()
    site.wait_serving(1)
    site.file.write_text("name = 3")
    router.reread.set()
    wait_until(lambda: any("goes on as before" in line for line in site.said), "told")
    assert site.asked(5) == {"1"}


def test_ending_answers_what_is_in_flight(site: Site) -> None:
    """A slow query that came before SIGTERM gets its answer, and nothing of HAProxy is left."""
    slow = site.backends.add(1, answer_s=1.5)
    router = site.start()
    site.wait_serving(1)
    results = []
    thread = threading.Thread(target=lambda: results.append(ask(site.endpoint)))
    thread.start()
    wait_until(lambda: slow.in_flight == 1, "in flight")
    directory = router._haproxy._settings.directory
    site.stop()
    thread.join(20)
    assert results == [(200, "1")]
    assert not directory.exists()


def test_a_client_that_keeps_its_connection_delays_no_end(site: Site) -> None:
    """HAProxy closes idle connections when it ends; it would wait a minute for a client otherwise."""
    site.backends.add(1)
    router = site.start()
    site.wait_serving(1)
    host, _, port = site.endpoint.rpartition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=20)) as connection:
        connection.request("POST", "/predict", b"query")
        assert connection.getresponse().read() == b"1"
        router._haproxy._process.stop(300)  # longer than a connection may be idle
        assert connection.sock is not None
        assert connection.sock.recv(1) == b""


def test_a_second_router_is_refused_and_the_next_one_has_the_same_port(site: Site) -> None:
    """One at a time; a restart is the same for clients."""
    site.backends.add(1)
    first = site.start().endpoint
    with pytest.raises(FolderError, match="another router"):
        Router(site.file, ListenAddress("127.0.0.1", 0), None, site.said.append)
    site.stop()
    assert site.start().endpoint == first
    site.wait_serving(1)
