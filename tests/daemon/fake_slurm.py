"""A small Slurm in memory: states, strict priority order, requeue with its COMPLETING delay and begin time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from slurm_soda.policies.cpu_fit.limits import AccountingLimits
from slurm_soda.slurm_ext.client import Allocation, HeldOnNode, JobUpdate, JobUpdateResult, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.errors import PriorityPluginError, SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes
from slurm_soda.slurm_ext.read.job_request import JobRequest, PartitionLimits
from slurm_soda.slurm_ext.read.priority_parts import ShownPriority
from slurm_soda.slurm_ext.read.sacct import JobAccounting
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob

NAN = float("nan")
BEGIN_TIME_S = 121.0
COMPLETING_S = 2.0


def whole(time_s: float) -> float:
    """Slurm tells whole seconds."""
    return time_s if math.isnan(time_s) else float(math.floor(time_s))


@dataclass
class FakeClock:
    """Clocks that only tests move."""

    at_s: float = 1_700_000_000.25
    """Between two of Slurm's whole seconds, as almost always."""
    set_by_s: float = 0.0
    """By how much somebody has set the wall clock, which Slurm and sodad share."""

    def now_s(self) -> float:
        return self.at_s + self.set_by_s

    def elapsed_s(self) -> float:
        return self.at_s


@dataclass
class FakeJob:
    job_id: int
    gpus: int
    work_s: float
    submit_s: float
    checkpoint: str | None = "TERM"
    on_signal: str = "exit"
    """What its handler does: ``exit`` (saves, exits 3), ``requeue`` (itself), ``ignore``, ``finish`` (exits 0)."""
    grace_s: int | None = None
    user: str = "alice"
    name: str = "job"
    partition: str = "main"
    time_limit_s: float = 3600.0
    nice: int = 0
    state: str = "PENDING"
    reason: str = "Priority"
    priority: int = 100
    site_factor: int = 0
    points: ShownPriority | None = None
    """``None``: sprio leaves it out."""
    restarts: int = 0
    eligible_s: float = 0.0
    start_s: float = NAN
    end_s: float = NAN
    exit_code: str = "0:0"
    done_s: float = 0.0
    signals: list[str] = field(default_factory=list)
    requeued_s: list[float] = field(default_factory=list)
    cpus: int = 0
    """0: one for each GPU."""
    least_cpus: int = 1
    memory_per_cpu_mib: int = 0
    memory_mib: int = 0
    hints: Hints = field(default_factory=Hints)
    peculiar: str = ""
    refuse: str = ""
    """What Slurm says to a change of its CPUs."""
    runs: list[tuple[float, float]] = field(default_factory=list)
    completing_until_s: float = NAN
    first_submit_s: float = 0.0
    batch: bool = True
    requeue: bool = True
    whole_nodes: bool = False
    reservation: str = ""
    features: str = ""
    excluded_nodes: str = ""
    req_node_names: str = ""
    other_gres: str = ""
    extra: str = ""
    devices: tuple[int, ...] = ()
    """GPUs of its node that it gets; empty: Slurm tells nobody which."""
    guest: bool = False
    """It gets them beside the job that holds them."""
    exclusive: ExclusiveNodes = ExclusiveNodes.NOBODY
    dependency: str = ""
    never_starts: bool = False
    """For a reason that Slurm does not tell."""
    no_requeue: str = ""
    """What Slurm says to a requeue or a signal."""

    @property
    def cores(self) -> int:
        return self.cpus or self.gpus


