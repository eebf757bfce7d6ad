"""Keeps an HAProxy running, and its servers as the router wants them."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from slurm_soda.services.router.errors import HaproxyError
from slurm_soda.services.router.haproxy_config import COMING, HaproxySettings, slots_for, write_config
from slurm_soda.services.router.haproxy_process import HaproxyProcess, find_haproxy, has_lua, private_directory
from slurm_soda.services.router.listen_address import ListenAddress
from slurm_soda.services.router.query_log import QueryLog
from slurm_soda.services.router.runtime_socket import HaproxyStats, ServerStats
from slurm_soda.services.router.server_slots import ServerSlots, WantedServer
from slurm_soda.wire.services.service_file import ServiceFile

MOST_CONNECTIONS = 20_000
MOST_THREADS = 4
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
SILENT_S = 15.0
"""An HAProxy whose socket gives no answer for so long is started anew, such as when somebody removed the socket."""
FIRST_CHECK_S = 1.0
"""So long after it got its server an instance is checked for the first time, with some to spare."""
STATE_EVERY_S = 2.0
"""So often the health of the servers is read, for a process that has to be started."""


class HaproxyControl:
    """One service's HAProxy."""

    def __init__(self, service: ServiceFile, listen: ListenAddress, log: QueryLog, say: Callable[[str], None]) -> None:
        """Raise HaproxyError if HAProxy is not installed."""
        self._say = say
        program = find_haproxy()
        settings = HaproxySettings(
            directory=private_directory(),
            listen=listen.text,
            health=service.health,
            target_ms=service.target_ms,
            slots=slots_for(service),
            connections=_connections(slots_for(service)),
            threads=min(MOST_THREADS, len(os.sched_getaffinity(0))),
            can_wait=has_lua(program),
        )
        self._process = HaproxyProcess(program, settings, log.add)
        self._slots = ServerSlots(settings.slots)
        self._given_s: dict[tuple[str, str], float] = {}
        """When instances got their servers, by name and endpoint."""
        self._state, self._state_s = "", 0.0
        self._silent_since_s: float | None = None
        self._begin_s = 0.0
        self._pause_s, self._grow_s = FIRST_PAUSE_S, 0.0
        self._begun = False

    @property
    def pid(self) -> int:
        """Of HAProxy's master."""
        return self._process.pid

    @property
    def _settings(self) -> HaproxySettings:
        return self._process.settings

    def check(self) -> None:
        """Let HAProxy check its configuration.

        Raises:
            HaproxyError: it is refused; HAProxy's words.
        """
        self._process.check(self._text(self._settings))

    def tend(self) -> None:
        """Start HAProxy if it does not run.

        Raises:
            HaproxyError: its very first start failed.
        """
        now_s = time.monotonic()
        if self._process.runs() and self._silent_since_s is not None and now_s - self._silent_since_s > SILENT_S:
            self._say(f"HAProxy's socket gives no answer for {SILENT_S:g} s; HAProxy is started anew")
            self._process.stop(0.0)
        if self._process.runs() or now_s < self._begin_s:
            return
        if self._begun:
            self._say(f"HAProxy ended with {self._process.why_ended()}; it is started again")
        try:
            self._process.start(self._text(self._settings), self._state)
        except HaproxyError as error:
            if not self._begun:
                raise
            self._say(str(error))
        self._begun, self._silent_since_s = True, None
        # One that ends at once again and again gets longer pauses.
        self._pause_s = (
            FIRST_PAUSE_S if now_s - self._begin_s > LONGEST_PAUSE_S else min(2 * self._pause_s, LONGEST_PAUSE_S)
        )
        self._begin_s = time.monotonic() + self._pause_s

    def stats(self) -> HaproxyStats | None:
        """What HAProxy counts now; None: it does not answer."""
        if not self._process.runs():
            return None
        try:
            stats = self._process.worker.stats()
            self._silent_since_s, now_s = None, time.monotonic()
            if now_s - self._state_s > STATE_EVERY_S:
                self._state, self._state_s = self._process.state(), now_s
        except HaproxyError:
            # Counted from the first failure: the router itself may have waited for a file system all the time before.
            self._silent_since_s = self._silent_since_s or time.monotonic()
            return None
        return stats

    def in_flight(self, stats: HaproxyStats) -> Callable[[str], int]:
        """Gives the queries in flight at an instance, by its name.

        Processes from before a reload count too, and what waits in them counts for each instance: they know of no drain.
        """
        queries = {name: server.queries for name, server in stats.servers.items()}
        waiting = 0
        with suppress(HaproxyError):
            for pid in self._process.master.old_workers():
                old = self._process.master.stats(f"@!{pid} ")
                waiting += old.queued
                for name, server in old.servers.items():
                    queries[name] = queries.get(name, 0) + server.queries
        return lambda stem: queries.get(self._slots.server(stem), 0) + waiting

    def server(self, stem: str, stats: HaproxyStats) -> ServerStats:
        """What HAProxy says of an instance's server."""
        return stats.servers.get(self._slots.server(stem), ServerStats("MAINT"))

    def is_new(self, stem: str, now_s: float) -> bool:
        """Whether an instance has had its server for so short a time that its first check may not be over.

        Until then HAProxy shows what the last check of the instance found that had the server before.
        """
        given_s = max((at_s for (name, _), at_s in self._given_s.items() if name == stem), default=now_s)
        return now_s - given_s < self._settings.check_limit_s + FIRST_CHECK_S

    def apply(self, wanted: Mapping[str, WantedServer], stats: HaproxyStats) -> None:
        """Make the servers as wanted; with a reload if they are more than there are slots."""
        if len(wanted) > self._slots.count and time.monotonic() >= self._grow_s:
            self._grow_s = time.monotonic() + LONGEST_PAUSE_S
            slots = 2 * len(wanted)
            with suppress(HaproxyError):
                self._reload(replace(self._settings, slots=slots, connections=_connections(slots)))
        for group in self._slots.commands(wanted, stats):
            try:
                self._process.worker.ask(*group)
            except HaproxyError as error:
                self._say(f"{error}; it is told again")
                return
        now_s = time.monotonic()
        given = [(stem, server.endpoint) for stem, server in wanted.items()]
        self._given_s = {one: self._given_s.get(one, now_s) for one in given}

    def let_wait(self, stats: HaproxyStats, *, comes: bool) -> None:
        """Let queries that find no instance wait, or answer them at once."""
        if comes != stats.comes:
            try:
                self._process.worker.ask(f"set server {COMING}/{COMING} state {'ready' if comes else 'maint'}")
            except HaproxyError as error:
                self._say(f"{error}; it is told again")

    def change(self, service: ServiceFile) -> None:
        """Serve by another version of the service's file; with a reload only if HAProxy's configuration changes.

        Raises:
            HaproxyError: HAProxy refuses it, and serves as before.
        """
        slots = max(self._slots.count, slots_for(service))
        changed = replace(
            self._settings,
            health=service.health,
            target_ms=service.target_ms,
            slots=slots,
            connections=_connections(slots),
        )
        if changed != self._settings:
            self._reload(changed)

    def stop(self) -> None:
        """Let HAProxy answer the queries in flight and end, and remove its files."""
        self._process.stop(self._settings.answer_limit_s + 5.0)
        shutil.rmtree(self._settings.directory, ignore_errors=True)

    def _reload(self, settings: HaproxySettings) -> None:
        try:
            self._process.reload(settings, self._text(settings))
        except HaproxyError as error:
            self._say(f"HAProxy serves as before: {error}")
            raise
        self._slots.count = settings.slots

    def _text(self, settings: HaproxySettings) -> str:
        return write_config(settings, self._slots.addresses())


def _connections(slots: int) -> int:
    """As many as this process may have files for, two each, and some for checks."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(16, min(MOST_CONNECTIONS, (most - 100 - 2 * slots) // 2))
