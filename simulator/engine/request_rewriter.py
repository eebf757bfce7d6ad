"""What jobs ask for, as deciders number it; agents may rewrite a request before its job waits."""

from __future__ import annotations

from slurm_soda.policies.engine.demand import Demand, RequestShape, group_requests
from slurm_soda.policies.session.ranking import SessionJob
from slurm_soda.simulator.cluster import SimulatedCluster
from slurm_soda.simulator.engine.deciders.snapshot_decider import SnapshotDecider
from slurm_soda.simulator.workload import Workload


class RequestRewriter:
    """All requests of a run, those that GPU jobs may come to have included.

    Attributes:
        demand: of all jobs as their trace has them; its shapes are all that there will be.
        codes: number of each job's request now, by row; deciders look here when a job begins to wait.
    """

    def __init__(
        self, workload: Workload, cluster: SimulatedCluster, snapshots: SnapshotDecider, *, adjusted: bool
    ) -> None:
        """``adjusted``: requests may be rewritten, to any number of cores that a node has."""
        self._snapshots = snapshots
        demand = group_requests(workload, cluster.partitions, cluster.gpu_types)
        self._most = int(cluster.cpus[cluster.gpus > 0].max(initial=1))
        shapes = [*demand.shapes]
        self._number: dict[RequestShape, int] = {shape: number for number, shape in enumerate(shapes)}
        for shape in demand.shapes if adjusted else ():
            for cores in range(1, self._most + 1) if shape.wants_gpus else ():
                other = shape.with_cpus(cores * shape.nodes)
                if other not in self._number:
                    self._number[other] = len(shapes)
                    shapes.append(other)
        self.demand = Demand(demand.code, tuple(shapes))
        self.codes: list[int] = demand.code.tolist()

    def rewrite(self, job: SessionJob, cpus: int) -> None:
        """A job that is about to wait asks for so many CPUs over all its nodes, alike on each."""
        row = job.job_id - 1
        shape = self.demand.shapes[self.codes[row]]
        each = min(-(-cpus // shape.nodes), self._most)
        job.shape = self.codes[row] = self._number[shape.with_cpus(each * shape.nodes)]
        self._snapshots.rewrite(row, cpus)
