"""The small Slurm with partitions of pools: jobs list some, run in one, and are aborted from borrowing ones."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable, plan_pool_partitions
from slurm_soda.slurm_ext.client import JobUpdate, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.pools.pools_record import POOLS_RECORD_NAME, PoolsPhase, PoolsRecord, record_document
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules
from slurm_soda.slurm_ext.read.sacct import JobAccounting, RunAccounting
from tests.daemon.fake_slurm import FakeJob, FakeSlurm, whole

OWN, LEND, BOTH = "main_cpu", "main_cpu_lend", "main_cpu,main_cpu_lend"
NODE = NodeClass("", 4, 28)


def table(cpu_cores: int = 16) -> PoolTable:
    return plan_pool_partitions("main", 10, 1, [("n1", NODE)], {NODE: PoolShare(cpu_cores, 0)})


def put_in_force(
    pools: PoolTable,
    state_dir: Path,
    shares: Mapping[NodeClass, PoolShare] | None = None,
    *,
    phase: PoolsPhase = "applied",
    sent: Sequence[str] = (),
) -> None:
    """``sent``: all partitions of ours, where some of them go."""
    bases = {"main": dict[str, str]()} if sent else {}
    record = PoolsRecord(phase, pools, shares or {}, RoutingRules(), {name: {} for name in sent}, bases=bases)
    (state_dir / POOLS_RECORD_NAME).write_text(json.dumps(record_document(record)))


class PoolSlurm(FakeSlurm):
    """CPU jobs run at once, in the partition that a test names; GPU jobs as in the small Slurm."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self.lists: dict[int, str] = {}
        self.ran_in: dict[int, str] = {}
        self.node_state = "MIXED"
        self.bases: tuple[str, ...] = ("main",)
        """Partitions of the site that have a node now."""
        self.refuses_start = False
        """Begin times are not taken."""
        self.refused_lists: set[str] = set()
        """Lists of partitions that Slurm does not take."""
        self.accounting = self.sacct
        self.ends: dict[tuple[int, int], str] = {}
        """What accounting calls runs that were requeued, by job and restart count."""

    def submit_cpu(self, job_id: int, cpus: int = 4, partitions: str = BOTH, **more: object) -> FakeJob:
        self.lists[job_id] = partitions
        return self.submit(job_id, gpus=0, work_s=1e6, cpus=cpus, checkpoint=None, **more)

    def start_in(self, job_id: int, partition: str) -> None:
        """As Slurm does when it starts a job, where ``advance`` would not have."""
        assert partition in self.lists[job_id].split(",")
        self.ran_in[job_id] = partition

    def abort(self, job_id: int, how: str = "PREEMPTED") -> None:
        """What Slurm makes of a job whose cores a job of a higher tier takes; ``how`` a run ends only accounting tells."""
        self.ends[job_id, self.all[job_id].restarts] = how
        job, now_s = self.all[job_id], self.clock.now_s()
        assert job.state == "RUNNING"
        ran_in = self.ran_in[job_id]
        others = [name for name in self.lists[job_id].split(",") if name != ran_in]
        self.lists[job_id] = ",".join([ran_in, *others])
        job.restarts += 1
        job.runs.append((job.start_s, now_s))
        job.requeued_s.append(now_s)
        self._to_queue(job)

    def sacct(self, job_ids: Sequence[int]) -> list[JobAccounting]:
        """What accounting says of these jobs."""
        self._answer("sacct")
        return [self._accounts(self.all[job_id]) for job_id in job_ids]

    def _accounts(self, job: FakeJob) -> JobAccounting:
        runs = [(*run, self.ends.get((job.job_id, restart), "REQUEUED")) for restart, run in enumerate(job.runs)]
        if job.state == "RUNNING":
            runs.append((job.start_s, math.nan, job.state))
        told = [
            RunAccounting(whole(start_s), whole(end_s), state, "0:0", 0.0, math.nan, 0, job.cpus, 1, "n1", restart)
            for restart, (start_s, end_s, state) in enumerate(runs)
        ]
        return JobAccounting(job.job_id, job.user, whole(job.first_submit_s), job.state, job.exit_code, tuple(told))

    def nodes(self) -> list[SlurmNode]:
        partitions = (*self.bases, "main_cpu", "main_cpu_lend", "main_large", "main_small")
        return [replace(node, state=self.node_state, partitions=partitions) for node in super().nodes()]

    def _update(self, update: JobUpdate) -> str:
        if self.refuses_start and "StartTime" in dict(update.fields):
            return "Requested start time is invalid"
        rest = tuple((name, value) for name, value in update.fields if name != "Partition")
        for name, value in update.fields:
            if name == "Partition":
                if self.all[update.job_id].state != "PENDING":
                    return "Job is no longer pending execution"
                if value in self.refused_lists:
                    return "Invalid partition name specified"
                self.lists[update.job_id] = value
        return super()._update(JobUpdate(update.job_id, rest))

    def _record(self, job: FakeJob) -> SlurmJob:
        record = super()._record(job)
        if job.job_id not in self.lists:
            return replace(record, partition="main_small")
        listed = self.lists[job.job_id]
        runs_in = self.ran_in.get(job.job_id, listed.split(",")[0])
        shown = listed if job.state == "PENDING" else runs_in
        return replace(record, partition=shown, cpus=job.cpus, start_s=whole(job.start_s))
