"""Which instance has which of HAProxy's servers, and the commands that make it so. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurm_soda.services.router.haproxy_config import BACKEND, server_name
from slurm_soda.services.router.runtime_socket import HaproxyStats


@dataclass(frozen=True, slots=True)
class WantedServer:
    """How the server of one instance shall be."""

    address: str
    """Of IP."""
    port: int
    drain: bool
    """No new queries."""
    most_queries: int = 0
    """At a time; 0: any number."""

    @property
    def endpoint(self) -> str:
        """``ADDRESS:PORT``, as HAProxy takes it."""
        return f"{self.address}:{self.port}"


@dataclass(slots=True)
class ServerSlots:
    """The servers of one HAProxy process, as the commands that were given left them."""

    count: int
    _given: dict[int, tuple[str, WantedServer]] = field(default_factory=dict)
    """By slot: an instance's name, and how its server was set."""

    def slot(self, stem: str) -> int | None:
        """The slot of an instance."""
        return next((slot for slot, (holder, _) in self._given.items() if holder == stem), None)

    def addresses(self) -> tuple[str, ...]:
        """Of all slots, empty where nobody has them."""
        return tuple(self._given[slot][1].endpoint if slot in self._given else "" for slot in range(self.count))

    def missing(self, wanted: Mapping[str, WantedServer]) -> int:
        """By how many slots these instances are too many."""
        return max(0, len(wanted) - self.count)

    def grow(self, count: int) -> None:
        """A configuration with more slots is served."""
        self.count = max(self.count, count)

    def forget(self) -> None:
        """Another HAProxy process begins, which knows no instance."""
        self._given.clear()

    def commands(self, wanted: Mapping[str, WantedServer], stats: HaproxyStats) -> list[list[str]]:
        """What to tell HAProxy so that its servers are as wanted; each list at once, without a gap. Taken as done.

        Instances for which there is no slot are left out.
        """
        groups = [self._remove(slot) for slot, (stem, _) in list(self._given.items()) if stem not in wanted]
        free = self._free(stats)
        for stem, server in wanted.items():
            slot = self.slot(stem)
            if slot is None:
                slot = next(free, None)
                if slot is None:
                    break
                groups.append(_added(slot, server))
            elif (server.address, server.port) != (self._given[slot][1].address, self._given[slot][1].port):
                groups.append(_added(slot, server))
            elif server != self._given[slot][1]:
                groups.append(_changed(slot, self._given[slot][1], server))
            self._given[slot] = (stem, server)
        return groups

    def _remove(self, slot: int) -> list[str]:
        del self._given[slot]
        return [f"set server {_server(slot)} state maint"]

    def _free(self, stats: HaproxyStats) -> Iterator[int]:
        """Free slots; those whose last instance still answers queries at the end, since they are counted together."""
        free = [slot for slot in range(self.count) if slot not in self._given]
        server = stats.servers
        return iter(sorted(free, key=lambda slot: server_name(slot) in server and server[server_name(slot)].queries > 0))


def _added(slot: int, server: WantedServer) -> list[str]:
    """A server that left maintenance would count as healthy until its first check fails. One that is drained is set down
    first, and so gets its first query after its first check.
    """
    name = _server(slot)
    return [
        f"set server {name} state maint",
        f"set server {name} addr {server.address} port {server.port}",
        f"set maxconn server {name} {server.most_queries}",
        f"set server {name} state drain",
        f"set server {name} health down",
        *([] if server.drain else [f"set server {name} state ready"]),
    ]


def _changed(slot: int, before: WantedServer, server: WantedServer) -> list[str]:
    commands = []
    if server.drain != before.drain:
        commands.append(f"set server {_server(slot)} state {'drain' if server.drain else 'ready'}")
    if server.most_queries != before.most_queries:
        commands.append(f"set maxconn server {_server(slot)} {server.most_queries}")
    return commands


def _server(slot: int) -> str:
    return f"{BACKEND}/{server_name(slot)}"
