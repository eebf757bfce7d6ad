"""What places beside hosts are worth, and trials; and that whoever asks less often asks wherever one is worth something."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slurm_soda.policies.engine.placement_pass import PlacementPass
from slurm_soda.policies.sharing.arithmetic.revocation import GuestTerms
from slurm_soda.policies.sharing.gpu_occupancy import GpuOccupancy
from slurm_soda.policies.sharing.interference_view import InterferenceView
from slurm_soda.policies.sharing.known_order import PossibleGuest, PossibleHost
from slurm_soda.policies.sharing.pair_knowledge.slowdown_learner import MEASURED_AFTER_S
from slurm_soda.policies.sharing.soda.guest_outcome import WaitingGuest
from slurm_soda.policies.sharing.soda.known_run_times import may_gain
from slurm_soda.policies.sharing.soda.place_worth import GuestInQueue, Hosts, weigh_places, weigh_trials
from slurm_soda.policies.sharing.soda.queue_outlook import QueueOutlook
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.sharing.scenes import Table, scene
from tests.policies.sharing.test_soda import job, on

TIMES_S, XIS, JOBS = st.floats(1.0, 1e6), st.floats(1.0, 4.0), st.integers(0, 20)
MOVES_S = st.sampled_from([0.0, 60.0, np.inf])


def queued(work_s: float, wait_s: float, move_s: float, behind: float, *, revokes: bool = False) -> GuestInQueue:
    guest = WaitingGuest(np.array([work_s]), GuestTerms(1.5, 2.0, np.inf, revokes), wait_s, move_s)
    return GuestInQueue(guest, behind, 0.0)


def host(left_s: float, weight: float) -> Hosts:
    return Hosts(np.array([[left_s]]), np.array([weight]))


@given(TIMES_S, TIMES_S, TIMES_S, XIS, XIS, MOVES_S, JOBS, JOBS, st.floats(1.0, 10.0))
def test_the_policy_is_asked_wherever_a_place_is_worth_something(
    work_s: float, left_s: float, wait_s: float, xi: float, its: float, move_s: float, behind: int, ahead: int,
    too_long: float,
) -> None:  # fmt: skip
    waiting, gpus = behind + ahead + 1, 4
    mine = queued(work_s, wait_s, move_s, behind / gpus, revokes=True)
    worth = weigh_places(mine, host(left_s, 1.0 + waiting / gpus), np.array([xi]), np.array([its]), np.ones(1))
    assume(worth.total_s[0] > 0)
    guest = PossibleGuest(work_s, 1, wait_s * too_long, behind, mine.guest.terms, np.isfinite(move_s))
    assert may_gain(guest, PossibleHost(left_s, 1, xi, its), gpus, waiting, move_s if move_s < np.inf else 60.0)


@given(TIMES_S, TIMES_S, TIMES_S, st.sampled_from([0.0, 60.0]), JOBS)
def test_a_trial_is_worth_no_less_than_to_stay_whatever_is_seen_and_costs_a_minute_at_the_most(
    work_s: float, left_s: float, wait_s: float, move_s: float, behind: int
) -> None:
    mine, its, turns = queued(work_s, wait_s, move_s, behind / 4), host(left_s, 1.0 + behind / 4), np.array([2.0])
    trial = weigh_trials(mine, its, turns, np.ones(1))
    seen = [
        weigh_places(mine, its, xi, xi, np.ones(1)).total_s[0] for xi in np.array([[1.125], [1.375], [1.625], [1.875]])
    ]
    assert trial.total_s[0] >= np.mean(seen) - 1e-6 * max(np.abs(seen))
    assert trial.gain_s[0] == pytest.approx(np.maximum(seen, 0.0).mean())
    assert 0.0 <= trial.cost_s[0] <= (MEASURED_AFTER_S + move_s) * (1.0 + behind / 4) * (1 + 1e-9)


def test_what_a_guest_shares_is_free_once_its_host_has_ended() -> None:
    jobs = [on(1, 300.0, 0), on(2, 50.0, 0), on(3, 900.0, 1), job(4, 100.0), job(5, 100.0)]
    snapshot = scene(jobs, NodeTable.uniform(1, 2), Table(else_xi=1.2))
    placing = PlacementPass(snapshot)
    occupancy = GpuOccupancy(snapshot, placing.free_capacity)
    view = InterferenceView(snapshot, occupancy)
    service = np.array([300.0, 50.0, 900.0, 100.0, 100.0])
    queue = QueueOutlook(snapshot, placing, occupancy, view, waiting=np.array([3, 4]), service=service)
    assert queue.waits_s().tolist() == [360.0, 460.0]
    assert queue.around(1) == (1.0, 0.0)
    assert queue.wait_if_left_s(1, 300.0) == 300.0, "its host is slowed no longer then"
    service[1] = 500.0
    assert queue.around(1) == (0.0, 1.0)
    assert queue.wait_if_left_s(1, 300.0) == 560.0
    assert queue.weight(np.array([2.0]), guests_gone=1) == [3.0]
    assert queue.weight(np.array([2.0])) == [4.0], "guests want GPUs of their own as well"


def test_guests_count_among_those_that_come_after_a_job() -> None:
    jobs = [on(1, 300.0, 0), on(2, 500.0, 0), job(4, 100.0), job(5, 700.0)]
    snapshot = scene(jobs, NodeTable.uniform(1, 1), Table(else_xi=1.2))
    placing = PlacementPass(snapshot)
    occupancy = GpuOccupancy(snapshot, placing.free_capacity)
    view = InterferenceView(snapshot, occupancy)
    service = np.array([300.0, 500.0, 100.0, 700.0])
    queue = QueueOutlook(snapshot, placing, occupancy, view, waiting=np.array([2, 3]), service=service)
    assert [queue.behind(at) for at in (0, 1)] == [2, 0]
