"""What services leave to others: those who have waited too long, who ask for something else, and who do not wait at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slurm_soda.policies.pipeline.actions import ScaleService
from slurm_soda.policies.pipeline.stages import empty_plan, pipeline_of
from slurm_soda.policies.plan import JobNotes, JobVerdict
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.services.place_services import PlaceServices
from slurm_soda.policies.services.service import Device, Service
from slurm_soda.policies.services.settings import ServiceSettings
from slurm_soda.policies.snapshot import NodeTable
from tests.policies.cases import NOW_S, running, waiting
from tests.policies.services.cases import (
    BOTH,
    GPU,
    STARTING,
    decided,
    first,
    given_way,
    instances,
    scaled,
    table,
    world,
)

ON_GPU = Service("ann", "chat", least=1, most=4, gpu=(GPU,))
LOW = {"low_since_s": -1e4}


def busy() -> list[dict[str, object]]:
    """All 16 GPUs are held; job 4 was submitted last."""
    held = [running(node + 1, (node, 4), submit_s=float(node), preemptible=True) for node in range(4)]
    return [*held, waiting(9, 2)]


def test_a_job_in_its_sure_run_does_not_give_way() -> None:
    """It started overdue: what it won by waiting is not lost at once (docs/policies/waiting.md)."""
    jobs = [{**job, "overdue": job["job_id"] == 4} for job in busy()]
    assert given_way(decided(world(table(ON_GPU, 100.0), jobs))) == [3]


def just_started(job: dict[str, object], *job_ids: int) -> dict[str, object]:
    """The job, but these have run for 20 s."""
    return {**job, "start_s": NOW_S - 20.0} if job["job_id"] in job_ids else job


def test_a_job_that_just_started_does_not_give_way() -> None:
    """Else a service that has its instances leave and come could requeue the newest job before it gets anywhere."""
    service = table(ON_GPU, 100.0)
    assert given_way(decided(world(service, [just_started(job, 4) for job in busy()]))) == [3]
    jobs = [just_started(job, 1, 2, 3, 4) for job in busy()]
    nobody = decided(world(service, jobs))
    assert (given_way(nobody), nobody.next_event_s) == ([], NOW_S + 40.0)
    assert given_way(decided(replace(world(service, jobs), now_s=NOW_S + 40.0))) == [4]
    settings = ServiceSettings(first_everywhere=True, min_run_s=10.0)
    assert given_way(decided(world(table(ON_GPU, 100.0, settings=settings), jobs))) == [4]


@pytest.mark.parametrize(
    ("name", "parameters", "spared"),
    [
        ("tiresias-las", {}, 60.0),
        ("tiresias-las", {"min_run_s": 600.0}, 600.0),
        ("srsf", {"min_run_s": 0.0}, 60.0),
        ("soda", {}, 60.0),
        ("fifo", {}, 60.0),
    ],
)
def test_what_the_policy_says_of_preemption_holds_for_services(
    name: str, parameters: dict[str, float], spared: float
) -> None:
    for since_s, gives_way in ((spared - 1.0, []), (spared + 1.0, [1])):
        jobs = [running(1, (0, 1), user="bob", since_s=since_s), waiting(9, 1, submit_s=NOW_S, may_preempt=False)]
        snapshot = world(table(ON_GPU, 100.0), jobs, NodeTable.uniform(1, 1))
        assert given_way(pipeline_of(make_policy(name, parameters)).decide(snapshot)) == gives_way


def test_no_job_gives_way_to_a_service_while_an_overdue_one_waits_there() -> None:
    """What became free would be that one's."""
    jobs = [{**job, "overdue": job["job_id"] == 9} for job in busy()]
    plan = decided(world(table(ON_GPU, 100.0), jobs))
    assert (first(plan), given_way(plan)) == ({"GPU": True}, [])


