"""What services held, and how their queries were answered, written down while the clock runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_soda.policies.services.service import Device, DeviceProfile
from slurm_soda.policies.snapshot import FloatColumn, IntColumn
from slurm_soda.simulator.node.node_measurements import UsageIntervals
from slurm_soda.simulator.services.record import HOURS, LATENCY_BINS, LATENCY_STEP_MS, ServicesRecord
from slurm_soda.simulator.services.service_set import ServingRules, gpu_capacity_qps

_HOUR_S, _DAY_S = 3_600.0, 86_400.0
DEVICES = 2


class ServingRecorder:
    """Adds up between two times at which something changes; loads and instances are constant in between."""

    def __init__(self, rules: ServingRules, origin_s: float) -> None:
        """``origin_s``: Unix time of second 0, which says what time of day it is."""
        services = rules.services.services
        self._rules, self._origin_s = rules, origin_s
        count = len(services)
        self._profiles = [(service.cpu, min(service.gpu, key=_speed, default=None)) for service in services]
        self._capacity = np.array([[_speed(one) for one in pair] for pair in self._profiles])
        self._target_ms = np.array([service.target_ms for service in services])
        self._window_ms = [service.window_ms for service in services]
        self._last_s = np.nan
        self.queries, self.over, self.lost = np.zeros(count), np.zeros(count), np.zeros(count)
        self._latency = np.zeros((count, HOURS, LATENCY_BINS))
        self._held_s = np.zeros((count, DEVICES))
        self._rows: list[tuple[float, float, int, int, float]] = []

    @property
    def last_s(self) -> float:
        """Until when everything is counted; NaN: nothing is yet."""
        return self._last_s

    def advance(self, now_s: float, load_qps: FloatColumn, ready: IntColumn, held: IntColumn, cores: int) -> None:
        """Count what was until now.

        Args:
            now_s: from the time of the last call to this one.
            load_qps: of each service.
            ready: instances that answer, by service and device.
            held: instances that hold something, by service and device.
            cores: CPU cores that all of them hold.
        """
        last_s, self._last_s = self._last_s, now_s
        time_s = now_s - last_s
        if not time_s > 0:
            return
        capacity = ready * self._capacity
        whole = capacity.sum(axis=1)
        queries = load_qps * time_s
        self.queries += queries
        self.lost += np.where(whole > 0, 0.0, queries)
        self._held_s += held * time_s
        latency_ms = self._latencies_ms(load_qps, ready, whole)
        late = (whole > 0) & ((load_qps > whole * (1 + 1e-9)) | (latency_ms > self._target_ms))
        self.over += np.where(late, queries, 0.0)
        hour = int(((self._origin_s + last_s) % _DAY_S) // _HOUR_S)
        bins = np.minimum(latency_ms / LATENCY_STEP_MS, LATENCY_BINS - 1).astype(np.int64)
        self._latency[np.arange(len(bins)), hour, bins] += queries
        gpus = int(held[:, Device.GPU].sum())
        busy = np.divide(load_qps, whole, out=np.zeros_like(whole), where=whole > 0).clip(0.0, 1.0)
        ratio = float((busy * ready[:, Device.GPU]).sum()) / gpus if gpus else 0.0
        self._rows.append((last_s, now_s, gpus, cores, ratio))

    def advance_pooled(self, now_s: float, load_qps: FloatColumn, gpus: int, needed: float, cores: int) -> None:
        """The same where all services share ``gpus`` GPUs that answer, and ``needed`` of them would be busy all the time."""
        last_s, self._last_s = self._last_s, now_s
        time_s = now_s - last_s
        if not time_s > 0:
            return
        queries = load_qps * time_s
        self.queries += queries
        self.lost += queries if not gpus and needed else 0.0
        self.over += queries if gpus and needed > gpus * (1 + 1e-9) else 0.0
        self._held_s[:, Device.GPU] += gpus * time_s / len(load_qps)
        self._rows.append((last_s, now_s, gpus, cores, min(needed / gpus, 1.0) if gpus else 0.0))

    def _latencies_ms(self, load_qps: FloatColumn, ready: IntColumn, whole: FloatColumn) -> FloatColumn:
        found = np.zeros(len(load_qps))
        columns = (load_qps.tolist(), ready.tolist(), whole.tolist())
        for at, (load, counts, capacity) in enumerate(zip(*columns, strict=True)):
            if capacity > 0:
                found[at] = max(
                    slowest_ms(profile, self._window_ms[at], load * profile.capacity_qps / capacity)
                    for profile, count in zip(self._profiles[at], counts, strict=True)
                    if profile is not None and count
                )
        return found

    def record(self, device_changes: int, gave_way: int) -> ServicesRecord:
        """What was found."""
        services = self._rules.services.services
        start_s, end_s, gpus, cores, busy = zip(*self._rows, strict=True) if self._rows else ((),) * 5
        usage = UsageIntervals(
            job=np.full(len(self._rows), -1, dtype=np.int64),
            start_s=np.array(start_s, dtype=np.float64),
            end_s=np.array(end_s, dtype=np.float64),
            gpus=np.array(gpus, dtype=np.int64),
            cpus=np.array(cores, dtype=np.int64),
            busy_ratio=np.array(busy, dtype=np.float64),
        )
        whole_s = float((usage.end_s - usage.start_s).sum())
        return ServicesRecord(
            name=self._rules.services.name,
            mode=self._rules.mode,
            services=tuple(service.name for service in services),
            target_ms=self._target_ms,
            queries=self.queries,
            over=self.over,
            lost=self.lost,
            latency=self._latency,
            instances=self._held_s / whole_s if whole_s else self._held_s,
            device_changes=device_changes,
            gave_way=gave_way,
            usage=usage,
            origin_s=self._origin_s,
        )


def slowest_ms(profile: DeviceProfile, window_ms: float, load_qps: float) -> float:
    """How long a query takes at most where an instance gets an even stream of so many in a second.

    It waits until its batch is full or the window over, then until the batch before is computed, then for its own, whose
    time is in proportion to its queries (:meth:`.DeviceProfile.slowest_ms` bounds this within the capacity).
    """
    in_window = load_qps * window_ms / 1000.0
    collects_ms = window_ms if in_window <= profile.batch else 1000.0 * profile.batch / load_qps
    batch = min(max(in_window, 1.0), profile.batch)
    computes_ms = profile.batch_ms * (1.0 + profile.error_ratio) * batch / profile.batch
    return collects_ms + max(computes_ms - collects_ms, 0.0) + computes_ms


def pooled_need(rules: ServingRules, load_qps: FloatColumn) -> float:
    """GPUs that a load keeps busy all the time."""
    pairs = zip(load_qps.tolist(), rules.services.services, strict=True)
    return float(sum(qps / gpu_capacity_qps(service) for qps, service in pairs))


def packed_gpus(needs: Sequence[float], headroom: float, most: int) -> int:
    """GPUs onto which services are packed: the largest first, each where it fits, at most ``most`` on one GPU.

    ``needs`` are the GPUs that each one's load keeps busy; up to ``headroom`` of a GPU is used, and a service that needs
    more than that has whole GPUs besides.
    """
    whole, rooms = 0, list[tuple[float, int]]()
    for need in sorted(needs, reverse=True):
        more = int(need / headroom + 1e-9)
        whole, rest = whole + more, need - more * headroom
        if more and rest <= 1e-9:
            continue
        for at, (room, residents) in enumerate(rooms):
            if residents < most and rest <= room + 1e-9:
                rooms[at] = (room - rest, residents + 1)
                break
        else:
            rooms.append((headroom - rest, 1))
    return whole + len(rooms)


def _speed(profile: DeviceProfile | None) -> float:
    return profile.capacity_qps if profile is not None else 0.0
