"""soda on hand-made clusters: who runs, who makes way, who joins whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.policies.run_times.expected_run_times import ExpectedRunTimes
from slurm_soda.policies.run_times.remaining_time_curve import BINS
from slurm_soda.policies.sharing.job_kinds import TimeSlicingPrior
from slurm_soda.policies.sharing.mechanism.mechanism import IDEAL, SLURM
from slurm_soda.policies.sharing.pair_knowledge.learned_slowdowns import LearnedSlowdowns, PredictedSlowdowns
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingPolicy, SharingSnapshot
from slurm_soda.policies.sharing.soda.expected_waits import MOST_JOBS, expect_waits_s
from slurm_soda.policies.sharing.soda.policy import Soda
from slurm_soda.policies.sharing.soda.preemption_price import sum_shorter
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.cases import NOW_S, cluster, preempted, running, verdicts, waiting
from tests.policies.sharing.scenes import Table, scene

MILD, HARSH = Table(else_xi=1.1), Table(else_xi=2.5)
SODA = Soda(change_s=10.0)


def job(job_id: int, left_s: float, gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "gpus": gpus, "cpus": gpus, "remaining_s": left_s, "preemptible": True, **more}


def on(job_id: int, left_s: float, *devices: int, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "remaining_s": left_s, "on": devices, **more}


def decide(snapshot: SharingSnapshot, policy: Soda = SODA) -> SharingPlan:
    plan = policy.decide(snapshot)
    assert isinstance(plan, SharingPlan)
    return plan


def by_slurm(snapshot: SharingSnapshot) -> SharingSnapshot:
    return replace(snapshot, mechanism=SLURM)


def test_is_a_policy_of_hosts_and_guests() -> None:
    assert isinstance(SODA, SharingPolicy)
    assert SODA.jobs_per_gpu == 2


def test_the_least_expected_service_starts_first() -> None:
    plan = decide(scene([job(1, 500.0), job(2, 100.0), job(3, 300.0)], NodeTable.uniform(1, 1), HARSH))
    assert verdicts(plan) == {1: "WAIT", 2: "START", 3: "WAIT"}


def test_one_short_job_stops_who_has_much_left_and_not_who_soon_ends() -> None:
    for left_s, stops in ((5000.0, True), (105.0, False)):
        jobs = [on(1, left_s, 0, preemptible=True), job(2, 100.0, shares=False)]
        plan = decide(scene(jobs, NodeTable.uniform(1, 1), HARSH))
        assert bool(preempted(plan)) == stops


def test_nobody_is_stopped_who_did_not_agree() -> None:
    plan = decide(scene([on(1, 9000.0, 0, preemptible=False), job(2, 100.0)], NodeTable.uniform(1, 1), HARSH))
    assert not preempted(plan)


def test_who_waits_long_joins_where_that_costs_little() -> None:
    jobs = [on(1, 900.0, 0, preemptible=False), job(2, 600.0), job(3, 1000.0)]
    assert decide(scene(jobs, NodeTable.uniform(1, 1), MILD)).devices == {2: (0,)}
    assert decide(scene(jobs, NodeTable.uniform(1, 1), HARSH)).devices == {}


def test_nobody_joins_who_would_soon_have_a_gpu_of_its_own() -> None:
    jobs = [on(1, 5000.0, 0, preemptible=False), on(2, 5.0, 1, preemptible=False), job(3, 5000.0)]
    assert decide(by_slurm(scene(jobs, NodeTable.uniform(1, 2), MILD))).devices == {}
    jobs[1]["remaining_s"] = 4900.0
    jobs[2]["remaining_s"] = 3000.0
    assert decide(by_slurm(scene(jobs, NodeTable.uniform(1, 2), MILD))).devices == {3: (0,)}


def test_a_guest_for_minutes_of_a_host_for_hours_is_one_who_can_leave_it_at_its_turn() -> None:
    for preemptible, wait_s, joins in ((True, 300.0, True), (False, 300.0, False), (True, 11.0, False)):
        jobs = [
            on(1, 20_000.0, 0, preemptible=False),
            on(2, wait_s, 1, preemptible=False, shares=False),
            job(3, 20_000.0, preemptible=preemptible),
        ]
        for as_done in (scene, lambda *of: by_slurm(scene(*of))):
            plan = decide(as_done(jobs, NodeTable.uniform(1, 2), MILD))
            assert plan.devices == ({3: (0,)} if joins else {})


def test_of_those_that_look_for_a_host_whoever_gains_most_a_second_has_it() -> None:
    table = Table({("m", "x"): (1.5, 1.5), ("m", "y"): (1.05, 1.05)})
    jobs = [
        on(1, 9000.0, 0, preemptible=False, model="m"), job(2, 5000.0, model="x"), job(3, 6000.0, model="y"),
    ]  # fmt: skip
    for longer in (jobs, [jobs[0], jobs[1]]):
        plan = decide(scene(longer, NodeTable.uniform(1, 1), table))
        assert plan.devices == {longer[-1]["job_id"]: (0,)}


def test_a_host_leaves_with_its_guest() -> None:
    jobs = [
        on(1, 90_000.0, 0, preemptible=True),
        on(2, 80_000.0, 0, preemptible=True),
        job(3, 100.0, shares=False),
    ]
    plan = decide(scene(jobs, NodeTable.uniform(1, 1), MILD))
    assert set(preempted(plan)) == {1, 2}
    assert verdicts(plan)[3] == "WAIT_FOR_PREEMPTION"
    jobs[1]["preemptible"] = False
    assert not preempted(decide(scene(jobs, NodeTable.uniform(1, 1), MILD)))


def test_a_guest_of_two_hosts_keeps_neither_from_leaving() -> None:
    jobs = [
        on(1, 90_000.0, 0, preemptible=True),
        on(2, 95_000.0, 1, preemptible=True),
        on(3, 80_000.0, 0, 1, preemptible=True),
        job(4, 100.0, shares=False),
    ]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), MILD))
    assert set(preempted(plan)) == {2, 3}
    assert verdicts(plan)[4] == "WAIT_FOR_PREEMPTION"


def test_what_a_guest_has_of_its_own_can_be_had_without_its_host() -> None:
    jobs = [on(1, 5000.0, 0, preemptible=True), on(2, 90_000.0, 0, 1, preemptible=True), job(3, 100.0, shares=False)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), MILD))
    assert set(preempted(plan)) == {2}
    assert plan.devices[3] == (1,)


def test_a_host_is_dearer_by_what_it_costs_to_preempt_its_guests() -> None:
    for guests, stops in ((1, True), (4, False)):
        jobs = [on(1, 100.0, *range(4), preemptible=True)]
        jobs += [on(2 + device, 60.0, device, preemptible=True) for device in range(guests)]
        jobs += [job(9, 40.0, 4, shares=False)]
        assert bool(preempted(decide(scene(jobs, NodeTable.uniform(1, 4), MILD)))) == stops


def test_a_guest_gets_an_idle_gpu_of_its_own_where_that_pays() -> None:
    for left_s, table, moves in ((5000.0, HARSH, True), (3.0, HARSH, False), (40.0, MILD, False)):
        jobs = [on(1, 5000.0, 0, preemptible=False), on(2, left_s, 0, preemptible=True)]
        plan = decide(scene(jobs, NodeTable.uniform(1, 2), table))
        assert set(preempted(plan)) == ({2} if moves else set())
        assert plan.devices == ({2: (1,)} if moves else {})
    jobs = [on(1, 5000.0, 0, preemptible=False), on(2, 5000.0, 0, preemptible=True), job(3, 9000.0, shares=False)]
    plan = decide(scene(jobs, NodeTable.uniform(1, 2), Table(else_xi=1.5)))
    assert not preempted(plan)
    assert plan.devices == {3: (1,)}


def assumed(snapshot: SharingSnapshot, *unseen: int) -> SharingSnapshot:
    """Nobody knows how much anybody slows anybody, and that of all jobs but these would be seen."""
    known = LearnedSlowdowns(PredictedSlowdowns(TimeSlicingPrior(), MILD))
    triable = ~np.isin(snapshot.jobs.job_id, unseen)
    return replace(snapshot, known=known, sharing=replace(snapshot.sharing, triable=triable))


@pytest.mark.parametrize(("preemptible", "unseen"), [(True, ()), (False, ()), (True, (1,)), (True, (3,))])
def test_a_pair_that_nobody_knows_is_tried_where_that_is_seen_and_can_be_undone(
    preemptible: bool, unseen: tuple[int, ...]
) -> None:
    jobs = [on(1, 9000.0, 0, preemptible=False), job(3, 20_000.0, preemptible=preemptible)]
    plan = decide(assumed(scene(jobs, NodeTable.uniform(1, 1), MILD), *unseen))
    assert plan.devices == ({3: (0,)} if preemptible and not unseen else {})


def test_a_pair_is_not_tried_for_less_than_a_minute_in_vain_may_cost() -> None:
    jobs = [on(1, 60.0, 0, preemptible=False), job(3, 20_000.0)]
    assert decide(assumed(scene(jobs, NodeTable.uniform(1, 1), MILD))).devices == {}


def test_a_guest_leaves_once_it_is_seen_that_its_place_does_not_pay() -> None:
    jobs = [on(1, 9000.0, 0, preemptible=False), on(2, 9000.0, 0, preemptible=True)]
    together = scene(jobs, NodeTable.uniform(1, 1), MILD)
    for slowdown, lasted_s, leaves in ((2.5, 70.0, True), (2.5, 50.0, False), (1.2, 70.0, False)):
        sharing = replace(together.sharing, observed_slowdown=np.full(2, slowdown), together_s=np.full(2, lasted_s))
        plan = decide(replace(together, sharing=sharing))
        assert set(preempted(plan)) == ({2} if leaves else set())
        # What is known of their kinds would bring the two together again.
        assert [action.parted_from for action in plan.preempts] == ([(1,)] if leaves else [])
    known = decide(replace(together, known=HARSH))
    assert [action.parted_from for action in known.preempts] == [()]


@pytest.mark.parametrize(
    ("left_s", "saves_every_s", "leaves"),
    [(9000.0, np.inf, True), (1000.0, np.inf, False), (9000.0, 600.0, False), (9000.0, 20_000.0, True)],
)
def test_by_slurms_mechanism_a_guest_leaves_before_its_host_ends_if_it_would_lose_more(
    left_s: float, saves_every_s: float, leaves: bool
) -> None:
    """It has done some 3600 s of work."""
    jobs = [
        on(1, 2000.0, 0, preemptible=False, start_s=0.0), on(2, left_s, 0, preemptible=True, start_s=NOW_S - 4000.0)
    ]  # fmt: skip
    snapshot = by_slurm(scene(jobs, NodeTable.uniform(1, 1), MILD))
    sharing = replace(snapshot.sharing, saves_every_s=np.full(2, saves_every_s))
    assert set(preempted(decide(replace(snapshot, sharing=sharing)))) == ({2} if leaves else set())
    assert not preempted(decide(replace(snapshot, sharing=sharing, mechanism=IDEAL)))


def test_what_nobody_sees_within_twice_a_minute_counts_as_it_is_assumed() -> None:
    for began_s, leaves in ((NOW_S - 100.0, False), (NOW_S - 200.0, True)):
        jobs = [
            on(1, 9000.0, 0, preemptible=False, start_s=0.0), on(2, 9000.0, 0, preemptible=True, start_s=began_s)
        ]  # fmt: skip
        plan = decide(assumed(scene(jobs, NodeTable.uniform(1, 1), MILD)))
        assert set(preempted(plan)) == ({2} if leaves else set())


def test_by_slurms_mechanism_nobody_joins_a_host_that_ends_first() -> None:
    jobs = [on(1, 300.0, 0, preemptible=False), job(2, 3000.0), job(3, 4000.0)]
    snapshot = scene(jobs, NodeTable.uniform(1, 1), MILD)
    assert decide(snapshot).devices == {2: (0,)}
    assert decide(by_slurm(snapshot)).devices == {}


def test_without_single_gpus_it_orders_and_preempts_all_the_same() -> None:
    jobs = [running(1, (0, 1), remaining_s=9000.0), waiting(2, remaining_s=50.0)]
    plan = SODA.decide(cluster(jobs, NodeTable.uniform(1, 1)))
    assert set(preempted(plan)) == {1}
    assert plan.facts["sharing_known"] == 0.0


LONGSOME = running(1, (1, 1), since_s=50_000.0, remaining_s=5.0, preemptible=True)


@pytest.mark.parametrize("others", [[], [LONGSOME]])
def test_a_job_that_starts_is_weighed_again_soon_while_others_wait(others: list[dict[str, Any]]) -> None:
    """Its rank grows from then on, whoever else runs, and for how long."""
    jobs = [*others, *(waiting(job_id, preemptible=True) for job_id in (2, 3))]
    nodes = NodeTable.uniform(1 + len(others), 1)
    plan = SODA.decide(cluster(jobs, nodes))
    assert plan.starts.tolist() == [2]
    assert plan.next_event_s == NOW_S + SODA.change_s
    kept = [{**one, "preemptible": False} for one in jobs]
    assert SODA.decide(cluster(kept, nodes)).next_event_s == np.inf, "nobody can take its place"


@pytest.mark.parametrize("left_s", [np.nan, 700.0])
def test_a_learner_that_learned_nothing_is_none_at_all(left_s: float) -> None:
    """As in a sodad that was just installed: jobs have no kind, and maybe a word of their own on what is left."""
    jobs = [running(1, (0, 1), start_s=-500.0, remaining_s=left_s), waiting(2, remaining_s=left_s)]
    bare = cluster(jobs, NodeTable.uniform(1, 1))
    nothing = ExpectedRunTimes(np.zeros((0, BINS)), np.full(2, -1), np.array([500.0, 0.0]))
    scores = [SODA.decide(one).notes.score for one in (bare, replace(bare, run_times=nothing))]
    np.testing.assert_array_equal(*scores)


SERVICES = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=12)


@given(SERVICES, SERVICES)
def test_services_are_summed_over_those_that_wait(run: list[float], wait: list[float]) -> None:
    sums = sum_shorter(np.array(run), np.array(wait))
    assert sums == pytest.approx([sum(max(mine - other, 0.0) for other in wait) for mine in run])


def test_the_price_of_a_preemption_grows_with_its_gpus_and_with_those_that_wait() -> None:
    for behind, stops in ((0, True), (60, False)):
        jobs = [on(1, 133.0, 0, 1, 2, 3, preemptible=True), job(2, 100.0, 4, shares=False)]
        jobs += [job(number, 9000.0, 4, shares=False) for number in range(3, 3 + behind)]
        assert bool(preempted(decide(scene(jobs, NodeTable.uniform(1, 4), HARSH)))) == stops


def known_waits_s(free: int, run: list[tuple[float, int]], wait: list[tuple[float, int]]) -> list[float]:
    """Of jobs whose times are points."""
    (left_s, gpus), (work_s, wanted) = (tuple(zip(*jobs, strict=True)) or ((), ()) for jobs in (run, wait))
    waits = expect_waits_s(free, np.array(left_s)[:, None], gpus, np.array(work_s)[:MOST_JOBS, None], wanted)
    return list(waits.tolist())


@given(
    st.integers(0, 4),
    st.lists(st.tuples(st.floats(1.0, 100.0), st.integers(1, 3)), max_size=6),
    st.lists(st.tuples(st.floats(1.0, 100.0), st.integers(1, 3)), min_size=1, max_size=6),
)
def test_waits_never_fall_along_the_queue(
    free: int, run: list[tuple[float, int]], wait: list[tuple[float, int]]
) -> None:
    waits = known_waits_s(free, run, wait)
    assert len(waits) == len(wait)
    assert waits == sorted(waits)
    if free >= wait[0][1]:
        assert waits[0] == 0.0


def test_waits_of_a_queue_that_is_known() -> None:
    assert known_waits_s(0, [(10.0, 1), (20.0, 1)], [(100.0, 1), (5.0, 1), (5.0, 1)]) == [10.0, 20.0, 25.0]
    many = known_waits_s(0, [(10.0, 1)], [(10.0, 1)] * (2 * MOST_JOBS))
    assert many[-1] == pytest.approx(10.0 * 2 * MOST_JOBS)


def test_of_many_jobs_the_first_one_ends_long_before_any_of_them_on_average() -> None:
    left_s = np.repeat(np.array([[10.0, 20.0, 1000.0, 2000.0]]), 8, axis=0)
    (wait_s,) = expect_waits_s(0, left_s, [1] * 8, np.array([[5.0]]), [1])
    assert wait_s == 10.0
    (alone_s,) = expect_waits_s(0, left_s[:1], [1], np.array([[5.0]]), [1])
    assert alone_s == left_s[0].mean()
