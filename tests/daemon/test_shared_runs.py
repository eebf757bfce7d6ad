"""Runs that shared a GPU: who they are, and that nothing about jobs that are alone is learned from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.learning.ended_jobs import RECORDED_AFTER_S
from slurm_soda.daemon.sharing.co_runners import find_sharing_jobs
from slurm_soda.daemon.store.jobs.completed_services import completed_services_gpu_s
from slurm_soda.daemon.store.kind_profiles import past_run_times
from slurm_soda.daemon.store.tables.kind_profiles import ObservedJob
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.slurm_ext.client import HeldOnNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.wire.core_tuning import GuestGpus, ReportAnswer
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.records import NodeReport
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record

Start = Callable[..., Daemon]
SHARING = {"policy": {"name": "sjf"}, "sharing": {"partitions": ["main"]}}
MODEL = Hints(model="ResNet-50", batch_size=64, iterations=1000)


def shared_runs(sodad: Daemon) -> dict[int, list[bool]]:
    with sodad.store.read() as session:
        rows = session.execute(
            select(Job.job_id, JobRun.shared).join(JobRun, JobRun.job_pk == Job.id).order_by(JobRun.id)
        )
        found: dict[int, list[bool]] = {}
        for job_id, shared in rows:
            found.setdefault(job_id, []).append(shared)
    return found


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (["main"], {1: [True], 2: [False], 3: [True]}),
        (
            [],
            {1: [True], 2: [True], 3: [True]},
        ),  # nobody asked Slurm who is where: all on the node may be with the guest
    ],
)
def test_a_guest_and_its_host_share_and_nobody_else(
    slurm: FakeSlurm, daemon: Start, partitions: list[str], expected: dict[int, list[bool]]
) -> None:
    slurm.submit(1, gpus=2, work_s=1e6, devices=(0, 1))
    slurm.submit(2, gpus=2, work_s=1e6, devices=(2, 3))
    slurm.tick()
    sodad = daemon(policy={"name": "sjf"}, sharing={"partitions": partitions})
    sodad.follow(5)
    assert shared_runs(sodad) == {1: [False], 2: [False]}
    slurm.submit(3, gpus=1, work_s=1e6, devices=(1,), guest=True)
    sodad.follow(5)
    assert shared_runs(sodad) == expected
    assert shared_runs(daemon(**SHARING)) == expected, "the next daemon knows it too"


def test_once_shared_is_shared_for_that_run_alone(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=400.0, devices=(0, 1, 2, 3))
    slurm.submit(2, gpus=1, work_s=30.0, devices=(3,), guest=True)
    slurm.tick()
    sodad = daemon(**SHARING)
    sodad.follow(60)
    assert slurm.all[2].state == "COMPLETED"
    slurm.requeue(1)
    sodad.follow(200, every_s=5.0)
    assert slurm.all[1].state == "RUNNING"
    assert shared_runs(sodad) == {1: [True, False], 2: [True]}


def test_nothing_about_jobs_alone_is_learned_from_shared_runs(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=2, work_s=100.0, hints=MODEL, devices=(0, 1))
    slurm.submit(2, gpus=2, work_s=100.0, hints=MODEL, devices=(2, 3))
    slurm.submit(3, gpus=2, work_s=100.0, hints=MODEL, devices=(0, 1), guest=True)
    slurm.tick()
    sodad = daemon(**SHARING)
    sodad.follow(100 + 2 * RECORDED_AFTER_S, every_s=2.0)
    assert {job.state for job in slurm.all.values()} == {"COMPLETED"}
    with sodad.store.read() as session:
        key = session.scalars(select(Job.id).where(Job.job_id == 2)).one()
        assert session.scalars(select(ObservedJob.job_pk)).all() == [key]
        assert len(past_run_times(session, ["COMPLETED"], 1e12, 10, 10)) == 1
        assert len(completed_services_gpu_s(session)) == 1
    assert sodad.cycles._observer.run_time_predictor.forecast.learner.learnt == 1


def test_service_of_a_guest_counts_as_any_other(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=2, work_s=1e6, devices=(0, 1))
    slurm.submit(3, gpus=2, work_s=1e6, devices=(0, 1), guest=True)
    slurm.tick()
    sodad = daemon(**SHARING)
    sodad.follow(50)
    jobs = {job_id: sodad.cycles._state.job_cache.jobs[job_id] for job_id in (1, 3)}
    assert [job.runs[0].gpus for job in jobs.values()] == [2, 2]


def test_jobs_that_may_be_with_a_guest_count_as_sharing() -> None:
    def running(job_id: int, gpus: int, node_names: str, **more: object) -> object:
        return replace(record(job_id, state="RUNNING"), gpus=gpus, node_names=node_names, **more)  # type: ignore[arg-type]

    jobs = {
        1: running(1, 2, "n1"), 2: running(2, 1, "n[1-2]"), 3: running(3, 1, "n1", shared_gpus=1), 4: running(4, 0, "n1"),
        5: running(5, 1, "n1"), 6: running(6, 1, "n2"), 7: running(7, 1, "n1", state="COMPLETED"),
        8: running(8, 1, "n1", state="COMPLETING"),
    }  # fmt: skip
    held = {
        1: [HeldOnNode("n1", 2, 1, (0, 1))], 2: [HeldOnNode("n1", 1, 1), HeldOnNode("n2", 0, 1)],
        3: [HeldOnNode("n1", 1, 1, (), (1,))], 5: [HeldOnNode("n1", 1, 1, (2,))],
    }  # fmt: skip
    assert find_sharing_jobs(jobs, held) == {1, 2, 3, 8}  # type: ignore[arg-type]
    assert find_sharing_jobs({one: job for one, job in jobs.items() if one != 3}, held) == set()  # type: ignore[arg-type]
    assert find_sharing_jobs(jobs, {}) == {1, 2, 3, 5, 8}  # type: ignore[arg-type]


def test_agents_are_told_which_gpus_guests_hold(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=2, work_s=1e6, devices=(0, 1))
    slurm.submit(3, gpus=1, work_s=1e6, devices=(1,), guest=True)
    slurm.tick()
    sodad = daemon(policy={"name": "sjf"})
    guests = sodad.cycles._context.guests
    writer = ReportWriter(sodad.store, slurm.clock, lambda: None, guests=guests)
    try:
        assert writer.submit(NodeReport("n1", "a", 1, 1.0)).result(30).guests == ()
        sodad.run()
        answer = writer.submit(NodeReport("n1", "a", 2, 1.0)).result(30)
        assert answer.guests == (GuestGpus(3, 0, (1,)),)
        assert writer.submit(NodeReport("n2", "a", 1, 1.0)).result(30).guests == ()
    finally:
        writer.close()
    assert ReportAnswer.from_json(json.dumps(answer.to_dict()).encode()) == answer
    slurm.all[3].state = "CANCELLED"
    sodad.run()
    assert guests.by_node == {}


@pytest.mark.parametrize("odd", [{"job_id": 0}, {"gpus": [70_000]}, {"gpus": "0"}, {"restart": -1}, 3])
def test_odd_guests_are_refused(odd: object) -> None:
    guest = {"job_id": 3, "restart": 0, "gpus": [1]} | odd if isinstance(odd, dict) else odd
    with pytest.raises(RecordError):
        ReportAnswer.from_json(json.dumps({"node": "n1", "seq": 1, "guests": [guest]}).encode())
