"""From what runs to what shall run: which instances start, and which leave without loss of capacity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_soda.policies.services.instances import USABLE, Instance, ServiceState, ready_qps
from slurm_soda.policies.services.service import Device, InstanceState
from slurm_soda.policies.services.targets import Target

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Changes:
    """What follows for one service."""

    instances: tuple[int, int]
    """That shall run by :class:`.Device`, failed ones included, those that leave not."""
    starts: tuple[int, int]
    """Of them, those that do not run yet."""
    drains: tuple[tuple[Instance, str], ...]
    """Who leaves, and why."""
    retry_s: float = math.inf
    """When the next failed instance may be replaced."""


def find_changes(state: ServiceState, target: Target, now_s: float) -> Changes:
    """Starts and drains towards a target; an instance that leaves already still leaves."""
    drains = [(one, "it leaves already") for one in state.instances if one.state is InstanceState.DRAINING]
    surplus = _surplus(state, target, now_s)
    drains += [(one, "it failed, and others answer in its place") for one in _failed_in_vain(state)]
    drains += [(one, "it failed, and as many run as may") for one in _failed_for_long(state, target, now_s)]
    drains += [(one, "fewer would do") for one in surplus]
    gone = {one.job_id for one, _ in drains}
    starts, retry_s = _starts(state, target, gone, now_s)
    stays = [one for one in state.instances if one.job_id not in gone]
    running = [sum(one.device is device for one in stays) for device in Device]
    return Changes((running[0] + starts[0], running[1] + starts[1]), starts, tuple(drains), retry_s)


def _surplus(state: ServiceState, target: Target, now_s: float) -> list[Instance]:
    """Usable instances beyond the target that may leave now: what stays answers the load, or as much as was answered."""
    if math.isnan(state.load_qps):
        return []
    stays = {one.job_id: one for one in state.instances if one.state in USABLE}
    before = ready_qps(stays.values())
    enough = min(before, state.load_qps / state.settings.headroom) * (1.0 - _ROUNDING)
    ready_least = min(state.service.least, _ready(stays.values()))
    changes_device = any(state.usable(device) and not target.on(device) for device in Device)
    over_most, found = 0 if changes_device else len(stays) - state.service.most, list[Instance]()
    for device in sorted(Device, key=target.on):
        leaving = state.kept_first(device)[target.on(device) :][::-1]
        for one in leaving:
            left = [each for each in stays.values() if each.job_id != one.job_id]
            may = state.cooled(now_s) or target.left_device is device
            whole = ready_qps(left) >= enough and _ready(left) >= ready_least and len(left) >= state.service.least
            if (over_most > 0 or (may and whole)) and _others_answer(target, device, left):
                del stays[one.job_id]
                found.append(one)
                over_most -= 1
    return found


def _others_answer(target: Target, device: Device, left: Sequence[Instance]) -> bool:
    """Whether, where a device is left, as many as shall run on the other one are ready."""
    other = Device(1 - device)
    if target.on(device) or not target.on(other):
        return True
    return sum(one.device is other and one.state is InstanceState.READY for one in left) >= target.on(other)


def _failed_in_vain(state: ServiceState) -> list[Instance]:
    """Failed instances without which the load is answered."""
    failed = [one for one in state.instances if one.state is InstanceState.FAILED]
    ready = [one for one in state.instances if one.state is InstanceState.READY]
    known = state.profiled and not math.isnan(state.load_qps)
    enough = not known or ready_qps(ready) * state.settings.headroom >= state.load_qps * (1.0 - _ROUNDING)
    return failed if ready and enough and len(ready) >= state.service.least else []


def _failed_for_long(state: ServiceState, target: Target, now_s: float) -> list[Instance]:
    """Failed instances that are tried elsewhere, where no more may run beside them: the one that failed first."""
    if _failed_in_vain(state):
        return []
    failed = sorted((one for one in state.instances if one.state is InstanceState.FAILED), key=_since)
    usable = state.usable(Device.CPU) + state.usable(Device.GPU)
    full = usable + len(failed) >= state.service.most and usable < target.cpu + target.gpu
    if failed and full and now_s - _since(failed[0])[0] >= state.settings.requeue_failed_s:
        return failed[:1]
    return []


def _starts(state: ServiceState, target: Target, gone: set[int], now_s: float) -> tuple[tuple[int, int], float]:
    """Tasks that may start on each device, and when the next may in place of a failed one."""
    starts, retry_s = [0, 0], math.inf
    failed = [one for one in state.instances if one.state is InstanceState.FAILED and one.job_id not in gone]
    serving = sum(min(state.usable(device), target.on(device)) for device in Device)
    free = state.service.most - serving - len(failed)
    for device in sorted(Device, key=lambda one: -target.on(one)):
        wanted = max(target.on(device) - state.usable(device), 0)
        broken = [one for one in failed if one.device is device]
        if broken and wanted:
            after_s = state.settings.retry_s * 2.0 ** min(len(broken) - 1, 30)
            may_s = max(_since(one)[0] for one in broken) + after_s
            if now_s < may_s:
                wanted, retry_s = max(wanted - len(broken), 0), min(retry_s, may_s)
        starts[device] = max(min(wanted, free), 0)
        free -= starts[device]
    return (starts[0], starts[1]), retry_s


def _since(one: Instance) -> tuple[float, int]:
    """Since when it is in its state, for ever where that is not known; ties by job."""
    return (-math.inf if math.isnan(one.since_s) else one.since_s), one.job_id


def _ready(instances: Iterable[Instance]) -> int:
    return sum(one.state is InstanceState.READY for one in instances)
