"""Reads CPU seconds and memory of all runs together, and finds what a run used after its last reading.

A job's cgroup vanishes with its last process, before the epilog. The group of the whole slurmd stays, and its counter
with it: what that counter gained beyond the gains of the runs that are still there was used by those that vanished.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.sampling.process_trees import ProcessTreeReading, read_process_trees
from slurm_soda.agent.sampling.run_usage import RunUsage
from slurm_soda.epilog import job_cgroups
from slurm_soda.wire.records import JobOpened

PROCESS_TREE = "process tree"


class CpuReader:
    """Reads the runs of one node; keeps the node's counter from one reading to the next."""

    def __init__(self, cgroup_root: str) -> None:
        self._root = cgroup_root
        self._node_s: float | None = None
        self._groups: dict[int, int] = {}
        """Inode of the cgroup of each job at the reading before."""
        self._daemons_s: dict[int, float] = {}
        """By inode, what slurmstepds in it had used then."""

    def read(self, runs: Sequence[NodeRun], now_s: float) -> None:
        """Take one reading of every run; ``seen_s`` of those that have processes becomes ``now_s``."""
        gained_s = 0.0
        groups: dict[int, int] = {}
        daemons_s: dict[int, float] = {}
        vanished: list[tuple[JobOpened, RunUsage]] = []
        without: list[tuple[NodeRun, JobOpened, RunUsage]] = []
        node_s = self._node_counter(runs)
        for run in runs:
            opened, usage = run.opened, run.usage
            if opened is None or usage is None:
                continue
            group = job_cgroups.find_job_cgroup(self._root, opened.node, opened.uid, opened.job_id)
            found = group.read_cpu_s() if group else None
            before = self._groups.get(opened.job_id)
            if group is not None and found is not None:
                groups[opened.job_id] = group.identity
                cpu_s, daemons_s[group.identity] = found
                gained_s += usage.add_cpu(
                    now_s, group.source, {f"cgroup {group.identity}": cpu_s}, group.memory_mib() or 0.0
                )
                gained_s += daemons_s[group.identity] - self._daemons_s.get(group.identity, 0.0)
                run.seen_s = now_s
            elif node_s is None:
                without.append((run, opened, usage))
            if before not in (None, groups.get(opened.job_id)) or (before is None and not usage.samples and run.closed):
                vanished.append((opened, usage))
        if node_s is not None and self._node_s is not None:
            _share_unaccounted_cpu_s(node_s - self._node_s - gained_s, vanished, now_s)
        self._node_s, self._groups, self._daemons_s = node_s, groups, daemons_s
        _read_processes(without, now_s)

    def _node_counter(self, runs: Sequence[NodeRun]) -> float | None:
        node = next((run.opened.node for run in runs if run.opened), None)
        return None if node is None else job_cgroups.read_node_cpu_s(self._root, node)


def _share_unaccounted_cpu_s(spare_s: float, vanished: Sequence[tuple[JobOpened, RunUsage]], now_s: float) -> None:
    """Share CPU seconds among the runs that vanished, by their CPUs; no run gets more than its CPUs can have used."""
    cpus = sum(max(opened.cpus, 1) for opened, _ in vanished)
    for opened, usage in vanished:
        own = max(opened.cpus, 1)
        most_s = own * usage.since_read_s(now_s)
        if spare_s > 0:
            usage.add_unaccounted_cpu_s(now_s, min(spare_s * own / cpus, most_s))
            usage.cpu_source = usage.cpu_source or "cgroup"


def _read_processes(runs: Sequence[tuple[NodeRun, JobOpened, RunUsage]], now_s: float) -> None:
    trees = read_process_trees(opened.job_id for _, opened, _ in runs)
    for run, opened, usage in runs:
        tree = trees.get(opened.job_id, ProcessTreeReading())
        if tree.cpu_s:
            usage.add_cpu(now_s, PROCESS_TREE, tree.cpu_s, tree.memory_mib)
            run.seen_s = now_s
