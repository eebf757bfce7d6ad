"""The stage that decides how many instances each service has, and on which device (docs/policies/services.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slurm_soda.policies.pipeline.actions import Action, DrainInstance, PreemptJob, ScaleService
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.services.changes import Changes, find_changes
from slurm_soda.policies.services.free_places import FreePlaces
from slurm_soda.policies.services.giving_way import GivingWay
from slurm_soda.policies.services.instances import USABLE, Instance, ServiceState, ready_qps, service_states
from slurm_soda.policies.services.service import Device, InstanceState
from slurm_soda.policies.services.targets import Target, find_target, instances_for
from slurm_soda.policies.snapshot import ClusterSnapshot, FloatColumn, IntColumn, JobState

MOST_FAILURES = 3
"""After so many failures in a row on a device its tasks go first there no more, until one is ready: one may be its node's,
three are its command's, and with each of them another job would lose its work."""
_WHY_FIRST = "; its tasks go first: others wait there, or for the GPU that it gives back"


@dataclass(frozen=True, slots=True)
class PlaceServices:
    """Adds for each service a :class:`.ScaleService` for each device that it has tasks for, a :class:`.DrainInstance` for
    each instance that leaves, and a :class:`.PreemptJob` for each job that gives way to a service that needs a GPU.

    O(services x nodes) at most; nothing without services.

    Attributes:
        min_run_s: what the policy says: a job gives way only once it has run for so long since its last start, and for as
            long as the site says of services (:attr:`.ServiceSettings.min_run_s`).
    """

    min_run_s: float = 0.0
    name: str = "services"

    def apply(self, snapshot: ClusterSnapshot, plan: Plan) -> Plan:
        """The plan with these actions added."""
        if not snapshot.services.services:
            return plan
        places, now_s = FreePlaces(snapshot, plan), snapshot.now_s
        actions: list[Action] = []
        urgent: list[tuple[ServiceState, int]] = []
        next_s = plan.next_event_s
        for state in service_states(snapshot):
            target = find_target(state, places, now_s)
            changes = find_changes(state, target, now_s)
            first = _goes_first(state, target, changes, places)
            actions += _scalings(state, target, changes, places, first)
            actions += [_drain(state, one, why) for one, why in changes.drains]
            if first[Device.GPU] and _is_short(state, state.seen_qps):
                wanted = min(changes.starts[Device.GPU], _lacking(state)) - state.by_owner[Device.GPU]
                urgent.append((state, max(wanted, 0)))
            else:
                places.take(state, Device.GPU, changes.starts[Device.GPU])
            places.take(state, Device.CPU, changes.starts[Device.CPU])
            next_s = min(next_s, changes.retry_s, _cooled_s(state, target, now_s))
        preempts: list[PreemptJob] = []
        if urgent:
            leaving = GivingWay(snapshot, plan, places, self._least_run_s(snapshot))
            preempts = _give_way(snapshot, leaving, places, urgent)
            next_s = min(next_s, leaving.again_s)
        return _with_preempts(replace(plan, actions=(*plan.actions, *actions), next_event_s=next_s), preempts)

    def _least_run_s(self, snapshot: ClusterSnapshot) -> float:
        return max(self.min_run_s, snapshot.services.settings.min_run_s)


def renew_low_since(snapshot: ClusterSnapshot, plan: Plan) -> FloatColumn:
    """:attr:`.ServiceTable.low_since_s` of the next decision: since when fewer instances of each service would do.

    Args:
        snapshot: of this decision, with the column as it was.
        plan: what was decided.
    """
    places = FreePlaces(snapshot, plan)
    found = [
        (snapshot.now_s if math.isnan(state.low_since_s) else state.low_since_s)
        if find_target(state, places, snapshot.now_s).lower
        else math.nan
        for state in service_states(snapshot)
    ]
    return np.array(found, dtype=np.float64)


def _goes_first(state: ServiceState, target: Target, changes: Changes, places: FreePlaces) -> tuple[bool, bool]:
    """Whether its tasks go before others, by device: the site lets them there, others wait there, and what is ready does
    not answer the load, or a task on cores gives a GPU back for which other users' jobs wait. Slurm's backfill plans whole
    nodes for jobs that wait, so that behind them a task without a near end would not start on cores that nobody needs.
    """
    short = not target.preferred and _is_short(state, state.load_qps)
    may = [
        state.settings.may_go_first(state.service.partitions(device))
        and state.profiled  # else nobody knows how many would do
        and changes.starts[device] > state.by_owner[device]  # those start without sodad, and nobody puts them first
        and state.failures[device] < MOST_FAILURES
        for device in Device
    ]
    on_cpu = may[Device.CPU] and (
        _gives_gpu_back(state, target, places) or (short and places.queue(state, Device.CPU) > 0)
    )
    return on_cpu, may[Device.GPU] and short and places.queue(state, Device.GPU) > 0


def _gives_gpu_back(state: ServiceState, target: Target, places: FreePlaces) -> bool:
    return target.gpu < state.usable(Device.GPU) and places.is_gpu_awaited(state)


def _is_short(state: ServiceState, load_qps: float) -> bool:
    """Whether the ready instances do not answer a load with the headroom in hand."""
    if math.isnan(load_qps) or not load_qps:
        return False
    return state.settings.headroom * ready_qps(state.instances) < load_qps


