"""Where instances could start now: free cores, memory, its bandwidth, and GPUs, and who else waits for them."""

from __future__ import annotations

import numpy as np

from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.services.instance_requests import InstanceRequest, nodes_with, profiled_request, shown_requests
from slurm_soda.policies.services.instances import USABLE, ServiceState, own_jobs
from slurm_soda.policies.services.service import Device, DeviceProfile
from slurm_soda.policies.snapshot import BoolColumn, ClusterSnapshot, FloatColumn, IntColumn, JobState


class FreePlaces:
    """What is free beside the jobs that the plan starts, less what was taken for services that came before."""

    def __init__(self, snapshot: ClusterSnapshot, plan: Plan) -> None:
        self._snapshot = snapshot
        jobs, nodes, table = snapshot.jobs, snapshot.nodes, snapshot.services
        own = own_jobs(table)
        self.gpus, self.cores = nodes.gpus_free.copy(), nodes.cpus_free.copy()
        self.memory_mib = nodes.memory_free_mib.copy()
        for job_id in plan.starts.tolist():
            if job_id not in own:
                for piece in plan.places.get(job_id, ()):
                    self._take_from(piece.node, piece.gpus, piece.cpus, piece.memory_mib)
        self.gpus, self.cores = np.maximum(self.gpus, 0), np.maximum(self.cores, 0)
        self.memory_mib = np.maximum(self.memory_mib, 0)
        unknown = np.full(len(nodes), np.nan)
        self._bandwidth = table.free_bandwidth_gb_s.copy() if len(table.free_bandwidth_gb_s) else unknown
        ours = np.array(sorted(own), dtype=np.int64)
        waits = (jobs.state == JobState.PENDING) & ~np.isin(jobs.job_id, plan.starts) & ~np.isin(jobs.job_id, ours)
        waits &= ~np.isin(jobs.job_id, plan.notes.job_id[plan.notes.verdict == JobVerdict.TOO_LARGE])
        self._waits = waits
        count = len(snapshot.partitions)
        queued = jobs.waited_s >= table.settings.queued_s
        kinds = ((Device.CPU, (jobs.gpus == 0) & queued), (Device.GPU, jobs.gpus > 0))
        self._waiting = {kind: np.bincount(jobs.partition[waits & on], minlength=count) for kind, on in kinds}
        self._columns: dict[str, list[int]] = {}
        self._nodes: dict[str, BoolColumn] = {}
        self._queues: dict[tuple[str, Device], int] = {}
        self._requests: dict[tuple[int, Device], InstanceRequest] = {}
        self._shown = shown_requests(snapshot)

    def nodes_of(self, state: ServiceState, device: Device) -> BoolColumn:
        """Nodes of the partition of a service's array; all usable ones where it names none that is known."""
        name = state.service.partitions(device)
        if name not in self._nodes:
            nodes, columns = self._snapshot.nodes, self._of_partition(name)
            flags = nodes.in_partition[:, columns].any(axis=1) if columns else np.ones(len(nodes), dtype=np.bool_)
            self._nodes[name] = flags & nodes.usable
        return self._nodes[name]

    def queue(self, state: ServiceState, device: Device) -> int:
        """Other jobs that wait for such a device on nodes of the service's array and do not start by the plan.

        Of jobs without GPUs those count that have waited for a while.
        """
        name = state.service.partitions(device)
        key = (name, device)
        if key not in self._queues:
            shared = self._shared(self.nodes_of(state, device))
            self._queues[key] = int(self._waiting[device][: len(shared)][shared].sum())
        return self._queues[key]

    def is_gpu_awaited(self, state: ServiceState) -> bool:
        """Whether a job waits there, as far as types go, for a GPU that an instance holds: another user's, or the owner's
        own where no other user's waits on the nodes of the service's tasks on cores.
        """
        jobs, held = self._snapshot.jobs, {one.gpu_type for one in state.on(Device.GPU, *USABLE)}
        rows = self._waiting_on(self.nodes_of(state, Device.GPU))
        rows = rows[jobs.gpus[rows] > 0]
        types = [-1, *(jobs.gpu_types.index(one) for one in held & set(jobs.gpu_types))]
        rows = rows if "" in held else rows[np.isin(jobs.gpu_type[rows], types)]
        if not len(rows) or state.service.owner not in jobs.users:
            return bool(len(rows))
        owner = jobs.users.index(state.service.owner)
        passed = self._waiting_on(self.nodes_of(state, Device.CPU))
        return bool((jobs.user[rows] != owner).any() or (jobs.user[passed] == owner).all())

    def is_overdue_waiting(self, state: ServiceState, device: Device) -> bool:
        """Whether a job that has waited too long could take what becomes free for a service."""
        overdue = self._snapshot.jobs.overdue
        return bool(len(overdue)) and bool(overdue[self._waiting_on(self.nodes_for(state, device))].any())

    def request(self, state: ServiceState, device: Device) -> InstanceRequest:
        """What the next task asks for: as Slurm shows one of the service's, else by its profile."""
        key = (state.row, device)
        if key not in self._requests:
            self._requests[key] = self._find_request(state, device)
        return self._requests[key]

    def _find_request(self, state: ServiceState, device: Device) -> InstanceRequest:
        shown = self._shown.get((state.row, device))
        if not shown:
            return profiled_request(state.service, device)
        if len(shown) == 1:
            return shown[0]
        types = {one.gpu_type for one in _usable_profiles(state)}
        return min(shown, key=lambda one: self._preference(state, one, types))

    def _preference(
        self, state: ServiceState, request: InstanceRequest, types: set[str]
    ) -> tuple[bool, bool, bool, float]:
        """The least of these is chosen, of requests for several GPU types: profiled, with room, let start already, and least
        used.
        """
        nodes = nodes_with(self._snapshot.nodes, self.nodes_of(state, Device.GPU), request)
        room = nodes & (self.gpus >= request.gpus) & (self.cores >= request.cores)
        no_room = not (room & (self.memory_mib >= request.memory_mib)).any()
        unknown = bool(request.gpu_type) and types.isdisjoint(("", request.gpu_type))
        return unknown, no_room, not request.may_start, self._used_part(nodes)

    def _used_part(self, nodes: BoolColumn) -> float:
        """The part of the GPUs of some nodes that is not free; 1 where there are none."""
        whole = int(self._snapshot.nodes.gpus[nodes].sum())
        return 1.0 - float(self.gpus[nodes].sum()) / whole if whole else 1.0

    def nodes_for(self, state: ServiceState, device: Device) -> BoolColumn:
        """Nodes that a task may use: of its partition, its GPU type, and what else it asks for."""
        return nodes_with(self._snapshot.nodes, self.nodes_of(state, device), self.request(state, device))

    def slots(self, state: ServiceState, device: Device) -> int:
        """How many more instances fit on a device."""
        return int(self._slots(state, device).sum())

    def take(self, state: ServiceState, device: Device, instances: int) -> None:
        """Count so many instances as placed: on the nodes with the most free memory bandwidth, then cores."""
        if instances <= 0:
            return
        request, slots = self.request(state, device), self._slots(state, device)
        bandwidth = np.nan_to_num(self._bandwidth, nan=0.0)
        for node in np.lexsort((-self.cores, -bandwidth)).tolist():
            taken = min(instances, int(slots[node]))
            if taken:
                self._take_from(node, *(taken * part for part in (request.gpus, request.cores, request.memory_mib)))
                if device is Device.CPU and (needed := _bandwidth(state.service.cpu, request.cores)):
                    self._bandwidth[node] -= taken * needed
                instances -= taken
            if not instances:
                return

    def next_type(self, state: ServiceState) -> str:
        """The GPU type that the next task asks for; if it takes any, the least used one of those that the service is
        profiled on and its array may use.
        """
        if asked := self.request(state, Device.GPU).gpu_type:
            return asked
        nodes, flags = self._snapshot.nodes, self.nodes_for(state, Device.GPU)
        best, best_used = "", float("inf")
        for profile in _usable_profiles(state):
            if profile.gpu_type in nodes.gpu_types:
                used = self._used_part(flags & (nodes.gpu_type == nodes.gpu_types.index(profile.gpu_type)))
                if used < best_used:
                    best, best_used = profile.gpu_type, used
        return best

    def _slots(self, state: ServiceState, device: Device) -> IntColumn:
        request = self.request(state, device)
        slots = self.cores // request.cores
        if request.gpus:
            slots = np.minimum(slots, self.gpus // request.gpus)
        if request.memory_mib:
            slots = np.minimum(slots, self.memory_mib // request.memory_mib)
        if device is Device.CPU and (needed := _bandwidth(state.service.cpu, request.cores)):
            slots = np.minimum(slots, _whole_parts(self._bandwidth, needed))
        found: IntColumn = np.where(self.nodes_for(state, device), slots, 0)
        return found

    def _take_from(self, node: int, gpus: int, cores: int, memory_mib: int) -> None:
        self.gpus[node] -= gpus
        self.cores[node] -= cores
        self.memory_mib[node] -= memory_mib

    def _waiting_on(self, nodes: BoolColumn) -> IntColumn:
        """Rows of others' jobs that wait in partitions with some of these nodes."""
        rows: IntColumn = np.flatnonzero(self._waits)
        found: IntColumn = rows[self._shared(nodes)[self._snapshot.jobs.partition[rows]]]
        return found

    def _shared(self, nodes: BoolColumn) -> BoolColumn:
        """Partitions that have some of these nodes."""
        return np.asarray(self._snapshot.nodes.in_partition[nodes].any(axis=0), dtype=np.bool_)

    def _of_partition(self, name: str) -> list[int]:
        if name not in self._columns:
            known = self._snapshot.partitions
            wanted = [name, *name.split(",")]
            self._columns[name] = sorted({known.index(one) for one in wanted if one in known})
        return self._columns[name]


def _usable_profiles(state: ServiceState) -> list[DeviceProfile]:
    """Of GPUs with which the target holds."""
    service = state.service
    return [one for one in service.gpu if one.within(service.target_ms, service.window_ms)]


def _bandwidth(profile: DeviceProfile | None, cores: int) -> float:
    """What an instance takes of its node's memory bandwidth; 0: not known."""
    return profile.bandwidth_with(cores) if profile is not None else 0.0


def _whole_parts(free: FloatColumn, part: float) -> IntColumn:
    """How often ``part`` is in each, at least 0; without bound where nothing is known."""
    whole = np.floor(np.nan_to_num(free, nan=1e12) / part)
    found: IntColumn = np.clip(whole, 0, 2**31).astype(np.int64)
    return found
