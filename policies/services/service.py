"""What is known of inference services: limits of their owners, profiles, instances and load (paper 004, Section V-D)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.policies.snapshot_file.identifiers import GpuTypeName, JobIdColumn, ModelName, PartitionName, UserName

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]


class Device(IntEnum):
    """On what an instance computes."""

    CPU = 0
    GPU = 1


class InstanceState(IntEnum):
    """Where an instance is in its life."""

    STARTING = 0
    """Its job runs, and it does not answer yet."""
    READY = 1
    DRAINING = 2
    """It gets no new queries, and is requeued when it has answered what it had."""
    FAILED = 3
    """Its job runs, but what it started does not answer: it exited, hangs, or ignores its port."""


MOST_CORE_GB_S = 40.0
"""More no core draws from memory: some 48 cache lines of 64 bytes are on their way to it at a time, for some 80 ns each
(Little's law), which is 38 GB/s."""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What one instance can do on a device, as it was measured (Section V-D, offline stage)."""

    device: Device
    batch: int
    """Largest number of queries at once with which the target holds; 0: the device cannot meet it."""
    batch_ms: float
    """Time that such a batch is computed in."""
    error_ratio: float = 0.0
    """By what part the measured times varied around :attr:`batch_ms`."""
    cores: int = 0
    """Fewest cores that reach that batch; on a GPU those that its instance needs beside."""
    gpu_type: GpuTypeName = ""
    bandwidth_gb_s: float = float("nan")
    """Memory bandwidth that it takes, in 10^9 bytes a second; NaN where it could not be read."""

    @property
    def capacity_qps(self) -> float:
        """Queries in a second that it answers at least, batch after batch, the measured error included; 0 where the device
        cannot meet the target.
        """
        return 1000.0 * self.batch / (self.batch_ms * (1.0 + self.error_ratio)) if self.batch else 0.0

    def bandwidth_with(self, cores: int) -> float:
        """Memory bandwidth in GB/s that an instance with so many cores counts with: what its owner's profile says, but no
        more than these cores can draw; 0 where nothing is known.
        """
        return min(float(np.nan_to_num(self.bandwidth_gb_s)), MOST_CORE_GB_S * max(cores, 1))

    def within(self, target_ms: float, window_ms: float) -> bool:
        """Whether the target holds with a batch, its measured error included."""
        return self.batch > 0 and self.slowest_ms(window_ms) <= target_ms

    def slowest_ms(self, window_ms: float) -> float:
        """How long a query takes at most under a steady load within the capacity: it waits for its batch to be collected,
        for the batch before to be computed, and for its own.
        """
        return window_ms + 2.0 * self.batch_ms * (1.0 + self.error_ratio)


@dataclass(frozen=True, slots=True)
class Service:
    """What its owner asks for and what is known of it."""

    owner: UserName
    name: ModelName
    target_ms: float = 200.0
    """Latency within which 99 % of the queries shall be answered."""
    window_ms: float = 50.0
    """How long an instance collects queries for a batch."""
    least: int = 1
    """Instances that run whatever the load."""
    most: int = 1
    """Instances at a time, on all devices together."""
    cpu: DeviceProfile | None = None
    """None: its owner has no array for it, or it was not profiled."""
    gpu: tuple[DeviceProfile, ...] = ()
    """One for each GPU type that it was profiled on."""
    cpu_partition: PartitionName = ""
    """Of its tasks without GPUs; several are separated by commas."""
    gpu_partition: PartitionName = ""

    def partitions(self, device: Device) -> str:
        """Of its tasks for a device."""
        return self.cpu_partition if device is Device.CPU else self.gpu_partition


@dataclass(frozen=True, slots=True)
class ServiceTable:
    """Services of a snapshot, with columns by service (row of :attr:`services`) and by instance."""

    services: tuple[Service, ...] = ()
    load_qps: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """Queries in a second, by the routers, over the last minute or so: placed by single seconds, services would follow their
    noise. NaN where no router reported for a while."""
    forecast_qps: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """The most that is expected within the next minutes; NaN where nothing is known."""
    low_since_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """Since when fewer instances would have done, NaN where the present ones are needed."""
    waiting: IntColumn = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    """Tasks that wait, by service and :class:`Device`."""
    job_id: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Of instances, that is, of tasks whose jobs run; ascending."""
    service: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Row of each instance's service."""
    device: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    state: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """:class:`InstanceState` of each."""
    since_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """Since when each is in its state."""
    task_id: JobIdColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Jobs of waiting tasks that Slurm shows apart, ascending; those that it shows as one with their array may lack."""
    task_service: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Row of each of these tasks' service."""
    task_device: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    failures: IntColumn = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    """Instances that failed since one was ready, by service and :class:`Device`; empty: none."""
    by_owner: IntColumn = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    """Of :attr:`waiting` those that start by their owner's own word, whenever Slurm likes; empty: none."""
    free_bandwidth_gb_s: FloatColumn = field(default_factory=lambda: np.zeros(0))
    """Memory bandwidth that each node of the snapshot has left until it is contended; NaN where it is not measured;
    empty: of no node."""
    left_out: IntColumn = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """By service, a :class:`.scope.LeftOut`: why a task of it may not be changed; empty: all tasks of all may."""
    settings: ServiceSettings = field(default_factory=ServiceSettings)
