"""Tiresias, rule by rule: jobs and nodes in, verdicts and preemptions out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.plan import Plan
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.snapshot import JobState, NodeTable
from tests.policies.cases import NOW_S, PAPER, cluster, mixed_nodes, preempted, running, verdicts, waiting

START, WAIT, RUN, PREEMPT = "START", "WAIT", "RUN", "PREEMPT"
PROTECTED, SOON, TOO_LARGE = "PROTECTED", "WAIT_FOR_PREEMPTION", "TOO_LARGE"
OLD = {"attained_gpu_s": 5000.0}
"""Past the only threshold, 3200 GPU s: second queue."""
FRESH = {"attained_gpu_s": 100.0}


def ran(job_id: int, gpus: int, first_start_s: float, **columns: Any) -> dict[str, Any]:
    """A job that waits after having run."""
    return waiting(job_id, gpus, first_start_s=first_start_s, **{"executed_s": 10.0, **FRESH, **columns})


def plan_of(jobs: list[dict[str, Any]], nodes: NodeTable | None = None, **parameters: Any) -> Plan:
    return make_policy("tiresias-las", {**PAPER, **parameters}).decide(cluster(jobs, nodes or mixed_nodes(4)))


# name, jobs, GPUs of the nodes, verdicts, who gives way to whom
CASES: list[tuple[str, list[dict[str, Any]], tuple[int, ...], dict[int, str], dict[int, tuple[int, ...]]]] = [
    ("a newcomer takes what is free",
     [running(1, (0, 2), **OLD), waiting(2, 2)], (4,), {1: RUN, 2: START}, {}),
    ("a newcomer preempts a job of a later queue",
     [running(1, (0, 4), **OLD), waiting(2, 1)], (4,), {1: PREEMPT, 2: SOON}, {1: (2,)}),
    ("a newcomer does not preempt a job of its own queue",
     [running(1, (0, 4), **FRESH), waiting(2, 4)], (4,), {1: RUN, 2: WAIT}, {}),
    ("inside a queue the first start counts, not the submission",
     [running(1, (0, 4), since_s=70, **FRESH), ran(2, 4, NOW_S - 60, submit_s=1), waiting(3, 4, submit_s=0)], (4,),
     {1: RUN, 2: WAIT, 3: WAIT}, {}),
    ("a job that started earlier comes back before one that started later",
     [running(1, (0, 4), since_s=70, **FRESH), ran(2, 4, NOW_S - 80, submit_s=99), waiting(3, 4, submit_s=1)], (4,),
     {1: PREEMPT, 2: SOON, 3: WAIT}, {1: (2,)}),
    ("a job that does not fit is skipped",
     [running(1, (0, 2), **FRESH), waiting(2, 4, submit_s=1), waiting(3, 2, submit_s=2)], (4,),
     {1: RUN, 2: WAIT, 3: START}, {}),
    ("a gang starts whole or not at all",
     [running(1, (0, 3), **FRESH), waiting(2, 4)], (4, 4), {1: RUN, 2: START}, {}),
    ("a gang over nodes needs all of them",
     [running(1, (0, 1), **FRESH), waiting(2, 8, nodes=2, gpus_per_node=4)], (4, 4), {1: RUN, 2: WAIT}, {}),
    ("a job that cannot checkpoint keeps its GPUs",
     [running(1, (0, 4), preemptible=False, **OLD), waiting(2, 1)], (4,), {1: PROTECTED, 2: WAIT}, {}),
    ("so does one within its minimum run time",
     [running(1, (0, 4), since_s=59, **OLD), waiting(2, 1)], (4,), {1: PROTECTED, 2: WAIT}, {}),
    ("others are packed around it",
     [running(1, (0, 2), preemptible=False, **OLD), running(2, (0, 2), **OLD), waiting(3, 2), waiting(4, 4)], (4,),
     {1: PROTECTED, 2: PREEMPT, 3: SOON, 4: WAIT}, {2: (3,)}),
    ("no preemption where it would not make enough room",
     [running(1, (0, 2), preemptible=False, **OLD), running(2, (0, 2), **OLD), waiting(3, 4)], (4,),
     {1: PROTECTED, 2: RUN, 3: WAIT}, {}),
    ("no preemption across nodes that do not add up to the shape",
     [running(1, (0, 2), preemptible=False, **FRESH), running(2, (1, 2), preemptible=False, **FRESH),
      running(3, (0, 2), **OLD), running(4, (1, 2), **OLD), waiting(5, 4, gpus_per_node=4)], (4, 4),
     {1: RUN, 2: RUN, 3: RUN, 4: RUN, 5: WAIT}, {}),
    ("the job that ranks last gives way",
     [running(1, (0, 2), since_s=900, **OLD), running(2, (0, 2), since_s=500, **OLD),
      running(3, (1, 2), since_s=700, **OLD), running(4, (1, 2), since_s=800, **OLD), waiting(5, 2)], (4, 4),
     {1: RUN, 2: PREEMPT, 3: RUN, 4: RUN, 5: SOON}, {2: (5,)}),
    ("what is free is used before anybody is preempted",
     [running(1, (0, 2), since_s=500, **OLD), running(2, (1, 3), since_s=900, **OLD), waiting(3, 2)], (4, 4),
     {1: RUN, 2: RUN, 3: START}, {}),
    ("a small victim that a larger one makes needless stays",
     [running(1, (0, 1), since_s=500, **OLD), running(2, (0, 3), since_s=900, **OLD),
      waiting(3, 3, gpus_per_node=3)], (4,), {1: RUN, 2: PREEMPT, 3: SOON}, {2: (3,)}),
    ("a victim stays if its successor finds room in what another one leaves",
     [running(1, (0, 3), since_s=900, preemptible=False, **FRESH), running(2, (0, 1), since_s=500, **OLD),
      running(3, (1, 8), since_s=900, **OLD), waiting(4, 1, submit_s=1), waiting(5, 4, gpus_per_node=4, submit_s=2)],
     (4, 8), {1: RUN, 2: RUN, 3: PREEMPT, 4: SOON, 5: SOON}, {3: (4, 5)}),
    ("one preemption serves several",
     [running(1, (0, 4), **OLD), waiting(2, 1), waiting(3, 2), waiting(4, 2)], (4,),
     {1: PREEMPT, 2: SOON, 3: SOON, 4: WAIT}, {1: (2, 3)}),
    ("a gang over nodes preempts on each of them",
     [running(1, (0, 2), since_s=900, **OLD), running(2, (1, 2), since_s=800, **OLD),
      running(3, (2, 2), since_s=700, **OLD), waiting(4, 8, nodes=2, gpus_per_node=4)], (4, 4, 4),
     {1: RUN, 2: PREEMPT, 3: PREEMPT, 4: SOON}, {2: (4,), 3: (4,)}),
    ("free nodes first, also for a gang over nodes",
     [running(1, (0, 2), **OLD), running(2, (1, 2), since_s=800, **OLD),
      waiting(4, 8, nodes=2, gpus_per_node=4)], (4, 4, 4), {1: RUN, 2: PREEMPT, 4: SOON}, {2: (4,)}),
    ("any split preempts the last-ranked where that is enough",
     [running(1, (0, 3), since_s=900, preemptible=False, **FRESH), running(2, (0, 1), since_s=800, **OLD),
      running(3, (1, 3), since_s=900, preemptible=False, **FRESH), running(4, (1, 1), since_s=700, **OLD),
      waiting(5, 2)], (4, 4), {1: RUN, 2: PREEMPT, 3: RUN, 4: PREEMPT, 5: SOON}, {2: (5,), 4: (5,)}),
    ("while victims leave, their successors wait and nobody else is preempted",
     [running(1, (0, 4), state=JobState.COMPLETING, **OLD), running(2, (1, 4), **OLD), waiting(3, 4)], (4, 4),
     {1: "LEAVING", 2: RUN, 3: SOON}, {}),
    ("held jobs preempt nobody and start nowhere",
     [running(1, (0, 2), **OLD), waiting(2, 4, state=JobState.BLOCKED), waiting(3, 2, state=JobState.BLOCKED)], (4,),
     {1: RUN, 2: "BLOCKED", 3: "BLOCKED"}, {}),
    ("jobs without GPUs get what is left, oldest first, and preempt nobody",
     [running(1, (0, 1), cpus=28, alloc=[(0, 1, 28)], **OLD), waiting(2, 0, cpus=5, submit_s=1),
      waiting(3, 0, cpus=3, submit_s=2), waiting(4, 0, cpus=1, submit_s=3)], (4,),
     {1: RUN, 2: WAIT, 3: START, 4: START}, {}),
    ("a GPU job preempts for CPUs too",
     [running(1, (0, 1), cpus=30, alloc=[(0, 1, 30)], **OLD), waiting(2, 1, cpus=4)], (4,),
     {1: PREEMPT, 2: SOON}, {1: (2,)}),
    ("a request beyond all nodes preempts nobody",
     [running(1, (0, 4), **OLD), waiting(2, 5)], (4,), {1: RUN, 2: TOO_LARGE}, {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "gpus", "verdict", "gives_way"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_rules(
    jobs: list[dict[str, Any]], gpus: tuple[int, ...], verdict: dict[int, str], gives_way: dict[int, tuple[int, ...]]
) -> None:
    plan = plan_of(jobs, mixed_nodes(*gpus))
    assert verdicts(plan) == verdict
    assert preempted(plan) == gives_way


def test_a_preempted_job_takes_other_places_before_worse_ranked_jobs_do() -> None:
    """Job 1 leaves node 0, which alone suits job 3; the free GPUs of node 1 are then its own, not job 4's."""
    nodes = mixed_nodes(4, 3)
    jobs = [
        running(1, (0, 2), **OLD), running(2, (0, 2), preemptible=False, **FRESH), running(5, (1, 1), **FRESH),
        waiting(3, 2, cpus=10), ran(4, 2, NOW_S - 10, **OLD),
    ]  # fmt: skip
    nodes.cpus[1] = 6
    plan = plan_of(jobs, nodes)
    assert verdicts(plan) == {1: PREEMPT, 2: RUN, 3: SOON, 4: WAIT, 5: RUN}
    assert [piece.node for piece in plan.places[1]] == [1]


