"""Tasks of services that go first in sodad: which ones, for how long, and what is left of it."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.daemon.services.going_first import NOT_STARTED_S
from tests.daemon.services.service_daemon import GPU, SERVICES, Router, cluster, live, sodad

FIRST = SERVICES | {"first_in": ["main"]}


def test_tasks_that_shall_not_start_yet_do_not_go_first_with_those_that_may(fresh_store: Path) -> None:
    """Submitted without a begin time, all tasks may start until sodad has seen them."""
    slurm = cluster(gpus=1, tasks=8, begin_s=0.0)
    for task in slurm.tasks(GPU):
        task.apart = True
    slurm.submit(1, gpus=1, work_s=5000.0, checkpoint=None)
    slurm.all[1].priority = 1000
    slurm.tick()
    slurm.submit(2, gpus=1, work_s=50.0, checkpoint=None)
    slurm.all[2].priority = 1000
    daemon, router = sodad(slurm, fresh_store, services=FIRST), Router(slurm, load_qps=300.0)
    for _ in range(6):
        live(slurm, daemon, router, 1)
        lifted = [task.task for task in slurm.tasks(GPU) if task.site_factor]
        assert len(lifted) <= 1, lifted
    assert lifted


def test_a_task_that_went_first_once_does_not_do_so_after_it_left(fresh_store: Path) -> None:
    """Slurm keeps a SiteFactor over a requeue, and tells none before a begin time: until then nobody would see it."""
    slurm = cluster(gpus=1)
    slurm.submit(1, gpus=1, work_s=20.0, checkpoint=None)
    slurm.tick()
    slurm.submit(2, gpus=1, work_s=50.0, checkpoint=None)
    all_of_them = slurm.site_factors

    def told() -> dict[int, int]:
        return {
            job_id: factor
            for job_id, factor in all_of_them().items()
            if slurm.find(job_id)[0].eligible_s <= slurm.clock.now_s()
        }

    slurm.site_factors = told  # type: ignore[method-assign]
    daemon, router = sodad(slurm, fresh_store, services=FIRST), Router(slurm, load_qps=300.0)
    live(slurm, daemon, router, 30)
    (task,) = [one for one in slurm.tasks(GPU) if one.state == "RUNNING"]
    assert task.site_factor > 0
    router.load_qps = 5.0
    live(slurm, daemon, router, 80)
    assert (task.state, task.reason, task.restarts) == ("PENDING", "BeginTime", 1)
    assert task.site_factor == 0


def test_a_service_that_never_serves_has_few_jobs_give_way(fresh_store: Path) -> None:
    """Each of its instances fails; with every further one another job would lose its work."""
    slurm = cluster(gpus=8, tasks=8)
    for job_id in range(1, 9):
        slurm.submit(job_id, gpus=1, work_s=1e6, checkpoint="TERM")
    slurm.tick()
    slurm.submit(20, gpus=8, work_s=50.0, checkpoint=None)
    quick = {"retry_s": 1.0, "requeue_failed_s": 5.0, "first_in": ["main"]}
    daemon, router = sodad(slurm, fresh_store, services=SERVICES | quick), Router(slurm, load_qps=300.0, most=8)
    for _ in range(90):
        router.failed = {slurm._shown_id(task) for task in slurm.tasks(GPU)}
        live(slurm, daemon, router, 1)
    gave_way = sum(slurm.all[job_id].restarts for job_id in range(1, 9))
    assert 1 <= gave_way <= 3, gave_way


def test_a_task_that_slurm_does_not_start_though_there_is_room_goes_first_no_more(fresh_store: Path) -> None:
    """It would be first in line for good, and others behind it wait for backfill."""
    slurm = cluster(gpus=2, tasks=1)
    slurm.submit(1, gpus=1, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.submit(2, gpus=2, work_s=5000.0, checkpoint=None)
    (task,) = slurm.tasks(GPU)
    task.never_starts = True  # what a reservation does, say
    daemon = sodad(slurm, fresh_store, services=FIRST, policy={"name": "multifactor"}, cycle={"skipping_limit_s": 1.0})
    router = Router(slurm, load_qps=300.0)
    live(slurm, daemon, router, 20)
    assert task.priority + task.site_factor > slurm.all[2].priority
    slurm.advance(NOT_STARTED_S, step_s=30.0)
    live(slurm, daemon, router, 3)
    assert task.state == "PENDING"
    assert task.priority + task.site_factor < slurm.all[2].priority


def test_such_a_task_gets_no_new_time_by_a_load_that_falls_for_a_moment(fresh_store: Path) -> None:
    """A load is what its owner says: by a report of none now and then it would be first in line for good."""
    slurm = cluster(gpus=2, tasks=1)
    slurm.submit(1, gpus=1, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.submit(2, gpus=2, work_s=5000.0, checkpoint=None)
    (task,) = slurm.tasks(GPU)
    task.never_starts = True
    daemon = sodad(slurm, fresh_store, services=FIRST, policy={"name": "multifactor"}, cycle={"skipping_limit_s": 1.0})
    router, first_s = Router(slurm, load_qps=300.0), 0.0
    for at_s in range(0, 900, 15):
        router.load_qps = 0.0 if at_s % 300 == 285 else 300.0
        live(slurm, daemon, router, 1)
        slurm.advance(14.0, step_s=14.0)
        first_s += 15.0 * (task.priority + task.site_factor > slurm.all[2].priority)
    assert task.state == "PENDING"
    assert 0.5 * NOT_STARTED_S <= first_s <= NOT_STARTED_S + 60.0


def test_nobody_gives_way_to_tasks_that_start_by_their_owners_word(fresh_store: Path) -> None:
    """These are not put first, so what became free would be others', and the next job would give way, without end."""
    slurm = cluster(gpus=2, tasks=2)
    for job_id in (1, 2):
        slurm.submit(job_id, gpus=1, work_s=1e6, checkpoint="TERM")
    slurm.tick()
    slurm.submit(20, gpus=1, work_s=1e6, checkpoint="TERM")
    slurm.all[20].priority = 1000
    daemon = sodad(slurm, fresh_store, services=FIRST | {"min_run_s": 0.0})
    router = Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 6)
    for task in slurm.tasks(GPU):
        task.apart, task.eligible_s, task.reason = True, slurm.clock.now_s(), "None"
    router.load_qps = 300.0
    live(slurm, daemon, router, 40)
    assert [row for row in daemon.preemptions() if not row.for_jobs] == []
    assert sum(slurm.all[job_id].restarts for job_id in (1, 2, 20)) == 0
