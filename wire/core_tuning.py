"""What an agent tells of the cores that it gives to running jobs, and what sodad orders for jobs on several nodes.

An agent searches alone for a job on one node, and tells measurements and fits for the record. The nodes of a job on
several are searched as one, by sodad: every agent measures with the cores that it set, sodad puts the measurements of all
nodes with the same ``search`` and ``step`` together, and answers reports with its latest order for each such job
until it has the next measurements. Orders are states, not commands: an agent that has carried one out does nothing more.
Step 0 needs no order: it is the measurement with the cores that the job has.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from slurm_soda.wire.json_fields import JsonFields, decode_json
from slurm_soda.wire.run_fields import MAX_GPUS, MAX_JOB_ID, MAX_STEPS, RunFields

MAX_ANSWER_BYTES = 1 << 20
MAX_ORDERS = 4096
MAX_GUESTS = 1024
"""Runs beside others on one node."""
MAX_LEFT_OUT = 4096
"""Jobs on one node."""


@dataclass(frozen=True, slots=True)
class CoreMeasurement:
    """Mean GPU utilisation of one run on one node with one number of cores, over one step."""

    job_id: int
    restart: int
    node: str
    at_s: float
    """End of the step, Unix seconds."""
    search: int
    """0 for the run's first search, one more for each later phase."""
    step: int
    """0 with the cores that the job had when the search began, then 1 and on. A step that was repeated has the same."""
    cores: int
    """On this node, as read back from what was set."""
    limit: int
    """The most cores that may be set on this node: the allocation."""
    gpus: int
    """The run's GPUs on this node."""
    utilisation_ratio: float
    """Mean over the step and those GPUs, 0 to 1."""
    spread_ratio: float
    """Standard deviation of the samples; the mean's standard error is this over the root of their number."""
    samples: int

    @classmethod
    def from_dict(cls, data: object) -> CoreMeasurement:
        """Check and take one measurement that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("core measurement", data)
        return cls(
            job_id=read.job_id(),
            restart=read.restart(),
            node=read.name("node"),
            at_s=read.unix_s("at_s"),
            search=read.search(),
            step=read.step(),
            cores=read.cpus("cores"),
            limit=read.cpus("limit"),
            gpus=read.whole("gpus", 1, MAX_GPUS),
            utilisation_ratio=read.ratio("utilisation_ratio"),
            spread_ratio=read.ratio("spread_ratio"),
            samples=read.whole("samples", 1, 1_000_000),
        )


@dataclass(frozen=True, slots=True)
class CoreFit:
    """How a search on one node ended; of a job on several nodes every node tells one."""

    job_id: int
    restart: int
    node: str
    at_s: float
    search: int
    start_cores: int
    """On this node, when the search began."""
    limit: int
    """The most that could be tried on this node."""
    cores: int
    """What the job has now on this node."""
    gpus: int
    """The run's GPUs on this node."""
    steps: int
    """Measurements after the first."""
    start_ratio: float
    """Utilisation with the cores at the start."""
    utilisation_ratio: float
    """Utilisation with ``cores``, or what a concave curve through the measurements has at least."""
    reason: str
    """``best_fit``, ``measured``, ``kept``, ``independent`` and ``idle`` as
    :class:`slurm_soda.policies.cpu_fit.core_search.SettleReason` names them; ``cut_short`` where no more orders came or the
    cores could not be set. Only ``best_fit``, ``measured`` and ``kept`` say how many cores the job needs."""

    @classmethod
    def from_dict(cls, data: object) -> CoreFit:
        """Check and take one fit that came from outside.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("core fit", data)
        return cls(
            job_id=read.job_id(),
            restart=read.restart(),
            node=read.name("node"),
            at_s=read.unix_s("at_s"),
            search=read.search(),
            start_cores=read.cpus("start_cores"),
            limit=read.cpus("limit"),
            cores=read.cpus("cores"),
            gpus=read.whole("gpus", 1, MAX_GPUS),
            steps=read.whole("steps", 0, MAX_STEPS),
            start_ratio=read.ratio("start_ratio"),
            utilisation_ratio=read.ratio("utilisation_ratio"),
            reason=read.text("reason", 32),
        )


@dataclass(frozen=True, slots=True)
class CoreOrder:
    """What sodad wants of one node for a run on several nodes."""

    job_id: int
    restart: int
    search: int
    """A number above the agent's own begins a new search: another node saw another phase."""
    step: int
    """The measurement that is wanted next; of a settled search the number of its last one."""
    cores: int
    """To be set on this node."""
    settled: bool = False
    """Keep these cores and watch; ``reason`` says why."""
    reason: str = ""

    @classmethod
    def from_dict(cls, data: object) -> CoreOrder:
        """Check and take one order.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("core order", data)
        return cls(
            job_id=read.job_id(),
            restart=read.restart(),
            search=read.search(),
            step=read.step(),
            cores=read.cpus("cores"),
            settled=read.flag("settled", default=False),
            reason=read.text("reason", 32, ""),
        )


@dataclass(frozen=True, slots=True)
class GuestGpus:
    """GPUs of a node that a run holds beside another job: neither prolog nor epilog can tell them."""

    job_id: int
    restart: int
    gpus: tuple[int, ...]

    @classmethod
    def from_dict(cls, data: object) -> GuestGpus:
        """Check and take one.

        Raises:
            RecordError: a field is missing, of another type or out of bounds.
        """
        read = RunFields("guest", data)
        return cls(read.job_id(), read.restart(), read.wholes("gpus", MAX_GPUS, 0, 65_535))


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """sodad's answer to a report; an older sodad's has no orders, which changes nothing on the node."""

    node: str
    seq: int
    cores: tuple[CoreOrder, ...] = ()
    """The latest order for every run on several nodes of which this node is one."""
    guests: tuple[GuestGpus, ...] = ()
    """Runs on this node that hold GPUs beside other jobs."""
    left_out: tuple[int, ...] = ()
    """Jobs on this node that are not in the site's scope: nothing is limited for or of them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: bytes) -> ReportAnswer:
        """Check and take an answer as it came over the network.

        Raises:
            RecordError: it is too long, no JSON, or a field is missing, of another type or out of bounds.
        """
        data = decode_json(body, MAX_ANSWER_BYTES, "answer")
        read = JsonFields("answer", data)
        return cls(
            node=read.name("node"),
            seq=read.whole("seq", 0, 1 << 53),
            cores=tuple(CoreOrder.from_dict(item) for item in read.objects("cores", MAX_ORDERS)),
            guests=tuple(GuestGpus.from_dict(item) for item in read.objects("guests", MAX_GUESTS)),
            left_out=read.wholes("left_out", MAX_LEFT_OUT, 1, MAX_JOB_ID),
        )
