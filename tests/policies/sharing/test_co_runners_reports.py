"""What ojpp, ojpap and colocation tell of a job and whom it meets: by hand, and against the definitions."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.explanation.sharing import explain_sharing
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.sharing.arithmetic.memory_demand import MemoryDemand
from slurm_soda.policies.sharing.arithmetic.sharing_decision import Footprint
from slurm_soda.policies.sharing.arithmetic.throughput import Throughput
from slurm_soda.policies.sharing.co_runners.report import BoundCheck, CoRunnersReport, LazyCoRunnersReports
from slurm_soda.policies.sharing.colocation.policy import Colocation
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, KindProfile, Source
from slurm_soda.policies.sharing.ojpp.policy import Ojpap, Ojpp
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import NOW_S, verdicts
from tests.policies.sharing.lodgers import Fitting, holders, random_scene, slowdown
from tests.policies.sharing.scenes import Table, scene
from tests.sampling import examples

PAIR = Fitting({("a", "b"): (1.1, 1.15)}, error=0.02, source=Source.PREDICTED)
ONE_GPU = NodeTable.uniform(1, 1)


def runs(job_id: int, *on: int, **more: Any) -> dict[str, Any]:
    return {"job_id": job_id, "on": on, "model": "a", "remaining_s": 1000.0, **more}


def waits(job_id: int, gpus: int = 1, **more: Any) -> dict[str, Any]:
    about = {"gpus": gpus, "cpus": gpus, "submit_s": float(job_id), "model": "b", "remaining_s": 100.0}
    return {"job_id": job_id, **about, **more}


def plan_of(snapshot: SharingSnapshot, policy: Policy) -> SharingPlan:
    plan = policy.decide(snapshot)
    assert isinstance(plan, SharingPlan)
    return plan


def told(snapshot: SharingSnapshot, policy: Policy, job_id: int) -> CoRunnersReport:
    found = plan_of(snapshot, policy).decisions[job_id]
    assert isinstance(found, CoRunnersReport)
    return found


def measure(meeting: CoRunnersReport, name: str) -> BoundCheck:
    (found,) = [one for one in meeting.bound_checks if name in one.name]
    return found


def test_a_pair_is_told_with_all_its_numbers() -> None:
    met = told(scene([runs(1, 0), waits(2)], ONE_GPU, PAIR), Ojpp(), 2)
    assert met.share
    assert met.devices == (0,)
    assert met.alone_s == (100.0, 1000.0)
    assert met.sequential is not None
    assert (met.sequential.new_end_s, met.sequential.ends_s, met.sequential.mean_s) == (1100.0, (1000.0,), 1050.0)
    assert met.together is not None
    # The new one needs 115 s; meanwhile the other one gets 115 / 1.1 s done.
    assert met.together.new_end_s == pytest.approx(115.0)
    assert met.together.ends_s == pytest.approx((115.0 + 1000.0 - 115.0 / 1.1,))
    assert explain_sharing(met, lambda job_id: f"no. {job_id}").sentences == (
        "Alone it takes 100 s; its co-runners still need 1,000 s.",
        "One after the other: it ends after 1,100 s, all of them after 1,050 s on average.",
        "Together now: it ends after 115 s, the others after 1,010 s, all of them after 563 s on average.",
        "Slowdown with job no. 1: it takes 1.15 ± 0.02 (predicted) times as long, the other one 1.10 ± 0.02 (predicted) "
        "times.",
        "On GPU 0, with it: jobs on a GPU 2, at most 3; collision of memory peaks (tau) 0.000, at most 0.100; interference "
        "(theta) 0.150, at most 0.200.",
        "So: shares: all bounds hold there, and it is disturbed least.",
    )


def test_beside_two_slowdowns_add_up_and_caution_counts() -> None:
    snapshot = scene([runs(1, 0), runs(2, 0), waits(3)], ONE_GPU, Fitting(else_xi=1.1, error=0.05))
    met = told(snapshot, Ojpp(interference=0.3), 3)
    assert [co_runner.job_id for co_runner in met.co_runners] == [1, 2]
    assert measure(met, "theta)").value == pytest.approx(0.2)
    # Each of the others is slowed by 1.1 now, and by 1.2 with the new one: what it still needs is at the pace of now.
    assert met.alone_s == pytest.approx((100.0, 1100.0, 1100.0))
    assert met.together is not None
    assert met.together.new_end_s == pytest.approx(120.0)
    assert met.together.ends_s[0] == pytest.approx(120.0 + 1100.0 - 120.0 * 1.1 / 1.2)
    assert measure(told(snapshot, Ojpp(interference=0.4, caution=1.0), 3), "theta)").value == pytest.approx(0.3)


def test_who_waits_is_told_what_is_in_the_way_and_what_would_come_of_it() -> None:
    met = told(scene([runs(1, 0), waits(2)], ONE_GPU, PAIR), Ojpp(interference=0.12), 2)
    assert not met.share
    assert met.devices == (0,)
    assert not measure(met, "theta)").holds
    assert met.reason == "waits: in the way on GPUs in use that it might have: interference (theta) on 1"
    text = " ".join(explain_sharing(met).sentences)
    assert "Together, if it were allowed: it would end after 115 s" in text
    assert "interference (theta) 0.150, but at most 0.120 is allowed" in text


def test_who_starts_apart_is_told_of_the_gpu_that_came_nearest() -> None:
    known = Fitting({("a", "b"): (1.3, 1.3), ("c", "b"): (1.25, 1.0)}, else_xi=1.0)
    jobs = [runs(1, 0), runs(2, 1, model="c"), waits(3)]
    met = told(scene(jobs, NodeTable.uniform(1, 3), known), Ojpp(), 3)
    assert not met.share
    assert [co_runner.job_id for co_runner in met.co_runners] == [2]
    assert met.reason.startswith("starts on GPUs of its own: ")
    assert met.reason.endswith("interference (theta) on 2")


@pytest.mark.parametrize(
    ("old", "new", "known", "why"),
    [
        ({"shares": False}, {}, PAIR, "a job that never shares on 1"),
        ({}, {"shares": False}, PAIR, "or it does not share"),
        ({}, {"model": ""}, PAIR, "its kind is not known"),
        ({"max_slowdown": 1.05}, {}, PAIR, "slowdown (owner's bound) on 1"),
        ({}, {"max_slowdown": 1.05}, PAIR, "slowdown (owner's bound) on 1"),
        ({}, {}, Table(else_xi=1.0), "memory not known to suffice on 1"),
        ({}, {}, Fitting(), "an unknown slowdown on 1"),
        ({}, {"cpus": 1000}, PAIR, "or on nodes without CPUs or memory for it"),
        ({"state": JobState.SUSPENDED}, {}, PAIR, "others use no GPU that it might have"),
    ],
)
def test_reasons_not_to_meet(old: dict[str, Any], new: dict[str, Any], known: Table, why: str) -> None:
    jobs = [runs(1, 0, **old), waits(2, **new)]
    nodes = NodeTable.uniform(1, 1, cpus=1000 if "cpus" in new else 4)
    assert why in told(scene(jobs, nodes, known), Ojpp(), 2).reason


def test_an_owners_bound_says_whose_it_is() -> None:
    met = told(scene([runs(1, 0, max_slowdown=1.05), waits(2)], ONE_GPU, PAIR), Ojpp(), 2)
    assert "slowdown (owner's bound) of job first 1.100, but at most 1.050 is allowed" in " ".join(
        explain_sharing(met, {1: "first", 2: "second"}.__getitem__).sentences
    )


class Peaking(Table):
    """Somebody who knows how memory comes and goes."""

    def demand(self, kind: JobKind, device_mib: float) -> MemoryDemand | None:
        return MemoryDemand(0.3, 0.4, 0.2)


def test_peaks_of_memory_that_may_meet() -> None:
    known = Peaking(else_xi=1.0, footprints={name: Footprint(700.0, 0.0) for name in "ab"})
    snapshot = scene([runs(1, 0), waits(2)], ONE_GPU, known, memory_mib=1000.0)
    met = told(snapshot, Ojpp(opportunistic=True, collision=0.05), 2)
    # Both peak a fifth of the time: 0.2 x 0.2; two bases and one extra: 0.3 + 0.3 + 0.4.
    assert met.share
    assert measure(met, "tau").value == pytest.approx(0.04)
    assert measure(met, "share of memory").value == pytest.approx(1.0)
    met = told(snapshot, Ojpp(opportunistic=True, collision=0.03), 2)
    assert met.reason == "waits: in the way on GPUs in use that it might have: collision of memory peaks (tau) on 1"
    assert measure(told(snapshot, Ojpp(), 2), "share of memory").value == pytest.approx(1.4)


def test_the_balance_of_a_gang() -> None:
    known = Fitting({("a", "b"): (1.15, 1.15)}, else_xi=1.0)
    snapshot = scene([runs(1, 0), waits(2, 2)], NodeTable.uniform(1, 2), known)
    met = told(snapshot, Ojpp(balance=0.16), 2)
    assert met.devices == (0, 1)
    # Slowed by 0.15 beside the other one, and not at all on its own GPU.
    assert measure(met, "balance").value == pytest.approx(0.15)
    met = told(snapshot, Ojpp(), 2)
    assert met.reason.startswith("waits: 1 would do one by one, but they are too few, out of balance together")


def test_the_moment_of_each_decision_counts() -> None:
    """Who comes later in the same plan is no mate of who came before; jobs alike share one refusal."""
    snapshot = scene([waits(at, model="a") for at in (1, 2, 3, 4, 5)], ONE_GPU, Fitting(else_xi=1.05))
    found = plan_of(snapshot, Ojpp()).decisions
    co_runners = {
        at: [co_runner.job_id for co_runner in one.co_runners]
        for at, one in found.items()
        if isinstance(one, CoRunnersReport)
    }
    assert co_runners == {1: [], 2: [1], 3: [1, 2], 4: [1, 2, 3], 5: [1, 2, 3]}
    assert [found[at].share for at in (1, 2, 3, 4, 5)] == [False, True, True, False, False]
    assert "jobs on a GPU on 1" in told(snapshot, Ojpp(), 5).reason


def test_a_move_is_told_with_its_cost_and_what_triggered_it() -> None:
    jobs = [
        runs(1, 0, start_s=NOW_S - 3600.0, submit_s=1.0),
        runs(2, 0, model="b", start_s=NOW_S - 150.0, submit_s=2.0),
    ]
    known = Fitting({("a", "b"): (1.5, 1.4)}, else_xi=1.0)
    met = told(scene(jobs, NodeTable.uniform(1, 2), known), Ojpap(interference=0.1, weight=0.5), 1)
    assert met.move is not None
    assert (met.move.source, met.move.target, met.devices) == (0, 1, (1,))
    assert met.move.interference == pytest.approx(0.5)
    # Two observations in 150 s, of one every 60 s: (1 - 0.5 x 0.5) 0.5.
    assert met.move.average == pytest.approx(0.375)
    assert met.move.cost_gpu_s == 60.0
    text = explain_sharing(met).sentences
    assert text[0] == "GPU 0, which it leaves: interference (theta) 0.500, 0.375 smoothed over time, at most 0.100."
    assert text[1] == (
        "Slowdown there with job 2: it takes 1.50 (measured) times as long, the other one 1.40 (measured) times."
    )
    assert text[2] == "To move to GPU 1 costs 60 GPU s, of 3,600 for all moves of one decision."
    move = explain_sharing(met).numbers["move"]
    assert (move["from_gpu"], move["to_gpu"], move["left"][0]["job_id"]) == (0, 1, 2)


SIZES = Fitting({("a", "a"): (1.0, 1.0), ("b", "b"): (1.2, 1.2), ("a", "b"): (1.1, 1.25)})
"""So a stands for half a GPU, b for 0.6."""


def test_colocation_tells_summed_occupancy_and_the_speed_up() -> None:
    met = told(scene([runs(1, 0), waits(2)], ONE_GPU, SIZES), Colocation(limit=1.15), 2)
    assert met.share
    occupancy, delta = measure(met, "(C)"), measure(met, "(delta)")
    assert occupancy.value == pytest.approx(1.1)
    assert occupancy.bound == 1.15
    # Two jobs, and the slower one takes 1.25 times as long.
    assert delta.value == pytest.approx(2 / 1.25)
    assert delta.bound is None
    assert met.alone_s == (100.0, 1000.0)
    assert met.together is not None
    assert met.together.new_end_s == pytest.approx(125.0)
    met = told(scene([runs(1, 0), waits(2)], ONE_GPU, SIZES), Colocation(limit=1.05), 2)
    assert met.reason == "waits: in the way on GPUs in use that it might have: summed occupancy (C) on 1"
    assert "summed occupancy (C) 1.100, but at most 1.050 is allowed" in " ".join(explain_sharing(met).sentences)


class Profiled(Fitting):
    """Kinds of half a GPU's occupancy, and a quarter of its bandwidth."""

    def profile(self, kind: JobKind) -> KindProfile | None:
        known = [Estimate(value, 0.0, Source.MEASURED) for value in (0.05, 0.025)]
        return KindProfile(kind, *known)

    def throughput(self, kind: JobKind) -> Throughput | None:
        return Throughput(0.1, 0.0)