def test_queues_by_attained_service_and_the_order_they_give() -> None:
    jobs = [
        running(1, (0, 1), attained_gpu_s=99.0), running(2, (0, 1), attained_gpu_s=100.0),
        running(3, (0, 1), attained_gpu_s=299.0), running(4, (0, 1), attained_gpu_s=300.0), waiting(5),
    ]  # fmt: skip
    notes = plan_of(jobs, thresholds_gpu_s=[100, 300]).notes
    assert notes.queue.tolist() == [0, 1, 1, 2, 0]
    assert notes.position.tolist() == [0, 2, 3, 4, 1]
    assert (notes.score_name, notes.score.tolist()) == ("attained_gpu_s", [99.0, 100.0, 299.0, 300.0, 0.0])


# name, knob, columns of the waiting job, promoted
PROMOTIONS = [
    ("waited long enough", 8, {"executed_s": 100.0, "waited_s": 800.0, **OLD}, True),
    ("not yet", 8, {"executed_s": 100.0, "waited_s": 799.0, **OLD}, False),
    ("never by default", None, {"executed_s": 100.0, "waited_s": 1e9, **OLD}, False),
    ("in the first queue there is nothing to reset", 8, {"executed_s": 100.0, "waited_s": 800.0, **FRESH}, False),
    ("held jobs do not starve by our doing", 8,
     {"executed_s": 100.0, "waited_s": 800.0, "state": JobState.BLOCKED, **OLD}, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("knob", "columns", "promoted"), [case[1:] for case in PROMOTIONS], ids=[c[0] for c in PROMOTIONS]
)
def test_promotion(knob: float | None, columns: dict[str, Any], promoted: bool) -> None:
    jobs = [running(1, (0, 4), **FRESH), ran(2, 4, NOW_S - 2000, **columns)]
    plan = plan_of(jobs, **({} if knob is None else {"promote_knob": knob}))
    assert plan.promoted.tolist() == ([2] if promoted else [])
    in_first_queue = promoted or columns["attained_gpu_s"] < 3200
    assert plan.notes.of(2).queue == (0 if in_first_queue else 1)
    assert preempted(plan) == ({1: (2,)} if in_first_queue else {})  # there it leads, since it started first


def test_a_promoted_job_is_in_the_first_queue_to_stay() -> None:
    """Once its counters are reset the next plan ranks it the same, without promoting it again."""
    jobs = [running(1, (0, 4), **FRESH), ran(2, 4, NOW_S - 2000, executed_s=100.0, waited_s=800.0, **OLD)]
    first = plan_of(jobs, promote_knob=8)
    jobs[1] |= {"executed_s": 0.0, "attained_gpu_s": 0.0, "waited_s": 0.0}
    second = plan_of(jobs, promote_knob=8)
    assert (first.promoted.tolist(), second.promoted.tolist()) == ([2], [])
    assert first.notes.position.tolist() == second.notes.position.tolist()
    assert preempted(first) == preempted(second)


# name, jobs on one node of 4 GPUs, parameters, seconds from now
EVENTS: list[tuple[str, list[dict[str, Any]], dict[str, Any], float]] = [
    ("nobody waits", [running(1, (0, 2))], {}, np.inf),
    ("a running job reaches its threshold", [running(1, (0, 4), attained_gpu_s=3000.0), waiting(2, 4)], {}, 50.0),
    ("the last queue has none", [running(1, (0, 4), preemptible=False, **OLD), waiting(2, 4)], {}, np.inf),
    ("a minimum run time ends", [running(1, (0, 4), since_s=20, **OLD), waiting(2, 4)], {}, 40.0),
    ("a job that starts now counts as running",
     [waiting(1, 4, preemptible=True), waiting(2, 4)], {"min_run_s": 1000}, 800.0),
    ("a promotion is due",
     [running(1, (0, 4), preemptible=False, **OLD), ran(2, 4, 0.0, executed_s=100.0, waited_s=70.0, **OLD)],
     {"promote_knob": 2}, 130.0),
    ("a waiting job without GPUs gains nothing",
     [running(1, (0, 4), attained_gpu_s=3000.0), waiting(2, 0, cpus=30)], {}, np.inf),
]  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "parameters", "in_s"), [case[1:] for case in EVENTS], ids=[case[0] for case in EVENTS]
)
def test_next_event(jobs: list[dict[str, Any]], parameters: dict[str, Any], in_s: float) -> None:
    assert plan_of(jobs, **parameters).next_event_s - NOW_S == in_s


