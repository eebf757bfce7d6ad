"""HAProxy's configuration for one service. Pure.

Servers are slots: a fixed number of them, without an address until an instance gets one through the runtime socket
(HAProxy 2.6 management guide, 9.3, ``set server``). So instances come and go without a reload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.services.router.waiting_queries import ACTION, LIMIT_COUNT, LIMIT_MS, MOST_WAITING, SCRIPT
from slurm_soda.wire.services.service_file import ServiceFile

BACKEND = "instances"
COMING = "coming"
"""A backend whose only server gets no query: it is up while an instance is to come."""
FRONTEND = "queries"
NO_ADDRESS = "127.0.0.1:1"
LONGEST_RETRIED = 64 * 1024
"""Bytes of a query, with its headers, that is sent again to another instance where the first one fails to answer."""


@dataclass(frozen=True, slots=True)
class HaproxySettings:
    """What the configuration depends on, apart from the instances."""

    directory: Path
    """Private one, for sockets and files."""
    listen: str
    """``HOST:PORT``."""
    health: str
    target_ms: float
    slots: int
    connections: int
    """At a time, at most."""
    threads: int
    can_wait: bool = True
    """It has Lua, so that queries can wait for the first instance."""

    @property
    def worker_socket(self) -> Path:
        """Runtime socket of the process that serves."""
        return self.directory / "worker"

    @property
    def master_socket(self) -> Path:
        """Runtime socket of the process that reloads."""
        return self.directory / "master"

    @property
    def script(self) -> Path:
        """What lets queries wait."""
        return self.directory / SCRIPT

    @property
    def state_file(self) -> Path:
        """Health of the servers for a process that begins."""
        return self.directory / "state"

    @property
    def answer_limit_s(self) -> float:
        """How long an instance may take for a query, before it is given to another one: ten targets, 30 s at least."""
        return max(30.0, 10 * self.target_ms / 1000)

    @property
    def wait_limit_s(self) -> float:
        """How long a query waits for the first instance: ten targets, between 30 s and a minute."""
        return min(60.0, self.answer_limit_s)

    @property
    def queue_limit_s(self) -> float:
        """How long a query waits for an instance that takes it: ten targets, between 5 s and a minute."""
        return min(60.0, max(5.0, 10 * self.target_ms / 1000))

    @property
    def check_limit_s(self) -> float:
        """How long the answer to a check may take: five targets, between 2 and 10 s."""
        return min(10.0, max(2.0, 5 * self.target_ms / 1000))


def slots_for(service: ServiceFile) -> int:
    """Servers that are enough for a hand-over of all instances, with some that are leaving or have failed."""
    return 2 * service.replicas.most + 8


def write_config(settings: HaproxySettings, addresses: Sequence[str]) -> str:
    """The configuration's text.

    Args:
        settings: see there.
        addresses: of the first slots, ``HOST:PORT``; empty ones and those that are missing have none.

    POST is retried as any other query is: an inference asked for twice answers the same, and changes nothing.
    """
    answer_ms, queue_ms = round(1000 * settings.answer_limit_s), round(1000 * settings.queue_limit_s)
    wait_ms = round(1000 * settings.wait_limit_s)
    connect_ms = round(min(3000.0, max(500.0, settings.target_ms)))
    check_ms = round(1000 * settings.check_limit_s)
    lines = [
        "global",
        f"    maxconn {settings.connections}",
        f"    nbthread {settings.threads}",
        f"    hard-stop-after {answer_ms + 5000}ms",
        f"    stats socket {settings.worker_socket} mode 600 level admin expose-fd listeners",
        f"    server-state-file {settings.state_file}",
        f"    tune.bufsize {LONGEST_RETRIED}",
        "    log stdout format raw local0 info",
        f"    setenv {LIMIT_MS} {wait_ms}",
        f"    setenv {LIMIT_COUNT} {MOST_WAITING}",
        *_if(settings.can_wait, f"    lua-load {settings.script}"),
        "defaults",
        "    mode http",
        "    balance leastconn",
        "    option http-server-close",
        "    option http-buffer-request",
        "    option abortonclose",
        "    option dontlognull",
        "    option redispatch 1",
        # A node that loses its power or its cable closes nothing: the kernel notices within 5 s, and the query is retried.
        "    option srvtcpka",
        "    srvtcpka-idle 2s",
        "    srvtcpka-intvl 1s",
        "    srvtcpka-cnt 3",
        "    retries 3",
        "    retry-on conn-failure empty-response response-timeout",
        f"    timeout connect {connect_ms}ms",
        f"    timeout queue {queue_ms}ms",
        f"    timeout server {answer_ms}ms",
        f"    timeout client {answer_ms}ms",
        "    timeout http-request 30s",
        "    timeout http-keep-alive 60s",
        f"    timeout check {check_ms}ms",
        "    load-server-state-from-file global",
        f"frontend {FRONTEND}",
        f"    bind {settings.listen}",
        "    log global",
        '    log-format "%Ta %ST %ts"',
        *_if(
            settings.can_wait,
            f"    http-request lua.{ACTION} if {{ nbsrv({BACKEND}) eq 0 }} {{ nbsrv({COMING}) gt 0 }}",
        ),
        f"    default_backend {BACKEND}",
        f"backend {COMING}",
        f"    server {COMING} {NO_ADDRESS} disabled",
        f"backend {BACKEND}",
        "    option httpchk",
        f"    http-check send meth GET uri {settings.health} ver HTTP/1.1 hdr Host service",
        "    http-check expect status 200",
        "    default-server check inter 1s fastinter 250ms downinter 250ms fall 3 rise 1",
        "    default-server observe layer4 error-limit 1 on-error sudden-death",
    ]
    for slot in range(settings.slots):
        address = (addresses[slot] if slot < len(addresses) else "") or NO_ADDRESS
        lines.append(f"    server {server_name(slot)} {address} id {slot + 1} disabled")
    return "\n".join(lines) + "\n"


def _if(holds: bool, line: str) -> tuple[str, ...]:
    return (line,) if holds else ()


def server_name(slot: int) -> str:
    """What HAProxy calls the server of a slot."""
    return f"s{slot + 1}"