def test_colocation_with_a_line_tells_the_speed_up_that_it_predicts() -> None:
    known = Profiled({("a", "a"): (1.0, 1.0), ("b", "b"): (2.5, 2.5), ("a", "b"): (1.6, 1.6)})
    jobs = [runs(1, 0, batch=8), waits(2, batch=8)]
    met = told(scene(jobs, ONE_GPU, known), Colocation(speedup_model="linear"), 2)
    assert measure(met, "(C)").value == pytest.approx(1.0)
    assert measure(met, "(M)").value == pytest.approx(0.5)
    predicted = measure(met, "from C and M")
    # All three pairs have the same loads, so the line is their mean: (2 + 0.8 + 1.25) / 3.
    assert predicted.value == pytest.approx(1.35)
    assert (predicted.bound, predicted.least) == (1.0, True)
    assert met.share


def test_colocation_tells_who_waits_for_gpus_of_its_own() -> None:
    known = Fitting({("a", "a"): (1.0, 1.0)})
    assert "its occupancy is not known" in told(scene([runs(1, 0), waits(2)], ONE_GPU, known), Colocation(), 2).reason
    snapshot = scene([runs(1, 0, shares=False), waits(2)], ONE_GPU, SIZES)
    assert "a job of unknown occupancy" in told(snapshot, Colocation(), 2).reason
    # Free GPUs come first, so nothing was weighed.
    assert 2 not in plan_of(scene([runs(1, 0), waits(2)], NodeTable.uniform(1, 2), SIZES), Colocation()).decisions


