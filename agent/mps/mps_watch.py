"""Watches NVIDIA MPS on this node: which GPUs are fit for it, who runs under it, and faults, after which it helps it on.

The hooks start and end the control daemons (docs/design/0014); without an agent they go on with the last list of fit GPUs,
and a fault is then known to nobody but the jobs that it ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slurm_soda.agent.mps.control_daemon import ControlDaemon
from slurm_soda.agent.mps.leftovers import remove_leftovers
from slurm_soda.agent.mps.mps_news import MpsNews
from slurm_soda.agent.resource_controller import NodeSample
from slurm_soda.agent.sampling.gpus import Gpus
from slurm_soda.wire.atomic_files import write_at
from slurm_soda.wire.mps import MpsFault, MpsJob

INTERVAL_S = 2.0
"""Between two looks at the logs."""
ASK_EVERY_S = 10.0
"""A daemon without a fault is asked so often; it logs every question."""
LIST_EVERY_S = 30.0
PATIENCE_S = 4.0
"""So long may clients take to end after a fault; then their server is ended, so that the GPU is of use again in 10 s."""
DEAF_S = 30.0
"""A daemon that did not answer is not asked again so soon: the agent waits meanwhile."""
TURN_S = 1.0
"""After so long in a turn no daemon is asked any more; the next turn begins with those that were not."""
FIT_FILE = "mps-gpus"
LEFTOVERS = "leftovers"
CLEANING_S = 0.05
"""Spent in a turn on what users left in the directories of daemons that are gone."""


class MpsWatch:
    """A resource controller that sets nothing."""

    def __init__(
        self,
        gpus: Gpus,
        news: MpsNews,
        daemons: Path = Path("/run/slurm-soda-node/mps"),
        lists: Path = Path("/run/slurm-soda-agent"),
    ) -> None:
        self._gpus, self._news, self._root, self._lists = gpus, news, daemons, lists
        self._daemons: dict[str, ControlDaemon] = {}
        self._faulted_s: dict[str, float] = {}
        """Daemons with a fault, and since when."""
        self._asked: dict[str, tuple[bool, float]] = {}
        """Whether a daemon answered, and when it is to be asked again."""
        self._served: dict[str, tuple[MpsJob, ...]] = {}
        """Jobs of each daemon at the last look: a fault may have ended them since."""
        self._list_s = float("-inf")
        self._turn_until_s = 0.0
        """By the monotonic clock."""
        self._leftovers = False
        """Some are left to be removed."""

    @property
    def interval_s(self) -> float:
        """Short while somebody is under MPS, or has left something."""
        return INTERVAL_S if self._daemons or self._leftovers else float("inf")

    def recover(self, now_s: float) -> Sequence[str]:
        """What logs say already was seen by an agent before, or by nobody."""
        for name in self._find_daemons():
            self._daemons[name].skip_log()
        return self._write_list(now_s)

    def turn(self, sample: NodeSample) -> Sequence[str]:
        """Look at every daemon; each new fault is news and a line for people."""
        told = list(self._write_list(sample.now_s))
        self._turn_until_s = time.monotonic() + TURN_S
        jobs: list[MpsJob] = []
        there = self._find_daemons()
        for name, daemon in list(self._daemons.items()):
            served = daemon.jobs()
            jobs.extend(served)
            concerned = {job.job_id: job for job in (*self._served.get(name, ()), *served)}
            self._served[name] = served
            if self._has_new_fault(daemon, sample.now_s):
                self._news.faults.append(MpsFault(sample.unix_s, tuple(concerned[job] for job in sorted(concerned))))
                numbers = ", ".join(str(job) for job in sorted(concerned))
                told.append(f"MPS of {name}: a fatal fault of one client, which ends others too (jobs {numbers})")
        self._forget(self._daemons.keys() - there)
        self._news.jobs = tuple(sorted(jobs, key=lambda job: job.job_id))
        self._leftovers = remove_leftovers(self._lists / LEFTOVERS, CLEANING_S)  # after the last look at their logs
        return told

    def close(self) -> Sequence[str]:
        """The list stays: hooks need it without an agent too."""
        return ()

    def counts(self) -> Mapping[str, int]:
        """Control daemons of NVIDIA MPS."""
        return {"mps_daemons": len(self._daemons)}

    def _find_daemons(self) -> set[str]:
        """Names of those that are there; new ones are watched from now on."""
        try:
            names = {entry.name for entry in os.scandir(self._root) if entry.is_dir(follow_symlinks=False)}
        except OSError:
            names = set()
        for name in names - self._daemons.keys():
            self._daemons[name] = ControlDaemon(self._root / name)
        return names

    def _forget(self, names: Iterable[str]) -> None:
        for gone in names:
            self._daemons.pop(gone).close()
            for known in (self._served, self._faulted_s, self._asked):
                known.pop(gone, None)

    def _has_new_fault(self, daemon: ControlDaemon, now_s: float) -> bool:
        logged, since_s = daemon.has_logged_fault(), self._faulted_s.get(daemon.name)
        servers = self._ask(daemon, now_s, hurry=logged or since_s is not None)
        if not servers and not logged:
            self._faulted_s.pop(daemon.name, None)
            return False
        if since_s is None:
            self._faulted_s[daemon.name] = now_s
            return True
        if now_s - since_s >= PATIENCE_S:
            daemon.end_servers(servers)
        return False

    def _ask(self, daemon: ControlDaemon, now_s: float, *, hurry: bool) -> list[int]:
        answered, again_s = self._asked.get(daemon.name, (True, now_s))
        if (now_s < again_s and not (hurry and answered)) or time.monotonic() > self._turn_until_s:
            return []
        self._daemons[daemon.name] = self._daemons.pop(daemon.name)  # behind the others at the next turn
        servers = daemon.faulted_servers()
        answered = servers is not None
        self._asked[daemon.name] = answered, now_s + (ASK_EVERY_S if answered else DEAF_S)
        return servers or []

    def _write_list(self, now_s: float) -> Sequence[str]:
        """``0 fit`` or ``0 why not`` a line."""
        if now_s - self._list_s < LIST_EVERY_S:
            return ()
        self._list_s = now_s
        verdicts = self._gpus.verdicts_on_mps(now_s)
        lines = "".join(f"{index} {verdict or 'fit'}\n" for index, verdict in sorted(verdicts.items()))
        try:
            directory = os.open(self._lists, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            return (f"{self._lists / FIT_FILE} cannot be written: {error.strerror}",)
        try:
            write_at(directory, FIT_FILE, lines.encode(), temporary=f".{FIT_FILE}", durable=False)
        except OSError as error:
            return (f"{self._lists / FIT_FILE} cannot be written: {error.strerror}",)
        finally:
            os.close(directory)
        return ()
