"""Shares a node's link out while a GPU job of several nodes and a CPU job are on it, and leaves nothing behind.

Order is what makes this safe: a mark on disk, then the tree (which alone limits nobody: what is in no class may use the
whole link), then groups and rules. Going back it is the other way round, and the mark goes last.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurm_soda.agent.network.net_cls import NetClsGroups
from slurm_soda.agent.network.nft_rules import NftRules, PacketClassRules
from slurm_soda.agent.network.shaper import HtbShaper, NetworkError, read_link_mbit_per_s
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.agent.settings.network import NetworkSettings
from slurm_soda.agent.state_file import StateFileError, read_state, write_state
from slurm_soda.policies.node_limits.incoming_congestion import IncomingCongestion
from slurm_soda.policies.node_limits.link_shares import (
    CPU,
    GPU,
    CompetingJobs,
    build_share_classes,
    find_competing_jobs,
)
from slurm_soda.wire.records import JobOpened

log = logging.getLogger("soda-agent")

CHECK_S = 30.0
"""Between two checks that our tree and table are still there, and between two attempts after a refusal."""
STATE_FILE = "network.json"
"""File in the state directory: something of ours may be on the network. It names the node whose groups of net_cls may be
there, if any."""
_VERSION = 1


@dataclass(slots=True)
class NetworkDependencies:
    """What the controller works with; tests give it others."""

    job_processes: JobProcesses
    shaper: HtbShaper = field(default_factory=HtbShaper)
    rules: NftRules = field(default_factory=NftRules)
    net_classes: Callable[[str], NetClsGroups] = NetClsGroups
    """Made for a node's name."""
    traffic: Path = Path("/proc/thread-self/net/dev")