def _lacking(state: ServiceState) -> int:
    """Instances for which jobs may give way: that answer the load that is seen, beside those that answer or will."""
    kept = [one.capacity_qps for one in state.instances if one.state in USABLE]
    new = state.gpu_qps or state.cpu_qps  # of a GPU that was not profiled: as one on cores
    return max(instances_for(state.seen_qps / state.settings.headroom, kept, new) - len(kept), 0)


def _scalings(
    state: ServiceState, target: Target, changes: Changes, places: FreePlaces, first: Sequence[bool]
) -> list[ScaleService]:
    """One for each device that has tasks."""
    found, reason = [], _reason(state, target, changes)
    for device in Device:
        if state.waiting[device] or state.on(device, *InstanceState):
            starting = changes.starts[device] > 0 and device is Device.GPU
            found.append(
                ScaleService(
                    owner=state.service.owner,
                    service=state.service.name,
                    device=device,
                    instances=changes.instances[device],
                    first=first[device],
                    reason=reason + (_WHY_FIRST if first[device] else ""),
                    gpu_type=places.next_type(state) if starting else "",
                )
            )
    return found


def _drain(state: ServiceState, one: Instance, why: str) -> DrainInstance:
    return DrainInstance(one.job_id, state.service.owner, state.service.name, f"{why}; {_figures(state)}")


def _reason(state: ServiceState, target: Target, changes: Changes) -> str:
    """What people read: the figures, what is needed and why there."""
    counts = [
        f"{target.on(device)} on {'cores' if device is Device.CPU else 'GPUs'}"
        for device in Device
        if target.on(device) or changes.instances[device]
    ]
    needed = " and ".join(counts) or "none"
    bounds = f"{state.service.least} to {state.service.most} allowed"
    failed = len([one for one in state.instances if one.state is InstanceState.FAILED])
    lost = f"; {failed} failed" if failed else ""
    return f"{_figures(state)}; needed: {needed} ({bounds}{lost}): {target.why}"


def _figures(state: ServiceState) -> str:
    if math.isnan(state.load_qps):
        return "load unknown"
    expected = (
        "" if math.isnan(state.forecast_qps) else f" (seen {state.seen_qps:.4g}, expected {state.forecast_qps:.4g})"
    )
    answered = [
        f"{state.capacity_of(device):.4g} q/s on {'cores' if device is Device.CPU else 'a GPU'}"
        for device in Device
        if state.capacity_of(device)
    ]
    counted = f", {state.settings.headroom:.0%} of it counted" if answered else ""
    capacity = f"; an instance answers {' or '.join(answered)}{counted}" if answered else ""
    return f"load {state.load_qps:.4g} q/s{expected}{capacity}"


def _cooled_s(state: ServiceState, target: Target, now_s: float) -> float:
    """When the cool-down ends; infinite if none runs."""
    ends_s = state.low_since_s + state.settings.cool_down_s
    return ends_s if target.lower and ends_s > now_s else math.inf


def _give_way(
    snapshot: ClusterSnapshot, leaving: GivingWay, places: FreePlaces, urgent: Sequence[tuple[ServiceState, int]]
) -> list[PreemptJob]:
    """Who leaves for services that need GPUs and find none."""
    jobs, table = snapshot.jobs, snapshot.services
    found = []
    for state, wanted in urgent:
        mine = (table.task_service == state.row) & (table.task_device == Device.GPU)
        request = places.request(state, Device.GPU)
        able = _able_to_start(snapshot, table.task_id[mine], request.gpu_type)
        if (mine.any() and not able) or places.is_overdue_waiting(state, Device.GPU):
            continue
        tasks = tuple(able[:wanted])
        for _ in range(wanted):
            rows = leaving.find(request, places.nodes_for(state, Device.GPU))
            if rows is None:
                break
            found += [
                PreemptJob(
                    int(jobs.job_id[row]),
                    tasks,
                    f"submitted last of those that can be requeued, and no GPU is free for a service: {_figures(state)}",
                )
                for row in rows
            ]
    return found


def _able_to_start(snapshot: ClusterSnapshot, tasks: IntColumn, gpu_type: str) -> list[int]:
    """Of some tasks those that lack nothing but places, as far as Slurm has said, or that it does not show. None of another
    GPU type, and none for whom nobody may be preempted, such as after jobs were in vain for others like it.
    """
    jobs = snapshot.jobs
    row = np.minimum(np.searchsorted(jobs.job_id, tasks), len(jobs) - 1)
    code = jobs.gpu_types.index(gpu_type) if gpu_type in jobs.gpu_types else -1
    able = (jobs.state[row] == JobState.PENDING) & (jobs.gpu_type[row] == code)
    if len(jobs.may_preempt):
        able &= jobs.may_preempt[row]
    return list(tasks[able | (jobs.job_id[row] != tasks)].tolist())


def _with_preempts(plan: Plan, preempts: Sequence[PreemptJob]) -> Plan:
    if not preempts:
        return plan
    verdict = plan.notes.verdict.copy()
    verdict[np.isin(plan.notes.job_id, [one.job_id for one in preempts])] = JobVerdict.PREEMPT
    return replace(plan, notes=replace(plan.notes, verdict=verdict), actions=(*plan.actions, *preempts))
