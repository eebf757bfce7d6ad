"""What people are told of a job."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from slurm_soda.policies.explanation.explanation import Explanation
from slurm_soda.policies.explanation.job_position import VERDICTS, explain_position
from slurm_soda.policies.plan import JobVerdict
from slurm_soda.policies.registry.catalog import make_policy, policy_names
from slurm_soda.policies.snapshot import JobState
from slurm_soda.policies.waiting.bounded import decide_bounded
from slurm_soda.policies.waiting.overdue import mark_overdue
from tests.policies.cases import PAPER, cluster, mixed_nodes, running, waiting

JOBS = [
    running(1, (0, 2), attained_gpu_s=1200.0),
    running(2, (0, 2), attained_gpu_s=5000.0, preemptible=False),
    running(3, (1, 4), attained_gpu_s=5000.0, since_s=10),
    waiting(4, 4),
    waiting(5, 0, cpus=60),
    waiting(6, 4, first_start_s=1.0, executed_s=1000.0, attained_gpu_s=4000.0, waited_s=9000.0),
    waiting(7, 1, state=JobState.BLOCKED),
]

SAID: list[tuple[str, int, str]] = [
    ("tiresias-las", 1, "It has had 1,200 GPU s of service, which puts it in queue 1 of 2; at 3,200 GPU s, in 1,000 s, it "
     "moves to the next. Position 1 in line. It keeps running."),
    ("tiresias-las", 2, "It has had 5,000 GPU s of service, which puts it in queue 2 of 2, the last. Position 4 in line. "
     "Jobs before it want its GPUs, but it keeps them: it did not consent to preemption, or Slurm cannot requeue it."),
    ("tiresias-las", 3, "It has had 5,000 GPU s of service, which puts it in queue 2 of 2, the last. Position 5 in line. "
     "Jobs before it want its GPUs, but it keeps them: its minimum run time is not over."),
    ("tiresias-las", 4, "It has had 0 GPU s of service, which puts it in queue 1 of 2; at 3,200 GPU s, after 800 s of "
     "running, it moves to the next. Position 2 in line. It waits: it does not fit beside the jobs before it."),
    ("tiresias-las", 5, "It asks for no GPU, so it is given what the GPU jobs leave, oldest first. Position 6 in line. It "
     "waits: it does not fit beside the jobs before it."),
    ("tiresias-las", 7, "It has had 0 GPU s of service, which puts it in queue 1 of 2; at 3,200 GPU s, after 3,200 s of "
     "running, it moves to the next. Slurm does not let it start yet (held, a dependency or a begin time)."),
    ("soda", 3, "Jobs go by the service that is expected until one of their kind ends, GPUs times seconds, the least first; "
     "of this job it is 354 GPU s. Position 1 in line. It keeps running."),
    ("soda", 5, "It asks for no GPU, so it is given what the GPU jobs leave, oldest first. Position 6 in line. It waits: it "
     "does not fit beside the jobs before it."),
    ("fifo", 4, "Jobs go by submit time. Position 4 in line. It waits: it does not fit beside the jobs before it."),
    ("backfill", 4, "Jobs go by submit time, and may pass a blocked one that they do not delay. Position 4 in line. It "
     "waits: it does not fit beside the jobs before it. Room is reserved for it in 31,535,000 s, when enough jobs should "
     "have ended."),
    ("multifactor", 4, "Its priority in Slurm is 0, without ours, and the largest goes first. Position 4 in line. It waits: "
     "it does not fit beside the jobs before it. Room is reserved for it in 31,535,000 s, when enough "
     "jobs should have ended."),
    ("gandiva", 3, "Jobs take turns, a slice of 60 s each; this one runs, until others that wait have their turn. Position "
     "1 in line. It keeps running."),
    ("gandiva", 6, "Jobs take turns, a slice of 60 s each, the longest waiting first; this one has waited 9,000 s. Position "
     "2 in line. It waits: it does not fit beside the jobs before it."),
    ("drf", 4, "Users go by what their jobs hold, the smallest part first; those of user hold 100.0 % of all GPUs, CPUs or "
     "memory, whichever they hold most of. Position 4 in line. It waits: it does not fit beside the jobs before it."),
    ("kelp-drf", 5, "Users go by what their jobs hold, the smallest part first; those of user hold 100.0 % of all GPUs. "
     "Position 5 in line. It waits: it does not fit beside the jobs before it."),
    ("kelp-fifo", 5, "Jobs without GPUs go by submit time, in a line of their own. Position 5 in line. It waits: it "
     "does not fit beside the jobs before it."),
    ("srsf", 4, "Jobs go by remaining_gpu_s, the smallest first; of this job it is 2,400. Position 5 in "
     "line. It waits: it does not fit beside the jobs before it."),
]  # fmt: skip


def told(name: str, job_id: int, **parameters: Any) -> Explanation:
    policy = make_policy(name, {**(PAPER if name.startswith("tiresias") else {}), **parameters})
    snapshot = cluster(JOBS, mixed_nodes(4, 4))
    plan = policy.decide(snapshot)
    return explain_position(plan.notes.of(job_id), snapshot.jobs.view(snapshot.jobs.row(job_id)), policy)


@pytest.mark.parametrize(("name", "job_id", "text"), SAID, ids=[f"{name} {job_id}" for name, job_id, _ in SAID])
def test_sentences(name: str, job_id: int, text: str) -> None:
    assert told(name, job_id).text == text


def test_who_is_overdue_hears_what_that_means() -> None:
    policy = make_policy("srsf", {})
    runs = running(1, (0, 4), since_s=10, preemptible=False, waited_s=9000.0)
    jobs = [runs, waiting(2, 4, waited_s=9000.0), waiting(3, 4, waited_s=10.0)]
    snapshot = mark_overdue(cluster(jobs, mixed_nodes(4)), 3600.0)
    notes = decide_bounded(policy, snapshot).notes
    said = {
        job_id: explain_position(notes.of(job_id), snapshot.jobs.view(snapshot.jobs.row(job_id)), policy)
        for job_id in (1, 2, 3)
    }
    assert "not preempted yet: not before it has run for a part of the limit on waits" in said[1].text
    assert "It is overdue: it has waited for so long that no later job passes or delays it." in said[2].text
    assert said[2].numbers["overdue"] is True
    assert "overdue" not in said[3].numbers
    assert "It waits behind job 2, for which nodes are kept" in said[3].text


def test_a_queue_that_service_has_outgrown_is_not_called_a_promotion() -> None:
    policy = make_policy("tiresias-las", PAPER)
    snapshot, later = (cluster([waiting(1, 4, attained_gpu_s=had)], mixed_nodes(4, 4)) for had in (0.0, 9000.0))
    said = explain_position(policy.decide(snapshot).notes.of(1), later.jobs.view(0), policy).text
    assert "9,000 GPU s of service, which puts it in queue 1 of 2; the next decision moves it to the next." in said


def test_jobs_in_pools() -> None:
    policy = make_policy("coda")
    jobs = [waiting(1, 1, submit_s=1.0), waiting(2, 0, preemptible=True, preemptions=3, cpus=64), waiting(3, 4)]
    snapshot = cluster([*jobs, waiting(4, 0, preemptions=2, cpus=64)], mixed_nodes(4))
    said = [explain_position(policy.decide(snapshot).notes.of(number), snapshot.jobs.view(number - 1), policy).sentences[0]
            for number in (1, 2, 3, 4)]  # fmt: skip
    users = "whose users go by what they hold, the smallest part first; those of user hold"
    assert [text.partition(". ")[0].removesuffix(".") for text in said] == [
        f"It is one of the small GPU jobs, {users} 0.0 % of that pool",
        "It is one of the CPU jobs and gave back 3 times what it had borrowed, so it comes first and borrows no more",
        f"It is one of the large GPU jobs, {users} 100.0 % of that pool",
        "It is one of the CPU jobs and gave back 2 times what it had borrowed, so it comes first",
    ]


def test_a_promoted_job() -> None:
    explanation = told("tiresias-las", 6, promote_knob=8)
    assert explanation.sentences[0].startswith("It waited 8 times as long as it ran and starts over in queue 1 of 2.")
    assert explanation.numbers["promoted"] is True


@pytest.mark.parametrize(
    ("job", "packlimit", "said"),
    [
        ({"skew": 0.743}, 0.378, "Its model's skew of 0.743 is above 0.378: it needs the fewest nodes."),
        ({"skew": 0.092}, 0.378, "Its model's skew of 0.092 is not above 0.378: it may fill holes on several nodes."),
        ({"skew": 0.743, "gpus_per_node": 2}, 0.378, ""),
        ({}, 0.378, ""),
        ({"skew": 0.743}, math.inf, ""),
    ],
)
def test_why_a_job_is_placed_as_it_is(job: dict[str, Any], packlimit: float, said: str) -> None:
    policy = make_policy("tiresias-las", {**PAPER, "packlimit": packlimit})
    snapshot = cluster([waiting(1, 2, **job)], mixed_nodes(4))
    explanation = explain_position(policy.decide(snapshot).notes.of(1), snapshot.jobs.view(0), policy)
    assert (
        explanation.sentences[0].partition(" Position 1 in line.")[0].partition("moves to the next.")[2].strip() == said
    )
    assert ("packlimit" in explanation.numbers) == bool(said)


@pytest.mark.parametrize("name", policy_names())
def test_numbers_fit_json(name: str) -> None:
    for job in JOBS:
        numbers = told(name, job["job_id"]).numbers
        assert json.loads(json.dumps(dict(numbers), allow_nan=False))["policy"] == name


def test_every_verdict_has_its_words() -> None:
    assert set(VERDICTS) == set(JobVerdict)
