"""What holds of every plan of soda, however jobs share GPUs: guests of several hosts, guests of guests, odd times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.remaining_time_curve import BINS
from slurm_soda.policies.sharing.engine.assembly import assemble_sharing_snapshot
from slurm_soda.policies.sharing.engine.plan_check import check_sharing_plan
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM, Mechanism
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.snapshot import JobState, NodeTable
from slurm_soda.policies.waiting.bounded import decide_bounded
from slurm_soda.policies.waiting.overdue import DEFAULT_PASSING_LIMIT_S, mark_overdue
from tests.policies.cases import NOW_S
from tests.policies.sharing.scenes import Table, scene
from tests.policies.sharing.test_sharing_properties import MODELS, tables
from tests.sampling import examples

on_some_worlds = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
TOO_WIDE = 99
LEFT_S = [float("nan"), float("inf"), 0.0, 1e-9, 100.0, 1e5, 1e12]
DONE_S = [0.0, 1e-9, 100.0, 1e5, 1e12]
STATES = [JobState.RUNNING] * 6 + [JobState.COMPLETING, JobState.SUSPENDED]


@st.composite
def odd_rows(draw: st.DrawFn, job_id: int) -> dict[str, Any]:
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4, TOO_WIDE]))
    executed_s = draw(st.sampled_from(DONE_S))
    return {
        "job_id": job_id, "gpus": gpus, "cpus": max(gpus, 1), "user": draw(st.sampled_from("ab")),
        "remaining_s": draw(st.sampled_from(LEFT_S)), "time_limit_s": draw(st.sampled_from([*DONE_S, float("inf")])),
        "executed_s": executed_s, "attained_gpu_s": gpus * executed_s,
        "submit_s": draw(st.sampled_from([0.0, NOW_S + 1e6])),
        "waited_s": draw(st.sampled_from([0.0, 10.0, 2 * DEFAULT_PASSING_LIMIT_S])),
        "model": draw(st.sampled_from([*MODELS, *MODELS, ""])), "batch": draw(st.sampled_from([0, 1, 8])),
        "shares": draw(st.sampled_from([True, True, True, False])),
        "max_slowdown": draw(st.sampled_from([np.inf, np.inf, 1.0, 2.0])),
        "preemptible": draw(st.sampled_from([True, True, False])),
    }  # fmt: skip


class Seats:
    """Who came to which GPU first, and as whose guest."""

    def __init__(self, devices: int, mechanism: Mechanism) -> None:
        self._on: list[list[int]] = [[] for _ in range(devices)]
        self._guests_host = mechanism.guests_host
        self.as_guest: set[tuple[int, int]] = set()

    def open(self) -> list[int]:
        return [at for at, there in enumerate(self._on) if not there or self._may_join(there)]

    def take(self, job_id: int, devices: list[int]) -> None:
        for device in devices:
            if self._on[device]:
                self.as_guest.add((job_id, device))
            self._on[device].append(job_id)

    def _may_join(self, there: list[int]) -> bool:
        return len(there) == 1 and (self._guests_host or there[0] not in {job_id for job_id, _ in self.as_guest})


@st.composite
def odd_scenes(draw: st.DrawFn) -> SharingSnapshot:
    """Jobs run on any GPUs with at most one other each, so a guest may have several hosts, and guests of its own."""
    mechanism = draw(st.sampled_from([IDEAL, SLURM]))
    nodes = NodeTable.uniform(draw(st.integers(1, 3)), draw(st.sampled_from([2, 4])), cpus=16)
    nodes = replace(nodes, usable=np.array([draw(st.sampled_from([True, True, True, False])) for _ in nodes.gpus]))
    seats, rows = Seats(int(nodes.gpus.sum()), mechanism), []
    for job_id in range(1, draw(st.integers(1, 12)) + 1):
        row = draw(odd_rows(job_id))
        possible = seats.open()
        if 0 < row["gpus"] <= len(possible) and draw(st.sampled_from([True, True, False])):
            mine = sorted(draw(st.permutations(possible))[: row["gpus"]])
            seats.take(job_id, mine)
            row |= {"on": tuple(mine), "start_s": NOW_S - draw(st.sampled_from([0.0, 500.0, -10.0]))}
            row["state"] = draw(st.sampled_from(STATES))
        rows.append(row)
    snapshot = scene(rows, nodes, draw(tables()))
    held = zip(snapshot.jobs.job_id[snapshot.devices.owner].tolist(), snapshot.devices.held.tolist(), strict=True)
    guest = np.array([pair in seats.as_guest for pair in held], dtype=np.bool_)
    devices = replace(snapshot.devices, guest=guest)
    assembled = assemble_sharing_snapshot(snapshot, devices, snapshot.sharing, snapshot.known, mechanism)
    return _with_learned(draw, assembled)


def _with_learned(draw: st.DrawFn, snapshot: SharingSnapshot) -> SharingSnapshot:
    if draw(st.booleans()):
        return snapshot
    count = len(snapshot.jobs)
    likely = np.full((2, BINS), 1e-6)
    likely[0, BINS // 2] = likely[1, :] = 1.0
    kind = np.array(draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=count, max_size=count)))
    worked_s = np.array(draw(st.lists(st.sampled_from(DONE_S), min_size=count, max_size=count)))
    return replace(snapshot, run_times=ExpectedRunTimes(likely / likely.sum(axis=1, keepdims=True), kind, worked_s))


def where_sharing_pays(snapshot: SharingSnapshot) -> SharingSnapshot:
    """The same jobs with known run times and hardly any slowdown."""
    left_s = np.clip(np.nan_to_num(snapshot.jobs.remaining_s, nan=1000.0), 100.0, 1e5)
    jobs = snapshot.jobs.with_columns(remaining_s=left_s, time_limit_s=np.full(len(left_s), np.inf))
    return replace(snapshot, jobs=jobs, known=Table(else_xi=1.01), run_times=ExpectedRunTimes())


def alone(snapshot: SharingSnapshot, soda: Soda) -> Plan:
    return soda.decide(snapshot)


def under_the_passing_limit(snapshot: SharingSnapshot, soda: Soda) -> Plan:
    return decide_bounded(soda, mark_overdue(snapshot, DEFAULT_PASSING_LIMIT_S))


@pytest.mark.parametrize("decide", [alone, under_the_passing_limit])
@given(snapshot=st.one_of(odd_scenes(), odd_scenes().map(where_sharing_pays)), change_s=st.sampled_from([0.0, 60.0]))
@on_some_worlds
def test_plans_can_be_carried_out(
    decide: Callable[[SharingSnapshot, Soda], Plan], snapshot: SharingSnapshot, change_s: float
) -> None:
    plan = decide(snapshot, Soda(change_s))
    assert isinstance(plan, SharingPlan)
    jobs = snapshot.jobs
    starts = {job_id: plan.places[job_id] for job_id in plan.starts.tolist()}
    check_sharing_plan(snapshot, plan, starts, most=2)
    leaving = [jobs.row(item.job_id) for item in plan.preempts]
    assert len(set(leaving)) == len(leaving)
    assert jobs.preemptible[leaving].all()
    assert (jobs.state[leaving] == JobState.RUNNING).all()
    assert set(plan.order.tolist()) == set(jobs.job_id[jobs.state == JobState.PENDING].tolist())
    assert np.isfinite(plan.notes.score).all()
    assert plan.next_event_s >= snapshot.now_s
