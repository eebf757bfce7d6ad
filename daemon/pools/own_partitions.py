"""What a waiting job asks for that borrows no more: by all of it, ``job_submit.lua`` would choose its partitions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from slurm_soda.daemon.cycle.request_details import RequestDetailReader
from slurm_soda.policies.pools.layout.routing import SubmittedRequest
from slurm_soda.slurm_ext.client import SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.job_request import JobRequest

MAX_CALLS_PER_CYCLE = 20
"""Jobs that Slurm is asked about in one cycle."""

FIRST_PAUSE_S = 5.0
"""A requeued job waits two minutes by itself: it is asked about soon again."""

_EXCLUSIVE = "--exclusive"


@dataclass(slots=True)
class OwnPartitionLookup:
    """Looks each job up once, as long as its request stays the same."""

    details: RequestDetailReader
    _known: dict[int, tuple[tuple[object, ...], JobRequest]] = field(default_factory=dict)
    """What each job's record showed, and its request."""

    @classmethod
    def at(cls, client: SlurmClient) -> OwnPartitionLookup:
        """For one Slurm."""
        return cls(RequestDetailReader(client, MAX_CALLS_PER_CYCLE, FIRST_PAUSE_S))

    def begin(self, steady_s: float, job_ids: Collection[int]) -> None:
        """A new cycle, at an instant of the steady clock; other jobs than these are forgotten."""
        self.details.begin(steady_s)
        self.details.keep(job_ids)
        self._known = {job_id: known for job_id, known in self._known.items() if job_id in job_ids}

    def of(self, record: SlurmJob) -> tuple[bool, SubmittedRequest | None]:
        """Whether it is known what the job asks for, and the request; ``None`` where no pool can be chosen by it."""
        if _stays_in_base(record):
            return True, None
        shape = _request_key(record)
        known = self._known.get(record.job_id)
        if known is None or known[0] != shape:
            try:
                request = self.details.ask(record.job_id)
            except SlurmReplyError:
                return True, None
            if request is None:
                return False, None
            known = self._known[record.job_id] = (shape, request)
        return True, _submitted_request(record, known[1])


def _submitted_request(record: SlurmJob, request: JobRequest) -> SubmittedRequest:
    # All of it on as few nodes as it may have, since Slurm does not say whether it may have more.
    nodes = max(record.nodes, request.nodes, 1)
    return SubmittedRequest(
        gpus=record.gpus,
        gpus_per_node=max(record.gpus_per_node, -(-record.gpus // nodes)),
        gpu_type=record.gpu_type,
        nodes=nodes,
        cores=record.cpus,
        cores_per_node=max(request.least_cpus_per_node, record.cpus_per_task, -(-record.cpus // nodes)),
        whole_nodes=request.peculiar == _EXCLUSIVE,
    )


def _stays_in_base(record: SlurmJob) -> bool:
    """What the router would leave in the base too; it may have become so since."""
    kinds = [piece for piece in record.tres_per_node.split(",") if "gres" in piece]
    return bool(record.req_node_names or record.het_job_id or len(kinds) > 1 or record.shared_gpus)


def _request_key(record: SlurmJob) -> tuple[object, ...]:
    return (record.restarts, record.cpus, record.cpus_per_task, record.tasks, record.nodes, record.gpus)
