"""Who inherits attained service from whom: one cancelled job, one successor."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_soda.policies.engine.inherited_service import (
    INHERIT_WITHIN_S,
    CancelledService,
    JobIdentity,
    SuccessorCandidate,
    match_successors,
)
from tests.sampling import examples
from tests.work import lines_run

TRAIN = JobIdentity("alice", "train", 4)
HOUR_S = 3600.0
INFINITE = float("inf")


def cancelled(
    key: int = 1, since_s: float = 0.0, end_s: float = HOUR_S, executed_s: float = HOUR_S, of: JobIdentity = TRAIN
) -> CancelledService:
    return CancelledService(key, of, since_s, end_s, executed_s)


def new(
    key: int = 10, submit_s: float = HOUR_S, first_start_s: float = float("inf"), of: JobIdentity = TRAIN
) -> SuccessorCandidate:
    return SuccessorCandidate(key, of, submit_s, first_start_s)


def test_a_resubmitted_job_has_the_service_of_the_cancelled_one() -> None:
    assert match_successors([cancelled()], [new()]) == {10: cancelled()}


def test_a_sweep_is_set_back_by_one_job_for_each_cancelled_one() -> None:
    sweep = [new(key, submit_s=HOUR_S + key) for key in range(10, 110)]
    assert set(match_successors([cancelled()], sweep)) == {10}, "the first that was submitted"
    assert not match_successors([cancelled(since_s=5.0)], [new(key, submit_s=4.0) for key in range(10, 110)]), (
        "a sweep that was submitted before the cancelled job first ran goes on as it was"
    )


def test_who_was_submitted_before_the_end_but_had_not_started_inherits_as_well() -> None:
    assert match_successors([cancelled()], [new(submit_s=1800.0)])
    assert not match_successors([cancelled()], [new(submit_s=1800.0, first_start_s=3000.0)]), "they ran side by side"


def test_others_and_the_late_inherit_nothing() -> None:
    others = [
        JobIdentity("bob", "train", 4), JobIdentity("alice", "other", 4), JobIdentity("alice", "train", 2)
    ]  # fmt: skip
    assert not match_successors([cancelled()], [new(at, of=other) for at, other in enumerate(others)])
    assert not match_successors([cancelled()], [new(submit_s=HOUR_S + INHERIT_WITHIN_S + 1.0)])
    assert not match_successors([cancelled(executed_s=0.0)], [new()]), "what never ran leaves nothing"
    on_cpus = JobIdentity("alice", "train", 0)
    assert not match_successors([cancelled(of=on_cpus)], [new(of=on_cpus)])


def test_a_short_cancelled_job_hides_no_long_one() -> None:
    found = match_successors([cancelled(1), cancelled(2, end_s=HOUR_S - 10, executed_s=1.0)], [new()])
    assert found[10].key == 1


IDENTITIES = st.sampled_from([TRAIN, JobIdentity("bob", "train", 4), JobIdentity("alice", "train", 2)])
TIMES = st.integers(0, 200_000).map(float)
SERVICES = st.builds(CancelledService, st.integers(0, 9), IDENTITIES, TIMES, TIMES, TIMES)
NEW_JOBS = st.builds(SuccessorCandidate, st.integers(0, 99), IDENTITIES, TIMES, st.one_of(TIMES, st.just(float("inf"))))


@given(
    st.lists(SERVICES, max_size=8, unique_by=lambda service: service.key),
    st.lists(NEW_JOBS, max_size=20, unique_by=lambda job: job.key),
)
@settings(max_examples=examples(200))
def test_no_service_is_passed_on_twice_and_none_to_another_owner_name_or_size(
    services: list[CancelledService], jobs: list[SuccessorCandidate]
) -> None:
    found = match_successors(services, jobs)
    givers = [service.key for service in found.values()]
    assert len(givers) == len(set(givers))
    by_key = {job.key: job for job in jobs}
    assert all(by_key[key].identity == service.identity for key, service in found.items())
    assert found == match_successors(services[::-1], jobs[::-1])


NEAR_TIMES = st.sampled_from(
    [0.0, 1.0, 2.0, 3.0, INHERIT_WITHIN_S + 1.0, INHERIT_WITHIN_S + 2.0, INHERIT_WITHIN_S + 2.5]
)


@given(
    st.lists(
        st.builds(CancelledService, st.integers(0, 20), st.just(TRAIN), NEAR_TIMES, NEAR_TIMES, st.integers(0, 3)),
        max_size=12,
        unique_by=lambda service: service.key,
    ),
    st.lists(
        st.builds(
            SuccessorCandidate, st.integers(0, 99), st.just(TRAIN), NEAR_TIMES, st.one_of(NEAR_TIMES, st.just(INFINITE))
        ),
        max_size=15,
        unique_by=lambda job: job.key,
    ),
)
@settings(max_examples=examples(400))
def test_each_job_takes_what_looking_at_each_service_finds(
    services: list[CancelledService], jobs: list[SuccessorCandidate]
) -> None:
    left, expected = [service for service in services if service.executed_s > 0], {}
    for job in sorted(jobs, key=lambda job: (job.submit_s, job.key)):
        allowed = [
            service
            for service in left
            if service.since_s <= job.submit_s <= service.end_s + INHERIT_WITHIN_S
            and job.first_start_s >= service.end_s
        ]
        if allowed:
            expected[job.key] = max(allowed, key=lambda one: (one.executed_s, one.end_s, -one.key))
            left.remove(expected[job.key])
    assert match_successors(services, jobs) == expected


def test_many_jobs_of_one_name_cost_no_work_by_pair() -> None:
    def work(count: int) -> int:
        services = [cancelled(key) for key in range(count)]
        jobs = [new(key, submit_s=HOUR_S + key) for key in range(count)]
        return lines_run(lambda: match_successors(services, jobs))

    assert work(400) < 3 * work(200)
