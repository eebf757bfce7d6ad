"""A scontrol that keeps partitions in memory, says them as Slurm 24.11 does, and refuses what Slurm refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_soda.slurm_ext.client import JobUpdate, JobUpdateResult, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from tests.sodactl.conftest import MemorySlurm

FRESH = (
    "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE DisableRootJobs=NO"
    " ExclusiveUser=NO ExclusiveTopo=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=1 LLN=NO"
    " MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED Nodes= PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO"
    " OverSubscribe=NO OverTimeLimit=NONE PreemptMode=REQUEUE State=UP TotalCPUs=56 TotalNodes=2 SelectTypeParameters=NONE"
    " JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=56,mem=125G,node=2,gres/gpu=8"
)
CONFIG = {
    "SelectType": "select/cons_tres", "PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE",
    "JobSubmitPlugins": "lua", "JobRequeue": "1", "KillWait": "10 sec", "SlurmctldHost[0]": "ctl",
    "SchedulerParameters": "preempt_youngest_first",
}  # fmt: skip


def partition(**changes: str) -> dict[str, str]:
    """What Slurm shows of a partition with these settings."""
    return dict(word.split("=", 1) for word in FRESH.split()) | changes


def detail(
    *, batch: int = 1, shared: str = "OK", cpus: int = 4, reservation: str = "(null)", most_nodes: int = 1,
    features: str = "(null)", excluded: str = "", per_tres: str = "N/A",
) -> str:  # fmt: skip
    """What Slurm 24.11's squeue says of a waiting job; it does not know the field Exclusive."""
    return f"{batch}|{shared}||{cpus}|{reservation}|{most_nodes}|{features}|{excluded}|{per_tres}"


@dataclass
class Scontrol:
    """A runner for scontrol's partitions and configuration."""

    partitions: dict[str, dict[str, str]] = field(
        default_factory=lambda: {"gpu": partition(Default="YES", Nodes="n[1-2]", MinNodes="0", DefaultTime="01:00:00")}
    )
    config: dict[str, str] = field(default_factory=lambda: dict(CONFIG))
    used: set[str] = field(default_factory=set)
    """Partitions with jobs, which cannot be deleted."""
    refuse_after: int = 10**6
    """So many changes go through."""
    sent: list[tuple[str, ...]] = field(default_factory=list)
    waiting: dict[int, str] = field(default_factory=dict)
    """What squeue says of waiting jobs, as :func:`detail` makes it."""
    bound: str = ""
    """What sacctmgr says of associations' partitions."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        marked = argv[0] == "sh"
        words = tuple(argv[4:] if marked else argv)
        status, out, err = self._squeue(env) if words[0] == "squeue" else self._answer(words)
        mark = env.get("SODA_END_MARK", "") if marked and status == 0 else ""
        return CompletedCommand(tuple(argv), status, (out + mark).encode("utf-8", "surrogateescape"), err.encode())

    def _squeue(self, env: Mapping[str, str]) -> tuple[int, str, str]:
        """The details, with the separators that were asked for."""
        field_end, record_end = (env["SQUEUE_FORMAT2"].split(",")[at].split(":", 1)[1] for at in (0, -1))
        lines = (f"{job_id}|{of}".replace("|", field_end) for job_id, of in self.waiting.items())
        return 0, "".join(f"{line}{record_end}\n" for line in lines), ""

    def _answer(self, words: tuple[str, ...]) -> tuple[int, str, str]:
        if words[0] == "sacctmgr":
            return 0, self.bound, ""
        if words == ("scontrol", "ping"):
            return 0, "Slurmctld(primary) at ctl is UP\n", ""
        if words[:2] == ("scontrol", "--version") or words[:3] == ("scontrol", "-o", "show") or words[0] != "scontrol":
            return 1, "", f"{words[0]}: not here"
        if words[-2:] == ("show", "config"):
            return 0, "Configuration data\n" + "".join(f"{key:<20} = {v}\n" for key, v in self.config.items()), ""
        if words[-2:] == ("show", "partition"):
            lines = (
                f"PartitionName={name} " + " ".join(f"{k}={v}" for k, v in of.items())
                for name, of in self.partitions.items()
            )
            return 0, "\n".join(lines) + "\n", ""
        return self._change(words)

    def _change(self, words: tuple[str, ...]) -> tuple[int, str, str]:
        if len(self.sent) >= self.refuse_after:
            return 1, "", "slurm_update error: Invalid node name specified"
        self.sent.append(words)
        _, verb, name, *settings = words
        name = name.removeprefix("PartitionName=")
        if (name in self.partitions) == (verb == "create"):
            return 1, "", f"Partition {name}: Invalid partition name specified"
        if verb == "delete":
            if name in self.used:
                return 1, "", f"delete_partition PartitionName={name}: Partition is in use"
            del self.partitions[name]
            return 0, "", ""
        given = dict(setting.split("=", 1) for setting in settings)
        self.partitions[name] = (partition() if verb == "create" else self.partitions[name]) | given
        return 0, "", ""


@dataclass
class QueueOfPartitions(MemorySlurm):
    """A queue whose jobs can be moved, on two nodes with four GPUs and 28 cores."""

    machines: list[SlurmNode] = field(default_factory=lambda: [machine("n1"), machine("n2")])

    def nodes(self) -> list[SlurmNode]:
        self._answer()
        return list(self.machines)

    def _apply(self, update: JobUpdate) -> JobUpdateResult:
        result = super()._apply(update)
        partition = dict(update.fields).get("Partition")
        if partition and not result.error:
            self.queue = [self._moved(job, partition) if job.job_id == update.job_id else job for job in self.queue]
        return result

    @staticmethod
    def _moved(job: SlurmJob, partition: str) -> SlurmJob:
        return replace(job, partition=partition)


def machine(name: str, gpus: int = 4, cpus: int = 28, gpu_type: str = "a100") -> SlurmNode:
    """An idle node."""
    return SlurmNode(name, "IDLE", True, cpus, 0, 64000, 0, gpus, 0, gpu_type, ("gpu",))