class FakeSlurm:
    """One partition over one node; implements SlurmClient."""

    def __init__(self, clock: FakeClock, gpus: int = 4, completing_s: float = COMPLETING_S) -> None:
        self.clock, self.gpus, self.completing_s = clock, gpus, completing_s
        self.all: dict[int, FakeJob] = {}
        self._last: list[SlurmJob] = []
        self.down = False
        self.accounting: Callable[[Sequence[int]], Sequence[JobAccounting]] | None = None
        """``None``: nobody keeps accounts."""
        self.started_s = 0.0
        """When slurmctld was started."""
        self.node_cpus = 28
        self.limits = AccountingLimits()
        self.walls: str | None = ""
        """What the node's agent says is wrong with its hooks; ``None``: it says nothing of them."""
        self.unrecorded: set[int] = set()
        """Jobs of which no prolog wrote a record."""
        self.basic_priority = False
        self.silent: set[str] = set()
        """Calls that fail."""
        self.hanging: set[str] = set()
        """Calls that run out of time."""
        self.unheard: set[str] = set()
        """Calls that run out of time although Slurm does what they ask."""
        self.odd: set[int] = set()
        """Jobs whose request nobody can read."""
        self.tiers = {"main": 1}
        self.updates = 0
        self.calls: list[str] = []
        self.forget_requeues = 0
        self.end_before_requeues = 0
        """This many accepted requeues are lost, as by a slurmctld that is killed before it saved its state."""

    def submit(self, job_id: int, *, gpus: int = 1, work_s: float = 100.0, **more: object) -> FakeJob:
        now_s = self.clock.now_s()
        job = FakeJob(job_id, gpus, work_s, now_s, first_submit_s=now_s, eligible_s=now_s, **more)  # type: ignore[arg-type]
        job.priority -= job_id
        self.all[job_id] = job
        return job

    # --- the cluster's own life -----------------------------------------------------------------------------------

    def advance(self, seconds: float, step_s: float = 0.5) -> None:
        """Let time pass."""
        until_s = self.clock.at_s + seconds
        while self.clock.at_s < until_s - 1e-9:
            self.clock.at_s = min(self.clock.at_s + step_s, until_s)
            self.tick()

    def tick(self) -> None:
        now_s = self.clock.now_s()
        for job in self.all.values():
            if job.state == "RUNNING" and job.done_s + now_s - job.start_s >= job.work_s:
                self._finish(job, "COMPLETED", "0:0", job.start_s + job.work_s - job.done_s)
            if job.state == "COMPLETING" and self.clock.elapsed_s() >= job.completing_until_s:
                self._left(job)
        self._schedule()

    def _schedule(self) -> None:
        now_s = self.clock.now_s()
        eligible = [j for j in self.all.values() if j.state == "PENDING" and j.eligible_s <= now_s]
        for job in sorted(eligible, key=lambda j: (-(j.priority + j.site_factor), math.floor(j.submit_s), j.job_id)):
            if job.never_starts:
                job.reason = "Resources"
                continue
            if job.gpus > self.free() and not job.guest:
                job.reason = "Resources"
                break
            job.state, job.reason, job.start_s, job.end_s = "RUNNING", "None", now_s, NAN
            if job.requeued_s and math.floor(now_s) <= math.floor(job.requeued_s[-1]):
                job.state, job.exit_code, job.end_s = "FAILED", "1:0", now_s  # "Job credential revoked"

    def free(self) -> int:
        return self.gpus - sum(j.gpus for j in self._holding() if not j.guest)

    def _holding(self) -> list[FakeJob]:
        return [j for j in self.all.values() if j.state in ("RUNNING", "COMPLETING")]

    def _finish(self, job: FakeJob, state: str, exit_code: str, at_s: float) -> None:
        job.done_s += at_s - job.start_s
        job.runs.append((job.start_s, at_s))
        job.state, job.exit_code, job.end_s = state, exit_code, at_s

    def _left(self, job: FakeJob) -> None:
        now_s = self.clock.now_s()
        job.runs.append((job.start_s, now_s))
        self._to_queue(job)

    def _to_queue(self, job: FakeJob) -> None:
        now_s = self.clock.now_s()
        job.state, job.reason, job.submit_s, job.eligible_s = "PENDING", "BeginTime", now_s, now_s + BEGIN_TIME_S
        job.start_s, job.end_s = NAN, NAN

    def shown(self) -> list[tuple[object, ...]]:
        """What wakes a daemon when it changes: jobs that come, start, end and go back to the queue."""
        return [(job.job_id, job.state, job.reason, job.restarts) for job in self.all.values()]

    # --- SlurmClient ----------------------------------------------------------------------------------------------

    def jobs(self) -> list[SlurmJob]:
        """As from a client: of a job that is as it was, the same object as before."""
        self._answer("jobs")
        records = [self._record(job) for job in sorted(self.all.values(), key=lambda j: j.job_id)]
        last = {record: record for record in self._last}
        self._last = [last.get(record, record) for record in records]
        return list(self._last)

    def nodes(self) -> list[SlurmNode]:
        self._answer("nodes")
        used = self.gpus - self.free()
        in_use = tuple(sorted(at for j in self._holding() if not j.guest for at in j.devices))
        return [
            SlurmNode(
                "n1", "MIXED", True, self.node_cpus, used, 64_000, 0, self.gpus, used, "", ("main",),
                gpus_in_use=in_use if len(in_use) == used else None,
                shareable=tuple(range(self.gpus)),
            ),
        ]  # fmt: skip

    def waiting_jobs(self) -> dict[int, WaitingJob]:
        self._answer("waiting_jobs")
        return {
            j.job_id: WaitingJob(
                j.job_id, j.batch, j.whole_nodes, j.least_cpus, j.reservation, 0, j.features, j.excluded_nodes
            )
            for j in self.all.values()
            if j.state == "PENDING"
        }

    def site_factors(self) -> dict[int, int]:
        self._answer("site_factors")
        if self.basic_priority:
            raise PriorityPluginError("priority/basic")
        return {j.job_id: j.site_factor for j in self.all.values() if j.state == "PENDING" and j.site_factor}

    def priority_parts(self) -> dict[int, ShownPriority]:
        self._answer("priority_parts")
        return {job.job_id: job.points for job in self.all.values() if job.state == "PENDING" and job.points}

    def most_earned_priority(self) -> int:
        self._answer("most_earned_priority")
        return 11_000

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation | SlurmReplyError]:
        self._answer("allocations")
        held = ((i, self.all[i]) for i in job_ids)
        return {i: [HeldOnNode("n1", j.gpus, j.gpus, *((), j.devices)[:: 1 if j.guest else -1])] for i, j in held}

    def extras(self, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        self._answer("extras")
        return {job_id: self.all[job_id].extra for job_id in job_ids if job_id in self.all}

    def array_throttles(self, arrays: Sequence[int]) -> dict[int, int | SlurmReplyError]:
        self._answer("array_throttles")
        return dict.fromkeys(arrays, 0)

    def request(self, job_id: int) -> JobRequest:
        self._answer("request")
        if job_id in self.odd:
            raise SlurmReplyError(f"scontrol's picture of job {job_id} cannot be read")
        job = self.all[job_id]
        return JobRequest(
            job_id, 1, 1, 1, 0, job.cores, job.cores, job.least_cpus, job.memory_per_cpu_mib, job.memory_mib,
            peculiar=job.peculiar,
        )  # fmt: skip

    def partition_limits(self) -> dict[str, PartitionLimits]:
        self._answer("partition_limits")
        return {"main": PartitionLimits("main")}

    def accounting_limits(self) -> AccountingLimits:
        self._answer("accounting_limits")
        return self.limits

    def partition_tiers(self) -> dict[str, int]:
        self._answer("partition_tiers")
        return dict(self.tiers)

    def update(self, updates: Sequence[JobUpdate]) -> list[JobUpdateResult]:
        self._answer("update")
        results = [JobUpdateResult(update.job_id, self._update(update)) for update in updates]
        if "update" in self.unheard:
            raise SlurmCommandError(("update",), None, "", "wait until slurmctld is back")
        return results

    def _update(self, update: JobUpdate) -> str:
        self.updates += 1
        job = self.all[update.job_id]
        for name, value in update.fields:
            if name == "SiteFactor":
                if job.state != "PENDING":
                    return "Job is no longer pending execution"
                job.site_factor = int(value)
            elif job.state != "PENDING" and name != "StartTime":
                return "Job is no longer pending execution"
            elif job.refuse and name != "StartTime":
                return job.refuse
            elif name == "NumCPUs":
                job.cpus = int(value)
            elif name == "MinCPUsNode":
                job.least_cpus = int(value)
            elif name == "MinMemoryNode":
                job.memory_mib, job.memory_per_cpu_mib = int(value), 0
            elif name == "MinMemoryCPU":
                job.memory_mib, job.memory_per_cpu_mib = 0, int(value)
            elif name == "StartTime" and job.state == "PENDING":
                job.eligible_s, job.reason = self.clock.now_s(), "None"
        return ""

    def signal(self, job_id: int, signal: str) -> None:
        self._answer("signal")
        job = self.all[job_id]
        self._refuse(job)
        if job.state != "RUNNING":
            raise SlurmCommandError(("scancel",), 1, "Invalid job id specified", "nothing to do")
        job.signals.append(signal)
        now_s = self.clock.now_s()
        if job.on_signal == "exit":
            self._finish(job, "FAILED", "3:0", now_s)
        elif job.on_signal == "finish":
            self._finish(job, "COMPLETED", "0:0", now_s)
        elif job.on_signal == "requeue":
            self.requeue(job_id)

    def requeue(self, job_id: int, *, ended: bool = False) -> None:
        self._answer("requeue")
        job = self.all[job_id]
        self._refuse(job)
        if job.state == "PENDING":
            raise SlurmCommandError(("scontrol",), 1, "Job is pending execution", "nothing to do")
        if job.state != "RUNNING" and not ended:
            return
        if self.end_before_requeues:
            self.end_before_requeues -= 1
            self._finish(job, "COMPLETED", "0:0", self.clock.now_s())
            return
        if self.forget_requeues:
            self.forget_requeues -= 1
            return
        now_s = self.clock.now_s()
        job.restarts += 1
        job.requeued_s.append(now_s)
        if job.state != "RUNNING":
            self._to_queue(job)
            return
        job.done_s += now_s - job.start_s
        job.state, job.completing_until_s = "COMPLETING", self.clock.elapsed_s() + self.completing_s

    def fail_node(self, job_id: int) -> None:
        """The job's node is set down, and is back at once: the job waits again without a COMPLETING phase."""
        self.all[job_id].restarts += 1
        self._left(self.all[job_id])

    def boot_s(self) -> float:
        return self.started_s

    def version(self) -> str:
        return "24.11.5"

    def _refuse(self, job: FakeJob) -> None:
        said = job.no_requeue if job.batch else "Requested operation is presently disabled"
        if said:
            raise SlurmCommandError(("scontrol",), 1, said, "nothing to do")

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        if call in self.hanging:
            raise SlurmCommandError((call,), None, "", "wait until slurmctld is back")
        if self.down or call in self.silent:
            raise SlurmCommandError((call,), 1, "Unable to contact slurm controller", "wait until slurmctld is back")

    def _record(self, job: FakeJob) -> SlurmJob:
        holds = job.state in ("RUNNING", "COMPLETING")
        return SlurmJob(
            job_id=job.job_id, array_job_id=0, array_task="", state=job.state, reason=job.reason, user=job.user,
            uid=1000, account="acc", partition=job.partition, qos="normal", name=job.name, comment="",
            submit_s=whole(job.submit_s), eligible_s=whole(job.eligible_s), start_s=whole(job.start_s),
            end_s=whole(job.end_s), time_limit_s=job.time_limit_s,
            priority=job.priority + job.site_factor, nice=job.nice, restarts=job.restarts, nodes=1, cpus=job.cores,
            cpus_per_task=job.cores, memory_mib=job.memory_mib or job.cores * job.memory_per_cpu_mib,
            gpus=job.gpus, gpus_per_node=0, gpu_type="",
            node_names="n1" if holds or job.exit_code != "0:0" or not math.isnan(job.end_s) else "",
            exit_code=job.exit_code, dependency=job.dependency, batch=job.batch, requeue=job.requeue,
            req_node_names=job.req_node_names or "n1" * job.guest,
            tres_per_node=",".join(f"gres/sharedgpu:g{at}:1" for at in job.devices) if job.guest
            else job.other_gres or (f"gres/gpu:{job.gpus}" if job.gpus else ""),
            hints=replace(job.hints, checkpoint_signal=job.checkpoint, checkpoint_grace_s=job.grace_s),
            shared_gpus=job.gpus if job.guest else 0, exclusive=job.exclusive,
        )  # fmt: skip
