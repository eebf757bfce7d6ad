"""How much of its GPUs' time each run uses, alone and beside others, by NVML's samples of processes.

It is a hint of slowdowns, and no more, for jobs that tell no progress (docs/progress.md). So a reading that cannot be
attributed to runs as a whole counts for nobody: a sample names a process of none of them (an MPS server, or a guest of
which this agent has not heard yet).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.sampling.gpus import Gpus
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.wire.records import JobOpened

SHORTEST_GAP_S = 1.5
"""Between two readings: NVML takes a sample a second at least, so that who computes all the time has one in each."""
GAP_READINGS = 3.0
"""What was used in a gap of more readings counts for nobody."""


class SmUseCounter:
    """Adds what runs used between two readings to their sums, if they had the same others beside them at both.

    A run counts from when it first computes, and beside others from when all of them have: while one loads its data, the
    others are as fast as alone.
    """

    def __init__(self, gpus: Gpus, job_processes: JobProcesses, interval_s: float) -> None:
        """``interval_s``: between two calls of :meth:`count`, mostly."""
        self._gpus, self._job_processes = gpus, job_processes
        self._longest_gap_s = GAP_READINGS * max(interval_s, SHORTEST_GAP_S)
        self._read_s = float("-inf")
        self._before: dict[RunKey, tuple[float, tuple[int, ...]]] = {}
        """When runs were read last, and beside whom."""

    def count(self, runs: Iterable[NodeRun], now_s: float) -> None:
        """Take a reading of the runs that are under way on this node, unless the last one was a moment ago.

        Args:
            runs: all of them.
            now_s: by a steady clock.
        """
        if now_s - self._read_s < SHORTEST_GAP_S:
            return
        self._read_s = now_s
        on_gpus = [(run, run.opened) for run in runs if run.opened is not None and run.opened.gpus]
        used_by = self._read([opened for _, opened in on_gpus])
        before, self._before = self._before, {}
        computing = set()
        for run, opened in on_gpus:
            used = [used_by[index][opened.job_id] for index in opened.gpus if index in used_by]
            if run.usage is None or len(used) < len(opened.gpus):
                continue
            beside = tuple(sorted({one.job_id for _, one in on_gpus if one != opened and _meet(one, opened)}))
            read_s, had_before = before.get(run.key, (float("-inf"), ()))
            covered_s = now_s - read_s if beside == had_before and now_s - read_s <= self._longest_gap_s else 0.0
            if run.usage.sm_uses or any(used):
                run.usage.add_sm_use(beside, covered_s, sum(used) / len(used))
                computing.add(opened.job_id)
                self._before[run.key] = (now_s, beside)
        self._before = {
            key: (read_s, beside) for key, (read_s, beside) in self._before.items() if computing.issuperset(beside)
        }

    def _read(self, opened: Sequence[JobOpened]) -> dict[int, dict[int, float]]:
        """Part of each GPU's time that each job on it used, by index and job id; without GPUs of which nobody can tell."""
        indices = {index for one in opened for index in one.gpus}
        samples = {index: found for index in indices if (found := self._gpus.process_use(index)) is not None}
        processes = self._job_processes.processes(opened) if samples else {}
        used_by = {}
        for index, found in samples.items():
            used = {one.job_id: 0.0 for one in opened if index in one.gpus}
            for job_id in used:
                used[job_id] = min(sum(found.pop(pid) for pid in processes[job_id] & found.keys()), 1.0)
            if not any(found.values()):
                used_by[index] = used
        return used_by


def _meet(one: JobOpened, other: JobOpened) -> bool:
    return not set(one.gpus).isdisjoint(other.gpus)
