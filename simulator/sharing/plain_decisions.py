"""What follows at an event without asking a policy that shares: most events concern jobs without GPUs alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

from slurm_soda.policies.engine.demand import Demand, RequestShape
from slurm_soda.policies.engine.placement import FreeNodes, NodeGroups
from slurm_soda.policies.engine.placement_pass import RefusedShapes, find_too_large
from slurm_soda.policies.session.ranking import JobStart, SessionJob
from slurm_soda.policies.sharing.engine.gpu_holders import GpuHolders
from slurm_soda.policies.snapshot import BoolColumn, NodeTable

_Line = list[tuple[float, int, SessionJob]]


class PlainDecisions:
    """Decides for a :class:`.CpuJobsLastPolicy` what the policy's own decision could not differ in.

    Jobs without GPUs start in what is free. A job that alone waits for GPUs starts where it fits, if no GPU is shared. All
    else is the policy's: :meth:`decide` answers ``None`` where something happened to jobs with GPUs, and where one of them
    that waits has cores or memory for a part of its request on a node that had not, as jobs without GPUs left it.

    An event costs a look at the first job of each distinct request that waits, and a search for each that may fit.
    """

    def __init__(self, demand: Demand, shares: BoolColumn, nodes: NodeTable, holders: GpuHolders) -> None:
        """``shares``: of each job of the workload, whether it may share its GPUs; ``nodes``: idle ones."""
        self._shapes, self._codes = demand.shapes, demand.code.tolist()
        self._shares, self._holders, self._first = shares.tolist(), holders, holders.first.tolist()
        self._free_nodes = FreeNodes(NodeGroups(nodes), nodes.gpus_free, nodes.cpus_free, nodes.memory_free_mib)
        self._whole = nodes.cpus.tolist(), nodes.memory_mib.tolist()
        self._gpus = nodes.gpus.tolist()
        self._too_large: list[bool] = find_too_large(demand.shapes, nodes).tolist()
        self._lines: dict[int, _Line] = {}
        """Jobs without GPUs that wait, by request, in the order of their submission."""
        self._gone: set[int] = set()
        """Those of them that have started and still stand in line."""
        self._fresh: set[int] = set()
        """Requests of those that have not been looked at."""
        self._freed: set[int] = set()
        """Nodes on which somebody left since they were."""
        self._waiting: dict[int, SessionJob] = {}
        """Those with GPUs, by id."""
        self._wanted: Counter[tuple[int, bool]] = Counter()
        """Their requests, and whether they share."""
        self._cpu_jobs = [[0, 0] for _ in self._gpus]
        """Cores and memory that jobs without GPUs hold, by node."""
        self._seen: dict[int, tuple[int, int, int, int]] = {}
        """Nodes that jobs without GPUs left since the policy decided: cores and memory that were free then, and that were
        not theirs."""
        self._asks = False
        """Something happened to jobs with GPUs that is the policy's to answer."""
        self._alone: SessionJob | None = None
        """Who just came, while nobody else waited for GPUs."""

    def add(self, waiting: Collection[SessionJob], running: Collection[SessionJob]) -> None:
        """Jobs that are there already; if any of them has GPUs, the policy is to be asked."""
        for job in (*waiting, *running):
            self.submit(job)
            self._asks |= bool(job.gpus)
        for job in running:
            self.started(job)

    def submit(self, job: SessionJob) -> None:
        """A job begins to wait."""
        code = self._codes[job.job_id - 1]
        if not job.gpus:
            if not self._too_large[code]:
                heappush(self._lines.setdefault(code, []), (job.submit_s, job.job_id, job))
                self._fresh.add(code)
            return
        self._alone = None if self._waiting else job
        self._asks |= bool(self._waiting)
        self._waiting[job.job_id] = job
        self._wanted[code, self._shares[job.job_id - 1]] += 1

    def started(self, job: SessionJob) -> None:
        """A job runs on its ``pieces``."""
        self._hold(job, 1)
        if not job.gpus:
            self._gone.add(job.job_id)
        else:
            self._alone = None
            del self._waiting[job.job_id]
            key = self._codes[job.job_id - 1], self._shares[job.job_id - 1]
            self._wanted[key] -= 1
            if not self._wanted[key]:
                del self._wanted[key]

    def ended(self, job: SessionJob) -> None:
        """A job gave back what it held."""
        self._hold(job, -1)
        self._freed.update(piece.node for piece in job.pieces)
        if job.gpus:
            self._asks |= bool(self._waiting) or bool(self._holders.shared)

    def stopped(self, job: SessionJob) -> None:
        """A job gave back what it held, and waits again."""
        self.ended(job)
        self.submit(job)
        self._asks = True

    def leaving(self) -> None:
        """A job begins to leave its GPUs."""
        self._asks |= bool(self._waiting)

    @property
    def idle(self) -> bool:
        """Nobody waits for GPUs, and none is shared: no policy has anything to decide about them."""
        return not self._waiting and not self._holders.shared

    def decided(self) -> None:
        """The policy was asked; what it starts is reported later."""
        self._asks, self._alone = False, None
        self._seen.clear()
        # The policy looked at all of them.
        self._fresh.clear()
        self._freed.clear()

    def decide(self) -> list[JobStart] | None:
        """Who starts now; ``None``: the policy must say so."""
        first: list[JobStart] = []
        if self._alone is not None and not self._asks:
            if self._holders.shared:
                return None
            pieces = self._free_nodes.find(self._shapes[self._codes[self._alone.job_id - 1]])
            if pieces is None:
                return None
            first = [(self._alone, tuple(pieces))]
        elif self._asks or self._helps():
            return None
        starts = first + self._start_cpu_jobs(first)
        self._fresh.clear()
        self._freed.clear()
        return starts

    def _devices_of(self, node: int) -> range:
        return range(self._first[node], self._first[node + 1])

    def _hold(self, job: SessionJob, sign: int) -> None:
        for node, _, cpus, memory_mib in job.pieces:
            gpus, free_cpus, free_mib = self._free_nodes.on(node)
            if job.gpus:
                gpus = sum(not self._holders.holders(device) for device in self._devices_of(node))
            else:
                theirs = self._cpu_jobs[node]
                if sign < 0 and node not in self._seen:
                    others = self._whole[0][node] - theirs[0], self._whole[1][node] - theirs[1]
                    self._seen[node] = (free_cpus, free_mib, *others)
                theirs[0] += sign * cpus
                theirs[1] += sign * memory_mib
            self._free_nodes.put(node, gpus, free_cpus - sign * cpus, free_mib - sign * memory_mib)

    def _helps(self) -> bool:
        """Whether what jobs without GPUs left gives one that waits for GPUs a part of its request that it could not have."""
        return bool(self._wanted) and any(
            self._helps_on(node, before, self._shapes[code], shares=shares)
            for node, before in self._seen.items()
            for code, shares in self._wanted
        )

    def _helps_on(self, node: int, before: tuple[int, int, int, int], shape: RequestShape, *, shares: bool) -> bool:
        gpus, cpus, memory_mib = self._free_nodes.on(node)
        most = min(shape.units, self._gpus[node]) if shape.units else 1
        theirs = self._cpu_jobs[node]
        may_start = shares or gpus >= shape.least[0]
        if may_start and count_parts(shape, cpus, memory_mib, most) > count_parts(shape, *before[:2], most):
            return True
        others = self._whole[0][node] - theirs[0], self._whole[1][node] - theirs[1]
        return count_parts(shape, *others, most) > count_parts(shape, *before[2:], most)

    def _start_cpu_jobs(self, first: Sequence[JobStart]) -> list[JobStart]:
        """In the order of their submission, whoever fits; ``first`` start before them."""
        starts: list[JobStart] = []
        for _, mine in first:
            self._free_nodes.take(list(mine))
        heads = [
            (head.submit_s, head.job_id, code)
            for code in self._lines
            if (code in self._fresh or self._may_fit(code)) and (head := self._head(code))
        ]
        heapify(heads)
        refusals = RefusedShapes()
        taken: list[tuple[int, tuple[float, int, SessionJob]]] = []
        while heads:
            _, _, code = heappop(heads)
            shape = self._shapes[code]
            pieces = None if refusals.cover(shape) else self._free_nodes.find(shape)
            if pieces is None:
                refusals.add(shape)
                continue
            item = heappop(self._lines[code])
            taken.append((code, item))
            starts.append((item[2], tuple(pieces)))
            self._free_nodes.take(pieces)
            if head := self._head(code):
                heappush(heads, (head.submit_s, head.job_id, code))
        for _, mine in (*first, *starts):
            self._free_nodes.give(list(mine))
        for code, item in taken:
            heappush(self._lines.setdefault(code, []), item)
        return starts

    def _may_fit(self, code: int) -> bool:
        """Whether a node that somebody left could hold a part of a request of a job without GPUs."""
        least = self._shapes[code].least
        return any(
            all(free >= wanted for free, wanted in zip(self._free_nodes.on(node), least, strict=True))
            for node in self._freed
        )

    def _head(self, code: int) -> SessionJob | None:
        """The first that still waits; those that have started are dropped."""
        line = self._lines[code]
        while line and line[0][1] in self._gone:
            self._gone.remove(heappop(line)[1])
        return line[0][2] if line else None


def count_parts(shape: RequestShape, cpus: int, memory_mib: int, most: int) -> int:
    """How many parts of a request a node has cores and memory for."""
    _, least_cpus, least_mib = shape.least
    parts = min(most, cpus // least_cpus) if least_cpus else most
    return min(parts, memory_mib // least_mib) if least_mib else parts