def test_colocation_refuses_by_kind() -> None:
    """One that fits beside nobody speaks for those of its kind, not for others that ask for as many GPUs."""
    known = Fitting(
        {**SIZES.pairs, ("c", "c"): (1.3, 1.3), ("a", "c"): (1.1, 1.1)}, misfits=frozenset({frozenset("ab")})
    )
    snapshot = scene([runs(1, 0), waits(2), waits(3), waits(4, model="c")], ONE_GPU, known)
    assert "an owner's bound on 1" in told(snapshot, Colocation(limit=9.0), 2).reason
    assert "an owner's bound on 1" in told(snapshot, Colocation(limit=9.0), 3).reason
    assert plan_of(snapshot, Colocation(limit=9.0)).devices == {4: (0,)}


def test_unknown_run_times_and_slowdowns_leave_the_schedules_out() -> None:
    snapshot = scene([runs(1, 0, remaining_s=np.nan), waits(2)], ONE_GPU, PAIR)
    met = told(snapshot, Ojpp(), 2)
    assert (met.sequential, met.together) == (None, None)
    assert explain_sharing(met).sentences[0] == "Alone it takes 100 s; its co-runners still need an unknown time."
    met = told(scene([runs(1, 0), waits(2)], ONE_GPU, Fitting()), Ojpp(), 2)
    assert met.sequential is not None
    assert met.together is None
    assert "Slowdown with job 1: not known." in explain_sharing(met).sentences