def test_gittins_prefers_the_job_that_is_likelier_to_end_soon() -> None:
    """Past jobs took 1000 or 100 000 GPU s: after 900 a job is likely to end within the quantum, after 1100 it is not."""
    jobs = [
        ran(1, 4, NOW_S - 500, attained_gpu_s=1100.0), ran(2, 4, NOW_S - 100, attained_gpu_s=900.0),
        running(3, (0, 4), **OLD),
    ]  # fmt: skip
    las = plan_of(jobs)
    policy = make_policy("tiresias-gittins", {**PAPER, "samples_gpu_s": [1000, 100_000]})
    gittins = policy.decide(cluster(jobs, mixed_nodes(4)))
    assert (preempted(las), preempted(gittins)) == ({3: (1,)}, {3: (2,)})
    assert gittins.notes.score[0] == 0.0
    assert gittins.notes.score[1] == pytest.approx(0.5 / (0.5 * 100 + 0.5 * 3200))


def test_gittins_without_a_past_orders_as_las() -> None:
    jobs = [running(1, (0, 2), **OLD), ran(2, 2, NOW_S - 5), waiting(3, 3), waiting(4, 1, submit_s=-1)]
    gittins = make_policy("tiresias-gittins", PAPER).decide(cluster(jobs, mixed_nodes(4)))
    assert gittins.notes.position.tolist() == plan_of(jobs).notes.position.tolist()
    assert gittins.policy == "tiresias-gittins"


def test_below_the_first_queue_the_fewest_gpus_go_first() -> None:
    jobs = [
        running(1, (0, 4), since_s=500, **OLD),
        ran(2, 1, NOW_S - 10, **OLD),
        ran(3, 2, NOW_S - 800, **OLD),
        ran(4, 1, NOW_S - 90, **OLD),
    ]
    plan = make_policy("tiresias-las", {"thresholds_gpu_s": [3200.0]}).decide(cluster(jobs, mixed_nodes(4)))
    assert plan.order.tolist() == [4, 2, 3]
    assert preempted(plan) == {1: (4, 2, 3)}
    by_start = plan_of(jobs, mixed_nodes(4))
    assert by_start.order.tolist() == [3, 4, 2]


def test_in_the_first_queue_size_plays_no_part() -> None:
    jobs = [running(1, (0, 4), since_s=500, **FRESH), ran(2, 1, NOW_S - 10), ran(3, 2, NOW_S - 800), waiting(4, 1)]
    plan = make_policy("tiresias-las", {"thresholds_gpu_s": [3200.0]}).decide(cluster(jobs, mixed_nodes(4)))
    assert (plan.order.tolist(), preempted(plan)) == ([3, 2, 4], {})
