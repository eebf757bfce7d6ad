"""What a policy learns from jobs that ended: the real store, the real policy."""

from __future__ import annotations

from slurm_soda.daemon.cycle.effective_settings import effective_settings
from slurm_soda.daemon.learning.policy_parameters import MIN_SAMPLES, READ_INTERVAL_S, PolicyParameterLearner
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.completed_services import completed_services_gpu_s
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.tiresias.policy import Tiresias
from tests.daemon.harness import settings


def add(store: Store, job_id: int, gpus: int, *runs_s: float, state: str = "COMPLETED", user: str = "alice") -> None:
    with store.write() as session:
        job = Job(job_id=job_id, submit_s=1.0, user=user, state=state, gpus=gpus, end_s=1e6 + job_id)
        session.add(job)
        session.flush()
        for restart, run_s in enumerate(runs_s):
            session.add(
                JobRun(job_pk=job.id, restart=restart, start_s=100.0 * job_id, end_s=100.0 * job_id + run_s, gpus=gpus)
            )


def test_service_is_summed_over_runs_of_completed_gpu_jobs(store: Store) -> None:
    add(store, 1, 4, 10.0, 5.0)
    add(store, 2, 1, 7.0)
    add(store, 3, 2, 50.0, state="FAILED")
    add(store, 4, 0, 50.0)
    add(store, 5, 2, 0.0)
    with store.read() as session:
        assert completed_services_gpu_s(session) == [7.0, 60.0]
        assert completed_services_gpu_s(session, per_owner=1) == []  # the newest is the one that took nothing


def test_one_owners_many_jobs_are_one_share_of_the_distribution(store: Store) -> None:
    for job_id in range(1, 4):
        add(store, job_id, 1, 3600.0, user=f"owner{job_id}")
    for job_id in range(4, 34):
        add(store, job_id, 1, 1.0, user="liar")
    with store.read() as session:
        found = completed_services_gpu_s(session)
    assert (found.count(1.0), found.count(3600.0)) == (30, 90), "before, 30 of 33 jobs were the liar's"


def samples(
    learner: PolicyParameterLearner, store: Store, name: str, now_s: float, **parameters: object
) -> list[float]:
    config = settings(policy={"name": name, "parameters": parameters})
    with store.read() as session:
        policy = effective_settings(config, {}, lambda policy: learner.parameters(session, policy, now_s)).policy
    assert isinstance(policy, Tiresias)
    return policy.samples_gpu_s.tolist()


def test_gittins_learns_once_there_is_enough_and_again_after_a_while(store: Store) -> None:
    learner = PolicyParameterLearner()
    for job_id in range(1, MIN_SAMPLES):
        add(store, job_id, 1, float(job_id))
    assert samples(learner, store, "tiresias-gittins", 0.0) == []
    add(store, MIN_SAMPLES, 1, float(MIN_SAMPLES))
    assert samples(learner, store, "tiresias-gittins", READ_INTERVAL_S - 1) == [], "not read again so soon"
    learned = samples(learner, store, "tiresias-gittins", READ_INTERVAL_S)
    assert learned == [float(n) for n in range(1, MIN_SAMPLES + 1)]
    assert samples(learner, store, "tiresias-gittins", READ_INTERVAL_S, samples_gpu_s=[3.0]) == [3.0], "the file wins"
    assert samples(learner, store, "tiresias-las", READ_INTERVAL_S) == []
