"""Where a waiting job belongs that borrows no more: by all that it asks for, as ``job_submit.lua`` would route it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from slurm_soda.daemon.details import Details
from slurm_soda.policies.arrays.layout import ArrayTable
from slurm_soda.policies.arrays.routing import Ask, route
from slurm_soda.slurm_ext.client import JobRecord, SlurmClient
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.requests import JobRequest

MOST_LOOKS = 20
"""Jobs that Slurm is asked about in one cycle."""

FIRST_PAUSE_S = 5.0
"""A requeued job waits two minutes by itself: it is asked about soon again."""

_EXCLUSIVE = "--exclusive"


@dataclass(slots=True)
class Homes:
    """Looks each job up once, as long as its request stays the same."""

    details: Details
    _known: dict[int, tuple[tuple[object, ...], JobRequest]] = field(default_factory=dict)
    """What each job's record showed, and its request."""

    @classmethod
    def at(cls, client: SlurmClient) -> Homes:
        """For one Slurm."""
        return cls(Details(client, MOST_LOOKS, FIRST_PAUSE_S))

    def begin(self, now_s: float, job_ids: Collection[int]) -> None:
        """A new cycle; other jobs than these are forgotten."""
        self.details.begin(now_s)
        self.details.keep(job_ids)
        self._known = {job_id: known for job_id, known in self._known.items() if job_id in job_ids}

    def of(self, record: JobRecord, table: ArrayTable, base: str) -> str | None:
        """The list of partitions where nothing aborts the job; its base if none of its array could ever hold it.

        ``None`` while Slurm does not tell what the job asks for.
        """
        if _left_alone(record):
            return base
        shape = _shape(record)
        known = self._known.get(record.job_id)
        if known is None or known[0] != shape:
            try:
                request = self.details.ask(record.job_id)
            except SlurmReplyError:
                return base
            if request is None:
                return None
            known = self._known[record.job_id] = (shape, request)
        return ",".join(route(table, base, _ask(record, known[1]), may_borrow=False)) or base


def _ask(record: JobRecord, request: JobRequest) -> Ask:
    # All of it on as few nodes as it may have, since Slurm does not tell whether it may have more.
    nodes = max(record.nodes, request.nodes, 1)
    return Ask(
        gpus=record.gpus,
        gpus_per_node=max(record.gpus_per_node, -(-record.gpus // nodes)),
        gpu_type=record.gpu_type,
        nodes=nodes,
        cores=record.cpus,
        cores_per_node=max(request.least_cpus_per_node, record.cpus_per_task, -(-record.cpus // nodes)),
        whole_nodes=request.peculiar == _EXCLUSIVE,
    )


def _left_alone(record: JobRecord) -> bool:
    """What the router would leave in the base too; it may have become so since."""
    kinds = [piece for piece in record.tres_per_node.split(",") if "gres" in piece]
    return bool(record.req_node_names or record.het_job_id or len(kinds) > 1 or "cog" in record.tres_per_node)


def _shape(record: JobRecord) -> tuple[object, ...]:
    return (record.restarts, record.cpus, record.cpus_per_task, record.tasks, record.nodes, record.gpus)
