"""Which instance has which of HAProxy's servers, and the commands that make it so. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurm_soda.services.router.haproxy_config import BACKEND, server_name
from slurm_soda.services.router.runtime_socket import HaproxyStats, ServerStats


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
        """``ADDRESS:PORT``, as HAProxy shows it."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(slots=True)
class ServerSlots:
    """The servers of HAProxy by the instances that have them. They outlive HAProxy's process."""

    count: int
    _given: dict[int, tuple[str, WantedServer]] = field(default_factory=dict)
    """By slot: an instance's name, and how its server was set."""

    def server(self, stem: str) -> str:
        """HAProxy's name for the server of an instance; empty: it has none."""
        return next((server_name(slot) for slot, (holder, _) in self._given.items() if holder == stem), "")

    def addresses(self) -> tuple[str, ...]:
        """Of all slots, empty where nobody has them."""
        return tuple(self._given[slot][1].endpoint if slot in self._given else "" for slot in range(self.count))

    def commands(self, wanted: Mapping[str, WantedServer], stats: HaproxyStats) -> list[list[str]]:
        """What to tell HAProxy so that its servers are as wanted; each list at once, without a gap.

        Where ``stats`` shows that a server is not as it was set before, because HAProxy was started anew, it is set again.
        Instances for which there is no slot are left out.
        """
        groups = [self._remove(slot) for slot, (stem, _) in list(self._given.items()) if stem not in wanted]
        slots = {stem: slot for slot, (stem, _) in self._given.items()}
        free = self._free(stats)
        for stem, server in wanted.items():
            slot = slots.get(stem)
            if slot is None:
                slot = next(free, None)
                if slot is None:
                    break
                groups.append(_added(slot, server))
            else:
                seen = stats.servers.get(server_name(slot), ServerStats("MAINT"))
                groups.append(_changed(slot, self._given[slot][1], server, seen))
            self._given[slot] = (stem, server)
        return [group for group in groups if group]

    def _remove(self, slot: int) -> list[str]:
        del self._given[slot]
        return [f"set server {_server(slot)} state maint"]

    def _free(self, stats: HaproxyStats) -> Iterator[int]:
        """Free slots; those whose last instance still answers queries at the end, since they are counted together."""
        free = [slot for slot in range(self.count) if slot not in self._given]
        servers = stats.servers
        return iter(
            sorted(free, key=lambda slot: server_name(slot) in servers and servers[server_name(slot)].queries > 0)
        )


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


def _changed(slot: int, before: WantedServer, server: WantedServer, seen: ServerStats) -> list[str]:
    if before.endpoint != server.endpoint or seen.address != server.endpoint or seen.status.startswith("MAINT"):
        return _added(slot, server)
    commands = []
    if server.drain and (not before.drain or seen.status.startswith("UP")):
        commands.append(f"set server {_server(slot)} state drain")
    elif not server.drain and (before.drain or seen.status.startswith("DRAIN")):
        commands.append(f"set server {_server(slot)} state ready")
    if server.most_queries != seen.most_queries:
        commands.append(f"set maxconn server {_server(slot)} {server.most_queries}")
    return commands


def _server(slot: int) -> str:
    return f"{BACKEND}/{server_name(slot)}"
