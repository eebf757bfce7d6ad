"""Time slices in turn: jobs and nodes in, who runs in which slice out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.policies.baselines.gandiva import QUANTUM_S, Gandiva
from slurm_soda.policies.plan import JobVerdict, Plan
from slurm_soda.policies.registry.catalog import make_policy
from tests.policies.cases import NOW_S, cluster, mixed_nodes, preempted, running, verdicts, waiting

QUANTUM = 100.0
"""NOW_S is the beginning of a slice of this length."""


def plan_of(jobs: list[dict[str, Any]], gpus: int = 4, now_s: float = NOW_S) -> Plan:
    return make_policy("gandiva", {"quantum_s": QUANTUM}).decide(cluster(jobs, mixed_nodes(gpus), now_s))


class Turns:
    """Carries plans out at once, free of charge, at the beginning of every slice; nobody ever ends."""

    def __init__(self, gpus_of: Mapping[int, int], gpus: int) -> None:
        self.gpus_of, self.gpus = gpus_of, gpus
        self.now_s = 0.0
        self.started: dict[int, float] = {}
        self.in_line_since = dict.fromkeys(gpus_of, 0.0)
        self.ran = dict.fromkeys(gpus_of, 0)

    def row(self, job_id: int) -> dict[str, Any]:
        gpus = self.gpus_of[job_id]
        if job_id not in self.started:
            waited_s = self.now_s - self.in_line_since[job_id]
            return waiting(job_id, gpus, waited_s=waited_s, preemptible=True, executed_s=self.ran[job_id] * QUANTUM)
        since_s = self.now_s - self.started[job_id]
        row = running(job_id, (0, gpus), since_s=since_s, executed_s=self.ran[job_id] * QUANTUM)
        return row | {"start_s": self.started[job_id]}

    def turn(self) -> set[int]:
        plan = plan_of([self.row(job_id) for job_id in self.gpus_of], self.gpus, self.now_s)
        for item in plan.preempts:
            del self.started[item.job_id]
            self.in_line_since[item.job_id] = self.now_s
        for job_id, verdict in verdicts(plan).items():
            if verdict in ("START", "WAIT_FOR_PREEMPTION"):
                self.started[job_id] = self.now_s
        assert sum(self.gpus_of[job_id] for job_id in self.started) <= self.gpus
        assert plan.next_event_s == self.now_s + QUANTUM
        self.now_s += QUANTUM
        for job_id in self.started:
            self.ran[job_id] += 1
        return set(self.started)


# name, GPUs of each job, GPUs of the cluster, who runs in each slice
TURNS: list[tuple[str, list[int], int, list[set[int]]]] = [
    ("one after the other", [1, 1, 1], 1, [{1}, {2}, {3}, {1}, {2}, {3}]),
    ("two at a time", [1, 1, 1, 1], 2, [{1, 2}, {3, 4}, {1, 2}, {3, 4}]),
    ("nobody leaves whose place nobody wants", [1, 1, 1], 2, [{1, 2}, {1, 3}, {2, 3}, {1, 2}]),
    ("a gang as large as the cluster has its turn", [1, 1, 1, 1, 4], 4, [{1, 2, 3, 4}, {5}, {1, 2, 3, 4}, {5}]),
    ("gangs stay whole", [2, 2, 3], 4, [{1, 2}, {3}, {1, 2}, {3}]),
]  # fmt: skip


@pytest.mark.parametrize(("gpus_of", "gpus", "slices"), [case[1:] for case in TURNS], ids=[case[0] for case in TURNS])
def test_turns(gpus_of: list[int], gpus: int, slices: list[set[int]]) -> None:
    turns = Turns(dict(enumerate(gpus_of, 1)), gpus)
    assert [turns.turn() for _ in slices] == slices


def test_everybody_has_a_turn_before_the_line_is_through() -> None:
    turns = Turns(dict(enumerate([1, 2, 1, 4, 3, 2, 1, 1], 1)), 4)
    slices = [turns.turn() for _ in range(200)]
    for job_id in turns.gpus_of:
        ran_in = [number for number, together in enumerate(slices) if job_id in together]
        assert max(np.diff([-1, *ran_in, len(slices)])) <= len(turns.gpus_of)


# name, jobs on 4 GPUs, seconds into the slice, verdicts
CASES: list[tuple[str, list[dict[str, Any]], float, dict[int, str]]] = [
    ("a slice is not cut short",
     [running(1, (0, 4), since_s=-10), waiting(2, 4, waited_s=500.0)], 40, {1: "RUN", 2: "WAIT"}),
    ("it ends with the clock, however short it was",
     [running(1, (0, 4), since_s=30), waiting(2, 4, waited_s=500.0)], 0, {1: "PREEMPT", 2: "WAIT_FOR_PREEMPTION"}),
    ("a newcomer waits for the end of the slice that it came in",
     [running(1, (0, 4), since_s=500), waiting(2, 4, waited_s=10.0)], 40, {1: "RUN", 2: "WAIT"}),
    ("one that waited before may take a place that was not wanted by then",
     [running(1, (0, 4), since_s=500), waiting(2, 4, waited_s=50.0)], 40, {1: "PREEMPT", 2: "WAIT_FOR_PREEMPTION"}),
    ("a newcomer takes what is free", [running(1, (0, 3), since_s=30), waiting(2, 1)], 40, {1: "RUN", 2: "START"}),
    ("who ran longest leaves first",
     [running(1, (0, 2), since_s=300), running(2, (0, 2), since_s=400), waiting(3, 1, waited_s=50.0)], 0,
     {1: "RUN", 2: "PREEMPT", 3: "WAIT_FOR_PREEMPTION"}),
    ("of two that started together, the one that ran more before",
     [running(1, (0, 2), since_s=300, executed_s=900.0), running(2, (0, 2), since_s=300),
      waiting(3, 1, waited_s=50.0)], 0, {1: "PREEMPT", 2: "RUN", 3: "WAIT_FOR_PREEMPTION"}),
    ("who waited longest comes first",
     [running(1, (0, 4), since_s=300), waiting(2, 4, waited_s=50.0), waiting(3, 4, waited_s=60.0)], 0,
     {1: "PREEMPT", 2: "WAIT", 3: "WAIT_FOR_PREEMPTION"}),
    ("a job that cannot be suspended runs on",
     [running(1, (0, 4), since_s=300, preemptible=False), waiting(2, 4, waited_s=50.0)], 0,
     {1: "PROTECTED", 2: "WAIT"}),
    ("jobs without GPUs take no turns",
     [running(1, (0, 4), since_s=300), waiting(2, 0, cpus=29, waited_s=500.0), waiting(3, 0, cpus=28, submit_s=9)], 0,
     {1: "RUN", 2: "WAIT", 3: "START"}),
]  # fmt: skip


@pytest.mark.parametrize(("jobs", "into_s", "verdict"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_rules(jobs: list[dict[str, Any]], into_s: float, verdict: dict[int, str]) -> None:
    assert verdicts(plan_of(jobs, 4, NOW_S + into_s)) == verdict


@pytest.mark.parametrize(
    ("jobs", "into_s", "in_s"),
    [
        ([running(1, (0, 4), since_s=300), waiting(2, 4, waited_s=5.0)], 40, 60),
        ([running(1, (0, 4), since_s=300)], 40, np.inf),
        ([running(1, (0, 4), since_s=300), waiting(2, 0, cpus=99)], 40, np.inf),
    ],
)
def test_next_event(jobs: list[dict[str, Any]], into_s: float, in_s: float) -> None:
    assert plan_of(jobs, 4, NOW_S + into_s).next_event_s == NOW_S + into_s + in_s


@pytest.mark.parametrize("quantum_s", [QUANTUM_S, 0.1, 0.3, 7.7])
def test_every_boundary_is_one_although_slices_are_no_whole_numbers(quantum_s: float) -> None:
    """The job that started one slice ago gives way at each time that the policy itself named."""
    policy, now_s = Gandiva(quantum_s), 1.7e9 + 0.05
    for _ in range(50):
        jobs = [running(1, (0, 4)) | {"start_s": now_s}, waiting(2, 4, waited_s=quantum_s / 2)]
        plan = policy.decide(cluster(jobs, mixed_nodes(4), now_s))
        assert not plan.preempts
        assert now_s < plan.next_event_s <= now_s + quantum_s * 1.001
        now_s = plan.next_event_s
        jobs[1] |= {"waited_s": quantum_s / 2}
        then = policy.decide(cluster(jobs, mixed_nodes(4), now_s))
        assert preempted(then) == {1: (2,)}
        assert then.notes.of(1).verdict == JobVerdict.PREEMPT


@pytest.mark.parametrize("error_s", [0.0, 1e-7, -1e-7])
def test_a_preempted_job_does_not_take_another_ones_place_at_once(error_s: float) -> None:
    """At the instant at which it went to the end of the line, the others that ran as long are still before it."""
    jobs = [
        running(1, (0, 2), since_s=100), waiting(2, 2, waited_s=error_s, executed_s=100.0),
        running(3, (0, 2), since_s=0),
    ]  # fmt: skip
    assert verdicts(plan_of(jobs)) == {1: "RUN", 2: "WAIT", 3: "RUN"}


def test_what_a_spared_job_leaves_free_is_offered_again() -> None:
    """Job 2 takes all of node 0, then moves so that jobs 4 and 5 are spared; job 3 then fits with one victim."""
    nodes = replace(mixed_nodes(4, 4), in_partition=np.array([[True, True], [True, False]]))
    jobs = [
        waiting(1, 1, waited_s=160.0),
        waiting(2, 4, waited_s=160.0),
        waiting(3, 2, waited_s=96.0, partition="p1"),
        running(4, (0, 1), since_s=QUANTUM),
        running(5, (0, 1), since_s=QUANTUM),
        running(6, (0, 2), since_s=90 * QUANTUM, partition="p1"),
    ]
    plan = make_policy("gandiva", {"quantum_s": QUANTUM}).decide(cluster(jobs, nodes))
    assert preempted(plan) == {5: (2, 3), 6: (2, 3)}
    assert verdicts(plan)[3] == "WAIT_FOR_PREEMPTION"


def test_a_victim_is_offered_places_once_more_when_another_one_is_spared() -> None:
    """Job 4 moves to what job 1 leaves, so that job 2 has node 1 whole and job 3 stays."""
    nodes = replace(mixed_nodes(4, 4), in_partition=np.array([[True, True], [True, False]]))
    jobs = [
        running(1, (0, 2), since_s=9000),
        waiting(2, 4, waited_s=1371.0),
        running(3, (0, 1), since_s=500, partition="p1"),
        waiting(4, 2, waited_s=1746.0, executed_s=100.0),
    ]
    plan = make_policy("gandiva", {"quantum_s": 60.0}).decide(cluster(jobs, nodes))
    assert preempted(plan) == {1: (2,)}
    assert verdicts(plan) == {1: "PREEMPT", 2: "WAIT_FOR_PREEMPTION", 3: "RUN", 4: "START"}


@pytest.mark.parametrize(
    ("gpus", "named"),
    [(1, "job 2, which ranks"), (3, "jobs 2, 3, 4, which rank"), (4, "jobs 2, 3, 4 and 1 more, which rank")],
)
def test_a_reason_names_three_jobs_at_most(gpus: int, named: str) -> None:
    jobs = [running(1, (0, gpus), since_s=3 * QUANTUM), *(waiting(2 + i, waited_s=50.0 - i) for i in range(gpus))]
    (preempt,) = plan_of(jobs, gpus).preempts
    assert preempt.reason == f"its place goes to {named} before it"
