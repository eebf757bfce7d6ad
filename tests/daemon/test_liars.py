"""What users claim: a lie may only harm the liar. Ended jobs in a real store, learned from as sodad learns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from slurm_soda.daemon.learning.observations import record_observations
from slurm_soda.daemon.learning.profile_rows import value_from_row
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.engine import Store, open_store
from slurm_soda.daemon.store.tables.kind_profiles import ObservedJob, ProfileValueRow
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.sharing.job_kinds import JobKind
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from tests.sampling import examples

R50 = JobKind("ResNet-50", 64, "v100")
HONEST = ("alice", "bob", "carol", "dave")


@pytest.fixture
def store(fresh_store: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{fresh_store}/soda.db")
    yield opened
    opened.close()


def run(store: Store, user: str, *, run_s: float, iterations: int, jobs: int = 1) -> None:
    """Jobs that ended, and what they claim; they are learned from at once."""
    with store.write() as session:
        first = len(session.scalars(select(Job.id)).all())
        ended = []
        for at in range(first, first + jobs):
            job = Job(
                job_id=at + 1, submit_s=1.0, user=user, state="COMPLETED", gpus=1, end_s=10_000.0 + at,
                hints={"model": "resnet50", "batch_size": "64", "iterations": str(iterations)},
            )  # fmt: skip
            session.add(job)
            session.flush()
            times = {"start_s": 10_000.0 + at - run_s, "end_s": 10_000.0 + at}
            session.add(JobRun(job_pk=job.id, restart=0, node_names="n1", **times))
            ended.append(job)
        session.flush()
        runs = {job.id: list(session.scalars(select(JobRun).where(JobRun.job_pk == job.id))) for job in ended}
        record_observations(session, ended, runs, {"n1": "v100"}, 20_000.0)


def iteration_s(store: Store, owner: str) -> float | None:
    with store.read() as session:
        profiles = KindProfiles(value_from_row(row) for row in stored.all_values(session))
    told = profiles.of_owner(owner).iteration_s(R50)
    return None if told is None else told.value


def test_ten_short_jobs_that_claim_one_iteration_move_nobody_but_their_owner(store: Store) -> None:
    """Before, these ten jobs moved everybody's iteration time from 0.1 s to 38.5 s."""
    for owner in HONEST:
        run(store, owner, run_s=100.0, iterations=1000, jobs=4)
    assert {owner: iteration_s(store, owner) for owner in (*HONEST, "newcomer", "liar")} == dict.fromkeys(
        (*HONEST, "newcomer", "liar"), 0.1
    )
    run(store, "liar", run_s=100.0, iterations=1, jobs=10)
    assert {owner: iteration_s(store, owner) for owner in (*HONEST, "newcomer")} == dict.fromkeys(
        (*HONEST, "newcomer"), 0.1
    )
    assert iteration_s(store, "liar") == 100.0


def test_short_jobs_with_great_claims_do_not_make_the_liars_long_jobs_look_short(store: Store) -> None:
    run(store, "liar", run_s=36_000.0, iterations=36_000)
    run(store, "liar", run_s=60.0, iterations=6_000_000, jobs=60)
    assert iteration_s(store, "liar") == 1.0, "what ran for ten hours weighs more than an hour of short jobs"


def test_ones_own_jobs_count_however_few_owners_a_site_has(store: Store) -> None:
    run(store, "alice", run_s=100.0, iterations=1000)
    assert iteration_s(store, "alice") == 0.1
    run(store, "bob", run_s=100.0, iterations=100)
    assert (iteration_s(store, "alice"), iteration_s(store, "bob")) == (0.1, 1.0)
    assert iteration_s(store, "newcomer") is None, "two owners do not speak for others: one of them might lie"
    run(store, "carol", run_s=100.0, iterations=500)
    assert iteration_s(store, "newcomer") == 0.2


LIES = st.lists(st.tuples(st.floats(60.0, 1e6), st.integers(1, 10**9), st.integers(1, 3)), min_size=1, max_size=3)


@given(st.lists(st.integers(1, 10_000), min_size=2, max_size=5), LIES)
@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_liar_claims_others_are_told_what_honest_owners_saw(
    store: Store, honest: Sequence[int], lies: Sequence[tuple[float, int, int]]
) -> None:
    with store.write() as session:
        for table in (ProfileValueRow, ObservedJob, JobRun, Job):
            session.execute(delete(table))
    saw = {f"owner{at}": 100.0 / iterations for at, iterations in enumerate(honest)}
    for owner, iterations in zip(saw, honest, strict=True):
        run(store, owner, run_s=100.0, iterations=iterations)
    before = {owner: iteration_s(store, owner) for owner in saw}
    for run_s, iterations, jobs in lies:
        run(store, "liar", run_s=run_s, iterations=iterations, jobs=jobs)
    assert {owner: iteration_s(store, owner) for owner in saw} == before, "owners with jobs of their own are not moved"
    told = iteration_s(store, "newcomer")
    assert told is not None
    assert min(saw.values()) <= told <= max(saw.values())


def test_one_owners_many_jobs_hide_no_past_of_others_from_a_daemon_that_starts(store: Store) -> None:
    run(store, "alice", run_s=3600.0, iterations=1)
    run(store, "liar", run_s=60.0, iterations=1, jobs=5)
    with store.read() as session:
        past = stored.past_run_times(session, ["COMPLETED"], 1e6, limit=3, per_owner=2)
    assert [(one.user, one.run_s) for one in past] == [("alice", 3600.0), ("liar", 60.0), ("liar", 60.0)]