def test_a_gpu_is_given_back_to_those_who_can_take_it() -> None:
    """A task on cores does not go first for a job that waits for another type, nor past others for the owner's own."""
    nodes = replace(NodeTable.uniform(4, 4), gpu_type=np.array([0, 1, 1, 1]), gpu_types=("a100", "t4"))
    service = replace(BOTH, gpu=(replace(GPU, gpu_type="a100"), replace(GPU, gpu_type="t4")))
    held = [
        running(1001, (0, 1), user="ann"),
        *(running(node + 1, (node, 4 - (node == 0)), submit_s=float(node)) for node in range(4)),
    ]
    on_gpu = table(service, 10.0, instances(Device.GPU, 1), **LOW)
    for more, goes_first in (
        ({}, True),
        ({"gpu_type": "a100"}, True),
        ({"gpu_type": "t4"}, False),
        ({"user": "ann"}, True),  # who would be passed is she herself
    ):
        job = {**waiting(9, 2), "user": "bob", **more}
        plan = decided(world(on_gpu, [*held, job], nodes))
        assert (scaled(plan), first(plan)["CPU"]) == ({"CPU": 1, "GPU": 1}, goes_first), more
        reasons = {one.device: one.reason for one in plan.actions if isinstance(one, ScaleService)}
        assert ("go first" in reasons[Device.CPU]) == goes_first, "people read why"
    own = [{**waiting(9, 2), "user": "ann"}, {**waiting(10, 0), "user": "bob"}]
    assert first(decided(world(on_gpu, [*held, *own], nodes)))["CPU"] is False, (
        "bob waits for cores, nobody else for a GPU"
    )


def test_nobody_waits_who_fits_nowhere() -> None:
    jobs = [*busy()[:4], waiting(9, 64)]
    snapshot = world(table(BOTH, 10.0, instances(Device.GPU, 1), **LOW), jobs)
    ids = snapshot.jobs.job_id
    verdict = np.where(ids == 9, np.int8(JobVerdict.TOO_LARGE), np.int8(JobVerdict.RUN))
    none = np.zeros(len(ids))
    notes = JobNotes(ids, verdict, none.astype(np.int64), none, none.astype(np.int64))
    assert first(PlaceServices().apply(snapshot, replace(empty_plan(), notes=notes)))["CPU"] is False


def test_cores_without_the_memory_that_a_task_asks_for_are_no_place() -> None:
    """Else the task would be first in line for as long as nobody ends, and the service on nothing that it can have."""
    nodes = NodeTable.uniform(4, 4, memory_mib=1000)
    for asked_mib, on in ((1000, {"CPU": 1, "GPU": 1}), (1001, {"CPU": 0, "GPU": 1})):
        task = {**waiting(2001, 0, user="ann"), "cpus": 4, "memory_mib": asked_mib}
        services = replace(
            table(BOTH, 10.0, instances(Device.GPU, 1), **LOW),
            task_id=np.array([2001]),
            task_service=np.array([0]),
            task_device=np.array([0]),
        )
        assert scaled(decided(world(services, [*busy(), task], nodes, NOW_S))) == on, asked_mib


def test_a_service_whose_instances_fail_goes_first_no_more() -> None:
    for failures, goes_first in (((0, 2), True), ((3, 2), True), ((0, 3), False), ((0, 9), False)):
        services = replace(table(ON_GPU, 100.0), failures=np.array([failures]))
        plan = decided(world(services, busy()))
        assert (first(plan), len(given_way(plan))) == ({"GPU": goes_first}, int(goes_first)), failures


def test_as_many_jobs_give_way_as_the_load_that_is_seen_needs() -> None:
    """Not as many as are expected to be needed, and none for a service of which nobody knows how many instances would do."""
    held = [running(at + 1, (at // 4, 1), submit_s=float(at)) for at in range(16)]
    jobs = [*held, waiting(99, 2)]
    many, unknown = replace(ON_GPU, most=16), replace(ON_GPU, most=16, gpu=())
    for services, gives_way in (
        (table(many, 500.0, forecast_qps=5000.0), 2),
        (table(many, 5000.0), 16),
        (table(many, 900.0, instances(Device.GPU, 2)), 1),
        (table(many, 900.0, instances(Device.GPU, 1), forecast_qps=5000.0), 2),
        (table(many, 900.0, instances(Device.GPU, 2, STARTING)), 1),
        (table(unknown, 900.0), 0),
    ):
        plan = decided(world(services, jobs))
        assert (first(plan), len(given_way(plan))) == ({"GPU": gives_way > 0}, gives_way), scaled(plan)


def test_tasks_that_their_owner_lets_start_neither_go_first_nor_does_a_job_give_way_to_them() -> None:
    jobs = [*(running(node + 1, (node, 1), submit_s=float(node)) for node in range(4)), waiting(9, 1)]
    for by_owner, goes_first, left in ((0, True, 2), (1, True, 1), (2, False, 0), (5, False, 0)):
        services = replace(table(ON_GPU, 600.0), by_owner=np.array([[0, by_owner]]))
        plan = decided(world(services, jobs, NodeTable.uniform(4, 1)))
        assert (scaled(plan), first(plan), len(given_way(plan))) == ({"GPU": 2}, {"GPU": goes_first}, left), by_owner
