"""How many instances a service shall have on each device (paper 004, Section V-D, online stage)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurm_soda.policies.services.free_places import FreePlaces
from slurm_soda.policies.services.instances import ServiceState
from slurm_soda.policies.services.service import Device

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Target:
    """Where a service is to come to."""

    cpu: int
    gpu: int
    why: str
    lower: bool = False
    """Fewer instances, or cores instead of a GPU, would do."""
    preferred: bool = False
    """The GPU is not needed: it is idle while others wait for cores."""
    left_device: Device | None = None
    """The device that its instances leave, so that they drain without a cool-down."""

    def on(self, device: Device) -> int:
        """Instances on a device."""
        return self.cpu if device is Device.CPU else self.gpu


def find_target(state: ServiceState, places: FreePlaces, now_s: float) -> Target:
    """Where a service is to come to; pure, and the same once it is there."""
    if math.isnan(state.load_qps):
        return _as_it_is(state, places)
    if not state.profiled:
        return _as_asked(state)
    device, why, preferred = _choose(state, places)
    lower = device is Device.CPU and state.usable(Device.GPU) > 0
    if lower and not state.cooled(now_s):
        device, preferred = Device.GPU, False
        why = f"cores would do since {_since(state, now_s)}, and shall for {state.settings.cool_down_s:g} s: {why}"
    counts, fewer = _counts(state, device, now_s)
    other = Device(1 - device)
    left_device = Device.CPU if device is Device.GPU and not counts[other] else None
    return Target(counts[0], counts[1], why, lower or fewer, preferred, left_device)


def instances_for(load_qps: float, kept: Sequence[float], new: float) -> int:
    """How many instances answer a load: the first ones of ``kept``, by their capacities, then new ones of ``new`` each."""
    left, count = load_qps * (1.0 - _ROUNDING), 0
    for capacity in kept:
        if left <= 0:
            return count
        left, count = left - capacity, count + 1
    return count + (math.ceil(left / new) if left > 0 and new else 0)


def _choose(state: ServiceState, places: FreePlaces) -> tuple[Device, str, bool]:
    """The device to serve on, why, and whether the other one would do as well."""
    if not state.tasks(Device.GPU):
        return Device.CPU, "it has no tasks for GPUs", False
    problem = next(_against_cores(state, places), "")
    if problem:
        return Device.GPU, problem, False
    if _gpus_idle(state, places):
        return Device.GPU, "CPU jobs wait and GPUs idle", True
    return Device.CPU, f"within the switching point of {_switching_qps(state):.4g} q/s", False


def _against_cores(state: ServiceState, places: FreePlaces) -> Iterator[str]:
    """Why instances on cores would not do."""
    service, load = state.service, state.load_qps
    if not state.cpu_qps:
        yield "it is not profiled within the target on cores"
        return
    if not state.tasks(Device.CPU):
        yield "it has no tasks for cores"
        return
    switching = _switching_qps(state)
    if load > switching:
        yield f"above the switching point of {switching:.4g} q/s"
    needed = max(service.least, _needed(state, Device.CPU, load / (state.settings.headroom * _margin(state))))
    reach, runs = min(service.most, state.tasks(Device.CPU)), state.usable(Device.CPU)
    if needed > reach:
        yield f"{needed} instances on cores would be needed, and at most {reach} may run"
    if state.failing(Device.CPU):
        yield "instances on cores fail"
    # Free cores come and go with other jobs: a part of the reserve bridges that before the whole service moves.
    bridged = runs * state.cpu_qps * (1.0 - state.settings.hysteresis) * (1.0 + _ROUNDING)
    if needed > runs and load > bridged and places.slots(state, Device.CPU) < needed - runs:
        yield f"cores with free memory bandwidth are lacking for {needed - runs} more instances"


def _gpus_idle(state: ServiceState, places: FreePlaces) -> bool:
    """Whether others wait for cores while there are GPUs that nobody waits for."""
    if not (state.gpu_qps and places.queue(state, Device.CPU)) or state.failing(Device.GPU):
        return False
    needed = max(state.service.least, _needed(state, Device.GPU, state.load_qps / state.settings.headroom))
    wanted = needed - state.usable(Device.GPU)
    return wanted <= 0 or (not places.queue(state, Device.GPU) and places.slots(state, Device.GPU) >= wanted)


def _margin(state: ServiceState) -> float:
    """The way back from a GPU has a lower bound."""
    return 1.0 - state.settings.hysteresis if state.usable(Device.GPU) else 1.0


def _switching_qps(state: ServiceState) -> float:
    """Up to which load instances on cores replace the GPU; infinite where it was not profiled on any."""
    return state.settings.headroom * state.gpu_qps * _margin(state) if state.gpu_qps else math.inf


def _needed(state: ServiceState, device: Device, load_qps: float) -> int:
    new = state.capacity_of(device) or state.cpu_qps  # of a device that was not profiled: as one on cores
    return instances_for(load_qps, [one.capacity_qps or new for one in state.kept_first(device)], new)


def _counts(state: ServiceState, device: Device, now_s: float) -> tuple[tuple[int, int], bool]:
    """Instances on CPU and GPU, and whether fewer would do. What a device has no tasks for runs on the other one."""
    service, settings = state.service, state.settings
    other, load = Device(1 - device), state.load_qps / settings.headroom
    count, fewer = _steady(state, device, load, (service.least, service.most), now_s)
    count = min(count, state.tasks(device))
    left_least, left_most = max(service.least - count, 0), service.most - count
    kept = [one.capacity_qps for one in state.kept_first(device)][:count]
    answered = sum(kept) + (count - len(kept)) * state.capacity_of(device)
    beside, beside_fewer = 0, False
    if count == state.tasks(device) and left_most > 0 and (load > answered * (1.0 + _ROUNDING) or left_least):
        rest = max(load - answered, 0.0)
        if state.capacity_of(other) or other is Device.GPU:
            beside, beside_fewer = _steady(state, other, rest, (left_least, left_most), now_s)
            beside = min(beside, state.tasks(other))
    counts = (count, beside) if device is Device.CPU else (beside, count)
    return counts, fewer or beside_fewer


def _steady(
    state: ServiceState, device: Device, load_qps: float, bounds: tuple[int, int], now_s: float
) -> tuple[int, bool]:
    """Instances on a device: more at once; fewer where a load that is higher by the hysteresis needs no more, after the
    cool-down. Also whether fewer would do.
    """
    least, most = bounds
    up = min(max(_needed(state, device, load_qps), least), most)
    down = min(max(_needed(state, device, load_qps / (1.0 - state.settings.hysteresis)), least), most)
    runs = min(state.usable(device), most)
    if runs > down:
        return (down if state.cooled(now_s) else runs), True
    return max(runs, up), False


def _as_it_is(state: ServiceState, places: FreePlaces) -> Target:
    """Nobody knows the load: what runs stays, and at least as many run as the owner wants whatever it is."""
    counts = [state.usable(Device.CPU), state.usable(Device.GPU)]
    lacking = state.service.least - sum(counts)
    if lacking > 0:
        on_cores = state.cpu_qps > 0 and (bool(counts[0]) or places.slots(state, Device.CPU) >= lacking)
        first = Device.CPU if not counts[1] and on_cores else Device.GPU
        for device in (first, Device(1 - first)):
            more = min(lacking, state.waiting[device])
            counts[device], lacking = counts[device] + more, lacking - more
    return Target(counts[0], counts[1], "its load is not known: what runs stays")


def _as_asked(state: ServiceState) -> Target:
    """Nobody knows what an instance answers: as many run as the arrays have tasks, on GPUs first."""
    counts = [state.usable(Device.CPU), state.usable(Device.GPU)]
    lacking = state.service.most - sum(counts)
    for device in (Device.GPU, Device.CPU):
        more = min(lacking, state.waiting[device]) if lacking > 0 else min(max(lacking, -counts[device]), 0)
        counts[device], lacking = counts[device] + more, lacking - more
    return Target(counts[0], counts[1], "it is not profiled: as many as its arrays ask for")


def _since(state: ServiceState, now_s: float) -> str:
    return "now" if math.isnan(state.low_since_s) else f"{now_s - state.low_since_s:.0f} s"