def test_nothing_is_worked_out_before_somebody_asks() -> None:
    rows: list[int] = []
    known = told(scene([runs(1, 0), waits(2)], ONE_GPU, PAIR), Ojpp(), 2)

    def tell(row: int) -> CoRunnersReport:
        rows.append(row)
        return known

    asked = LazyCoRunnersReports({7: 0, 9: 1}, tell)
    assert (list(asked), len(asked), 9 in asked, 8 in asked, asked.get(8)) == ([7, 9], 2, True, False, None)
    assert rows == []
    assert asked[9] is known
    assert rows == [1]


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**9),
    policy=st.sampled_from((
        Ojpp(), Ojpp(strategy="best-fit"), Ojpp(strategy="b-greedy"), Ojpp(interference=0.4, balance=0.3),
        Ojpap(interference=0.1, min_run_s=0.0, weight=0.0), Colocation(), Colocation(limit=1.2, jobs_per_gpu=2),
        Colocation(speedup_model="linear"),
    )),
)  # fmt: skip
def test_what_is_told_agrees_with_the_plan(seed: int, policy: Policy) -> None:
    snapshot = random_scene(random.Random(seed))
    plan = plan_of(snapshot, policy)
    there = holders(snapshot, plan)
    ids = {job_id for job_id, verdict in verdicts(plan).items() if verdict in ("WAIT", "START")}
    if not isinstance(policy, Colocation):
        assert ids | set(plan.devices) == set(plan.decisions)
    else:
        assert ids - set(plan.devices) <= set(plan.decisions) <= ids
    for job_id, met in plan.decisions.items():
        assert isinstance(met, CoRunnersReport)
        json.dumps(explain_sharing(met).numbers)
        assert all(explain_sharing(met).sentences)
        row = snapshot.jobs.row(job_id)
        if met.share:
            assert met.devices == plan.devices[job_id]
            assert all(one.holds for one in met.bound_checks)
            final = {int(snapshot.jobs.job_id[one]) for device in met.devices for one in there[device]}
            assert {co_runner.job_id for co_runner in met.co_runners} <= final
        elif met.devices and snapshot.jobs.gpus[row] == 1 and "would do" not in met.reason:
            # One GPU would have done, so something must stand in the way there.
            unknown = any(word in met.reason for word in ("a job ", "an unknown slowdown", "not known"))
            assert unknown or not all(one.holds for one in met.bound_checks)
        theta = [one.value for one in met.bound_checks if "theta)" in one.name]
        co_runners = [snapshot.jobs.row(co_runner.job_id) for co_runner in met.co_runners]
        if theta and len(met.devices) == 1 and np.isfinite(theta[0]):
            rows = [row, *co_runners]
            assert theta[0] == pytest.approx(max(slowdown(snapshot, one, rows) for one in rows))
