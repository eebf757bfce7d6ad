"""Records that prolog, epilog and agent write and the controller reads.

Every record is one JSON object a line. Unknown keys are ignored by readers, so that nodes and controller can be upgraded
apart; :data:`WIRE_VERSION` changes when a key changes its meaning.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.gpu_use import RunGpuUse
from slurm_soda.wire.hook_settings import HookSettings
from slurm_soda.wire.json_fields import decode_json
from slurm_soda.wire.memory_bandwidth import NodeBandwidth
from slurm_soda.wire.mps import MAX_MPS_FAULTS, MAX_MPS_JOBS, MpsFault, MpsJob
from slurm_soda.wire.node_use import NodeUse
from slurm_soda.wire.run_fields import MAX_GPUS, MAX_ITERATIONS, MAX_JOB_ID, RunFields
from slurm_soda.wire.walls import NodeWalls

WIRE_VERSION = 1

MAX_REPORT_BYTES = 4 << 20
MAX_RECORDS = 4096
"""Openings, closings and usages in one report, each."""
MAX_FAULTS = 64
MAX_FAULT_LENGTH = 400
MAX_NODES = 1_000_000
MAX_SM_USES = 16
"""Sets of co-runners of one run on one node that are kept apart: the newest ones."""
MAX_CO_RUNNERS = 16


@dataclass(frozen=True, slots=True)
class JobOpened:
    """Prolog's record: a run of a job began on this node. Times are Unix seconds."""

    job_id: int
    restart: int
    """SLURM_RESTART_COUNT: 0 for the first run. With ``job_id`` it names a run."""
    node: str
    uid: int
    user: str
    partition: str
    at_s: float
    gpus: tuple[int, ...]
    """Absolute indices of the job's GPUs on this node (SLURM_JOB_GPUS)."""
    cpus: int
    hints: dict[str, str] = field(default_factory=dict)
    nodes: int = 1
    """Nodes of the job's allocation, this one included; 0 if that is not known."""

    @classmethod
    def from_dict(cls, data: object) -> JobOpened:
        """Check and take one opening that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("opened", data)
        return cls(
            job_id=read.job_id(),
            restart=read.restart(),
            node=read.name("node"),
            uid=read.whole("uid", 0, 0xFFFF_FFFF),
            user=read.text("user", 255),
            partition=read.text("partition", 1024),
            at_s=read.unix_s("at_s"),
            gpus=read.wholes("gpus", MAX_GPUS, 0, 65_535),
            cpus=read.cpus("cpus", 0),
            hints=read.text_map("hints", 32, 256),
            nodes=read.whole("nodes", 0, MAX_NODES, 1),
        )


@dataclass(frozen=True, slots=True)
class JobClosed:
    """Epilog's record: the run ended on this node."""

    job_id: int
    restart: int
    node: str
    at_s: float
    exit_code: str = ""
    """``code:signal`` as Slurm gives it."""

    @classmethod
    def from_dict(cls, data: object) -> JobClosed:
        """Check and take one closing that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("closed", data)
        return cls(
            job_id=read.job_id(),
            restart=read.restart(),
            node=read.name("node"),
            at_s=read.unix_s("at_s"),
            exit_code=read.text("exit_code", 16, ""),
        )


@dataclass(frozen=True, slots=True)
class SmUse:
    """How much of its GPUs' time one run used on one node, alone or beside the same jobs all the time.

    Only a hint: kernels of a run that shares its GPUs may run longer, and several at once, without any more work being done.
    """

    co_runners: tuple[int, ...] = ()
    """Ids of the jobs on its GPUs there, ascending; none: it was alone."""
    covered_s: float = 0.0
    """For how long it was seen so."""
    busy_s: float = 0.0
    """:attr:`covered_s`, each second times the part of the GPUs' time in which a kernel of its processes ran."""

    @classmethod
    def from_dict(cls, data: object) -> SmUse:
        """Check and take one use that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("use of GPUs", data)
        covered_s = read.unix_s("covered_s")
        return cls(
            read.wholes("co_runners", MAX_CO_RUNNERS, 1, MAX_JOB_ID), covered_s, read.number("busy_s", 0, covered_s)
        )


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What one run used on one node so far; cumulative, so that a lost or doubled report does no harm."""

    job_id: int
    restart: int
    node: str
    first_s: float
    last_s: float
    samples: int
    gpu_util_ratio: float
    """Time-weighted mean utilisation of the run's GPUs on this node, 0 to 1."""
    gpu_util_last_ratio: float
    gpu_memory_peak_mib: float
    """Largest sum over the run's GPUs on this node."""
    gpu_count: int
    cpu_s: float
    memory_peak_mib: float
    cpu_source: str = ""
    """Where CPU seconds and memory came from: ``cgroup/v1``, ``cgroup/v2`` or ``process tree``."""
    sm_uses: tuple[SmUse, ...] = ()
    """The last one is of now."""

    @classmethod
    def from_dict(cls, data: object) -> JobUsage:
        """Check and take one usage that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("usage", data)
        return cls(
            job_id=read.job_id(),
            restart=read.restart(),
            node=read.name("node"),
            first_s=read.unix_s("first_s"),
            last_s=read.unix_s("last_s"),
            samples=read.whole("samples", 0, 1 << 40),
            gpu_util_ratio=read.ratio("gpu_util_ratio"),
            gpu_util_last_ratio=read.ratio("gpu_util_last_ratio"),
            gpu_memory_peak_mib=read.number("gpu_memory_peak_mib"),
            gpu_count=read.whole("gpu_count", 0, MAX_GPUS),
            cpu_s=read.number("cpu_s"),
            memory_peak_mib=read.number("memory_peak_mib"),
            cpu_source=read.text("cpu_source", 32, ""),
            sm_uses=tuple(SmUse.from_dict(item) for item in read.objects("sm_uses", MAX_SM_USES)),
        )


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """How far a run says that it is; the newest line of its progress file on one node."""

    job_id: int
    restart: int
    node: str
    first_s: float
    """When the run was opened; with the three above it names a run on a node."""
    at_s: float
    """When the agent found the line."""
    clock_s: float
    """When it was written, by a steady clock of the node: only differences mean something."""
    idle_s: float
    """For how long after :attr:`at_s` the agent looked and found the same line."""
    iterations: float
    """Done so far, over all runs of the job."""
    total: float = 0.0
    """Iterations of the whole training; 0: not said."""
    saved: float = -1.0
    """Iteration of its newest checkpoint; negative: none."""
    batch: int = 0
    """Samples per iteration and GPU; 0: not said."""

    @classmethod
    def from_dict(cls, data: object) -> ReportedProgress:
        """Check and take one progress that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("progress", data)
        return cls(
            job_id=read.job_id(),
            restart=read.restart(),
            node=read.name("node"),
            first_s=read.unix_s("first_s"),
            at_s=read.unix_s("at_s"),
            clock_s=read.unix_s("clock_s"),
            idle_s=read.unix_s("idle_s"),
            iterations=read.number("iterations", 0, MAX_ITERATIONS),
            total=read.number("total", 0, MAX_ITERATIONS, 0.0),
            saved=read.number("saved", -1.0, MAX_ITERATIONS, -1.0),
            batch=read.whole("batch", 0, int(MAX_ITERATIONS), 0),
        )


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One upload of an agent: its identity, what happened, and the present usage of every run it knows."""

    node: str
    agent_id: str
    """Random per agent start."""
    seq: int
    sent_s: float
    opened: tuple[JobOpened, ...] = ()
    closed: tuple[JobClosed, ...] = ()
    usage: tuple[JobUsage, ...] = ()
    gpu_count: int = 0
    faults: tuple[str, ...] = ()
    """What prolog, epilog or agent could not do, for ``sodactl status``."""
    core_measurements: tuple[CoreMeasurement, ...] = ()
    """Finished since the last report that was taken; one that comes twice is the same again."""
    core_fits: tuple[CoreFit, ...] = ()
    """Searches that ended since then."""
    progress: tuple[ReportedProgress, ...] = ()
    """Of the runs that tell it."""
    mps_jobs: tuple[MpsJob, ...] = ()
    """Jobs under NVIDIA MPS now; who is not among them has its GPUs alone or in turns with others."""
    mps_faults: tuple[MpsFault, ...] = ()
    """Seen since the last report that was taken."""
    hooks: tuple[HookSettings, ...] = ()
    """Settings of prolog and epilog for sharing GPUs; empty from an agent that does not tell."""
    walls: tuple[NodeWalls, ...] = ()
    """At most one; none from an agent that cannot tell."""
    bandwidth: tuple[NodeBandwidth, ...] = ()
    """At most one; none where it is not measured now, or from an agent that does not tell."""
    use: tuple[NodeUse, ...] = ()
    """At most one, for the site's monitoring; none from an agent that does not tell."""
    gpu_uses: tuple[RunGpuUse, ...] = ()
    """Of runs that are over, and now and then of others."""
    version: int = WIRE_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> NodeReport:
        """Check and take one report that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("report", data)
        version = read.whole("version", 1, 1 << 30, WIRE_VERSION)
        if version != WIRE_VERSION:
            remedy = "upgrade the controller" if version > WIRE_VERSION else "upgrade the node"
            raise RecordError(f"report: version is {version}; this end reads version {WIRE_VERSION}: {remedy}")
        return cls(
            node=read.name("node"),
            agent_id=read.name("agent_id"),
            seq=read.whole("seq", 0, 1 << 53),
            sent_s=read.unix_s("sent_s"),
            opened=tuple(JobOpened.from_dict(item) for item in read.objects("opened", MAX_RECORDS)),
            closed=tuple(JobClosed.from_dict(item) for item in read.objects("closed", MAX_RECORDS)),
            usage=tuple(JobUsage.from_dict(item) for item in read.objects("usage", MAX_RECORDS)),
            gpu_count=read.whole("gpu_count", 0, MAX_GPUS, 0),
            faults=read.texts("faults", MAX_FAULTS, MAX_FAULT_LENGTH),
            core_measurements=tuple(
                CoreMeasurement.from_dict(item) for item in read.objects("core_measurements", MAX_RECORDS)
            ),
            core_fits=tuple(CoreFit.from_dict(item) for item in read.objects("core_fits", MAX_RECORDS)),
            progress=tuple(ReportedProgress.from_dict(item) for item in read.objects("progress", MAX_RECORDS)),
            mps_jobs=tuple(MpsJob.from_dict(item) for item in read.objects("mps_jobs", MAX_MPS_JOBS)),
            mps_faults=tuple(MpsFault.from_dict(item) for item in read.objects("mps_faults", MAX_MPS_FAULTS)),
            walls=tuple(NodeWalls.from_dict(item) for item in read.objects("walls", 1)),
            bandwidth=tuple(NodeBandwidth.from_dict(item) for item in read.objects("bandwidth", 1)),
            hooks=tuple(HookSettings.from_dict(item) for item in read.objects("hooks", 1)),
            use=tuple(NodeUse.from_dict(item) for item in read.objects("use", 1)),
            gpu_uses=tuple(RunGpuUse.from_dict(item) for item in read.objects("gpu_uses", MAX_RECORDS)),
        )

    @classmethod
    def from_json(cls, body: bytes) -> NodeReport:
        """Check and take one report as it came over the network.

        Raises:
            RecordError: as :meth:`from_dict`, or the body is too long or no JSON.
        """
        return cls.from_dict(decode_json(body, MAX_REPORT_BYTES, "report"))