class NetworkController:
    """The agent's part for the network (SODA, Section V-E)."""

    def __init__(self, settings: NetworkSettings, state: Path, ports: NetworkDependencies) -> None:
        self._settings = settings
        self._mark = state / STATE_FILE
        self._ports = ports
        self._marks: PacketClassRules | None = None
        """What is in force; None: nothing."""
        self._groups: NetClsGroups | None = None
        """Our groups, where jobs are told apart by them."""
        self._incoming: IncomingCongestion | None = None
        self._cpu_part = 0
        """Bytes a second that are the CPU jobs'."""
        self._told_apart = 0
        """Jobs whose traffic is told apart."""
        self._ready = False
        self._checked_s = -math.inf
        self._refused_s = -math.inf

    @property
    def interval_s(self) -> float:
        """While the link is shared out, new processes are looked for."""
        return math.inf if self._marks is None else self._settings.refresh_s

    def recover(self, now_s: float) -> Sequence[str]:
        """Take back what an agent before this one left; the first turn sets it again where it is still wanted."""
        self._ready = True
        return self._take_back()

    def turn(self, sample: NodeSample) -> Sequence[str]:
        """Share the link out, keep track of the jobs' processes, or take everything back."""
        if not self._ready:
            return ()
        wanted = find_competing_jobs(run.opened for run in sample.runs if run.opened is not None)
        if wanted is None or not self._settings.enabled or sample.has_left_out:
            return self._take_back()
        if self._marks is None and sample.now_s - self._refused_s < CHECK_S:
            return ()
        try:
            if sample.now_s - self._checked_s >= CHECK_S or self._marks is None:
                self._check(wanted)
                self._checked_s = sample.now_s
            self._tell_apart(wanted, sample.now_s)
        except NetworkError as error:
            self._refused_s = sample.now_s
            return (str(error), *self._take_back())
        return ()

    def close(self) -> Sequence[str]:
        """Take everything back: nobody would follow the jobs' processes."""
        return self._take_back()

    def counts(self) -> Mapping[str, int]:
        """Jobs between which the link is shared out."""
        return {"jobs_in_network_classes": 0 if self._marks is None else self._told_apart}

    def _check(self, wanted: CompetingJobs[JobOpened]) -> None:
        """Put the tree on the interface, again where it has gone.

        Raises:
            NetworkError: the interface is somebody else's, or cannot be shared out.
        """
        settings, interface = self._settings, self._settings.gpu_interface
        speed = settings.link_mbit or read_link_mbit_per_s(interface)
        foreign = self._ports.shaper.foreign(interface)
        if foreign:
            raise NetworkError(
                f"network: {interface} has a queueing discipline of somebody else ({foreign}), which is left alone: jobs"
                f" share the link as it says; to have slurm-soda do it: tc qdisc del dev {interface} root"
            )
        if self._marks is not None and self._ports.shaper.is_set(interface):
            if not self._ports.rules.is_set():
                self._marks = PacketClassRules(interface, self._marks.by_net_cls)
                self._ports.rules.set(self._marks)
            return
        by_net_cls = not self._ports.job_processes.has_cgroup_v2(wanted.gpu[0].node)
        node = wanted.gpu[0].node if by_net_cls else ""
        self._write_mark(node)
        tree = build_share_classes(settings, speed)
        if not self._ports.shaper.is_set(interface):
            self._ports.shaper.set(interface, tree)
        self._cpu_part = next(share.rate for share in tree if share.minor == CPU)
        self._incoming = IncomingCongestion(tree[0].rate)
        self._marks = PacketClassRules(interface, by_net_cls)
        self._groups = self._ports.net_classes(node) if node else None
        if self._groups is not None:
            self._groups.make()
        self._ports.rules.set(self._marks)
        log.info("network: %s is shared out: %g %% of %g Mbit/s for GPU jobs", interface, settings.gpu_percent, speed)

    def _tell_apart(self, wanted: CompetingJobs[JobOpened], now_s: float) -> None:
        """Have every process of the jobs send in its job's class.

        Raises:
            NetworkError: the kernel refuses.
        """
        self._told_apart = len(wanted.gpu) + len(wanted.cpu)
        try:
            self._set_rules(wanted, now_s)
        except NetworkError:  # a job may have ended while nft looked for its group
            self._set_rules(wanted, now_s)
        if self._groups is None:
            return
        for minor, jobs in ((GPU, wanted.gpu), (CPU, wanted.cpu)):
            pids = self._ports.job_processes.processes(jobs).values()
            self._groups.place(minor, frozenset().union(*pids))

    def _set_rules(self, wanted: CompetingJobs[JobOpened], now_s: float) -> None:
        """Name the jobs' groups of the unified hierarchy, and limit what CPU jobs receive, if anything has changed."""
        by_net_cls = self._groups is not None
        fresh = PacketClassRules(
            self._settings.gpu_interface,
            by_net_cls,
            gpu=() if by_net_cls else self._paths(wanted.gpu),
            cpu=() if by_net_cls else self._paths(wanted.cpu),
            counts_received=self._settings.limit_received,
            cpu_receives=self._cpu_part if self._receives_too_much(now_s) else 0,
        )
        if fresh != self._marks:
            self._ports.rules.set(fresh)
            self._marks = fresh

    def _receives_too_much(self, now_s: float) -> bool:
        """CPU jobs' part of what comes in is to be limited now."""
        if not self._settings.limit_received or self._incoming is None:
            return False
        if not self._settings.cpu_may_borrow:
            return True
        received = received_bytes(self._ports.traffic.read_text("ascii"), self._settings.gpu_interface)
        return received is not None and self._incoming.observe(now_s, received, self._ports.rules.gpu_received)

    def _paths(self, jobs: Sequence[JobOpened]) -> tuple[str, ...]:
        return tuple(sorted(filter(None, map(self._ports.job_processes.cgroup_v2, jobs))))

    def _write_mark(self, node: str) -> None:
        try:
            write_state(self._mark, _VERSION, {"net_cls": node})
        except StateFileError as error:
            raise NetworkError(f"network: {error}") from error

    def _take_back(self) -> tuple[str, ...]:
        """Remove rules, tree and groups, if the mark stands. What remains is reported, and tried again next time."""
        if not self._mark.exists():
            return ()
        try:
            node = str(read_state(self._mark, _VERSION).get("net_cls", ""))
        except StateFileError:
            node = os.uname().nodename.partition(".")[0]  # of a damaged mark: the likeliest name
        faults = []
        steps: list[Callable[[], None]] = [self._ports.rules.remove, self._ports.shaper.remove]
        if node:
            steps.append(self._ports.net_classes(node).remove)
        for step in steps:
            try:
                step()
            except NetworkError as error:
                faults.append(str(error))
        self._marks, self._groups = None, None
        if faults:
            return tuple(faults)
        try:
            self._mark.unlink(missing_ok=True)
        except OSError as error:
            return (f"network: {self._mark} cannot be removed yet: {error.strerror}",)
        log.info("network: nothing is shared out any more")
        return ()


def received_bytes(table: str, interface: str) -> int | None:
    """An interface's bytes from ``/proc/net/dev``, or None: it is not there."""
    for line in table.splitlines():
        name, colon, values = line.partition(":")
        if colon and name.strip() == interface and values.split():
            return int(values.split()[0])
    return None
