"""One instance as the router sees it: its own words, whether it lives, and what HAProxy's check finds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from slurm_soda.services.router.haproxy_control import HaproxyControl
from slurm_soda.services.router.heartbeats import SILENT_S, Heartbeats
from slurm_soda.services.router.host_addresses import HostAddresses
from slurm_soda.services.router.runtime_socket import HaproxyStats, ServerStats
from slurm_soda.services.router.server_slots import WantedServer
from slurm_soda.services.router.service_folder import FolderContent
from slurm_soda.wire.services.instance_file import InstanceFile
from slurm_soda.wire.services.router_report import ReportedInstance

BATCHES_IN_FLIGHT = 2
"""An instance computes one batch and collects the next (paper 004, Section V-D); further queries wait for whoever is free
first.
"""


@dataclass(frozen=True, slots=True)
class RoutedInstance:
    """One instance."""

    stem: str
    """Name of its file, without ``.json``."""
    instance: InstanceFile
    silent: bool
    """Its heartbeat has stopped."""
    asked_to_drain: bool
    """By a file beside its own."""
    server: ServerStats
    new: bool = False
    """HAProxy may not have checked it yet: what its server shows may be of an instance before it."""

    @property
    def may_serve(self) -> bool:
        """By its own words it could, if nobody asked it to drain."""
        return not self.silent and self.instance.state == "ready"

    def wanted(self, hosts: HostAddresses, drains: Collection[str]) -> WantedServer | None:
        """How its server shall be; None: it has none, since nothing is known to listen there."""
        address = hosts.address(self.instance.host)
        if not address or self.instance.state in ("starting", "failed"):
            return None
        return WantedServer(
            address=address,
            port=self.instance.port,
            drain=not self.may_serve or self.stem in drains,
            most_queries=BATCHES_IN_FLIGHT * self.instance.batch,
        )

    def reported(self, drains: Collection[str], queries: int) -> ReportedInstance:
        """What sodad is told of it.

        Args:
            drains: those that drain by the router's choice.
            queries: in flight at it.
        """
        state, reason = self._state(drains)
        instance = self.instance
        return ReportedInstance(
            job_id=instance.job_id,
            device=instance.device,
            state=state,
            since_s=instance.since_s,
            host=instance.host,
            port=instance.port,
            gpu_type=instance.gpu_type,
            queries=queries,
            reason=reason[:200],
        )

    def _state(self, drains: Collection[str]) -> tuple[str, str]:
        if self.silent:
            return "failed", f"its file was not written for {SILENT_S:g} s or more"
        if self.stem in drains or self.instance.state == "draining":
            # Until HAProxy says so too, a query may still be on its way to it.
            drained = self.server.status.startswith(("DRAIN", "DOWN", "MAINT"))
            return ("draining" if drained else "ready"), self.instance.reason
        if self.instance.state != "ready" or self.server.serves:
            return self.instance.state, self.instance.reason
        if self.new or not self.server.check or self.server.answers_checks:
            return "starting", "the router has not checked it yet"
        return "failed", f"it says that it is ready, and the router's check says {self.server.check}"


def look_at(
    content: FolderContent, heartbeats: Heartbeats, haproxy: HaproxyControl, stats: HaproxyStats, now_s: float
) -> tuple[RoutedInstance, ...]:
    """All instances, by the names of their files."""
    return tuple(
        RoutedInstance(
            stem=stem,
            instance=instance,
            silent=heartbeats.silent(stem, now_s),
            asked_to_drain=stem in content.drains,
            server=haproxy.server(stem, stats),
            new=haproxy.is_new(stem, now_s),
        )
        for stem, instance in sorted(content.instances.items())
    )
