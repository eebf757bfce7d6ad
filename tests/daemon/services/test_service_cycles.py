"""sodad and services: leases, starts by the load, hand-over between devices, drains, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.store.tables.scheduling import VainPreemption
from slurm_soda.daemon.store.tables.services import ServiceDrainRow, ServiceRow
from slurm_soda.slurm_ext.write.start_leases import MARK_S
from tests.daemon.harness import Daemon
from tests.daemon.services.array_slurm import ArraySlurm
from tests.daemon.services.service_daemon import CPU, GPU, SERVICES, Router, cluster, live, sodad
from tests.daemon.services.service_site import report


def begin_times(slurm: ArraySlurm, array: int) -> set[float]:
    """Of waiting tasks, from now."""
    return {job.eligible_s - slurm.clock.now_s() for job in slurm.tasks(array) if job.state == "PENDING"}


def drains(daemon: Daemon) -> list[tuple[str, str]]:
    return [(row.phase, row.end) for row in daemon.rows(ServiceDrainRow)]


def test_a_low_load_runs_on_one_instance_on_cores_and_all_others_wait_with_leases(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 5)
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0], [])
    for array in (CPU, GPU):
        assert all(150.0 < ahead_s <= 361.0 for ahead_s in begin_times(slurm, array))
        assert {job.eligible_s % 60 for job in slurm.tasks(array) if job.state == "PENDING"} == {MARK_S}
    # The rest of each array is one record still.
    assert [job.array_task for job in slurm.jobs()] == ["0", "1-2", "0-2"]
    assert (router.told.cpu, router.told.gpu, router.told.drain) == (1, 0, ())
    assert "load 5 q/s" in router.told.reason
    assert {action.kind for action in daemon.actions()} == {"lease"}


def test_leases_are_renewed_when_less_than_half_is_left_and_not_before(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 5)
    sent = slurm.updates
    slurm.advance(min(begin_times(slurm, GPU)) - 155.0, step_s=10.0)
    live(slurm, daemon, router, 2)
    assert slurm.updates == sent
    live(slurm, daemon, router, 8)
    assert slurm.updates == sent + 2
    for _ in range(12):
        slurm.advance(60.0, step_s=10.0)
        live(slurm, daemon, router, 1)
    assert min(begin_times(slurm, GPU)) > 140.0
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0], [])


def test_a_high_load_is_handed_over_to_a_gpu_without_loss_and_back(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 8)
    router.load_qps, fewest = 300.0, 9
    for _ in range(20):
        live(slurm, daemon, router, 1)
        ready = [one for one in daemon.cycles._context.services.known()[0].report.instances if one.state == "ready"]
        fewest = min(fewest, len(ready))
    assert (slurm.running(CPU), slurm.running(GPU), fewest) == ([], [0], 1)
    assert drains(daemon) == [("over", "it left")]
    (left,) = [job for job in slurm.tasks(CPU) if job.restarts]
    assert (left.state, left.eligible_s % 60) == ("PENDING", MARK_S)
    router.load_qps = 5.0
    live(slurm, daemon, router, 30)
    assert (len(slurm.running(CPU)), slurm.running(GPU)) == (1, [])
    assert [action.kind for action in daemon.actions() if action.kind == "requeue"] == ["requeue", "requeue"]
    assert {action.state for action in daemon.actions()} == {"done"}


def test_an_instance_with_queries_in_flight_leaves_when_they_are_answered_or_its_grace_is_over(
    fresh_store: Path,
) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 8)
    router.load_qps, router.queries = 300.0, 3
    live(slurm, daemon, router, 30)
    assert (slurm.running(CPU), slurm.running(GPU), len(router.told.drain)) == ([0], [0], 1)
    live(slurm, daemon, router, 45)
    assert (slurm.running(CPU), slurm.running(GPU)) == ([], [0])


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_other_modes_change_nothing(fresh_store: Path, mode: str) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store, mode=mode), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 5)
    assert slurm.updates == 0
    assert router.told.drain == ()
    live(slurm, daemon, router, 60)
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0, 1, 2], [0, 1, 2])


def test_instances_that_drain_come_back_when_sodad_no_longer_enforces(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 8)
    router.load_qps, router.queries = 300.0, 3
    live(slurm, daemon, router, 10)
    assert len(router.told.drain) == 1
    daemon.cycles.reload(daemon.cycles.settings.model_copy(update={"mode": "advise"}))
    live(slurm, daemon, router, 2)
    assert router.told.drain == ()
    assert drains(daemon) == [("over", "it stays: sodad does not enforce now")]
    assert len(slurm.running(CPU)) == 1


def test_leases_end_by_themselves_without_sodad(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 5)
    slurm.advance(361)
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0, 1, 2], [0, 1, 2])


def test_a_successor_with_an_empty_store_is_whole_after_one_report(fresh_store: Path, tmp_path: Path) -> None:
    slurm = cluster()
    first, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, first, router, 8)
    first.store.close()
    (fresh_store / "soda.db").unlink()
    second = sodad(slurm, fresh_store)
    before = slurm.updates
    live(slurm, second, router, 5)
    assert (slurm.running(CPU), slurm.running(GPU), slurm.updates) == ([0], [], before)
    assert [(row.owner, row.name) for row in second.rows(ServiceRow)] == [("alice", "answers")]


def test_a_successor_knows_services_before_their_routers_report_again(fresh_store: Path) -> None:
    slurm = cluster()
    first, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, first, router, 8)
    second = sodad(slurm, fresh_store)
    second.run()
    assert [one.key for one in second.cycles._context.services.known()] == [("alice", "answers")]
    slurm.advance(250)
    second.run()
    assert min(begin_times(slurm, GPU)) > 290.0


def test_an_owner_drains_and_scales(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 8)
    board = daemon.cycles._context.services
    (known,) = board.known()
    board.scale(known.key, 2, 2)
    live(slurm, daemon, router, 8)
    assert slurm.running(CPU) == [0, 1]
    board.drain(known.key, [slurm._shown_id(slurm.tasks(CPU)[0])])
    live(slurm, daemon, router, 15)
    (drain,) = daemon.rows(ServiceDrainRow)
    assert (drain.by_owner, drain.phase, slurm.tasks(CPU)[0].restarts) == (True, "over", 1)
    assert len(slurm.running(CPU)) == 2


def test_the_owners_own_word_is_left_alone(fresh_store: Path) -> None:
    """A begin time of his own, a hold, and a leased task that he lets start."""
    slurm = cluster()
    own, held, begun = slurm.tasks(GPU)
    for job in (own, held):
        job.apart = True
    own.eligible_s, own.reason = slurm.clock.now_s() + 5000.25, "BeginTime"
    held.eligible_s, held.reason, held.never_starts = slurm.clock.now_s(), "JobHeldUser", True
    held_since_s = held.eligible_s
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 5)
    assert own.eligible_s - slurm.clock.now_s() > 4000.0
    assert held.eligible_s == held_since_s
    assert begun.eligible_s % 60 == MARK_S
    begun.never_starts, begun.eligible_s, begun.reason, begun.apart = True, slurm.clock.now_s(), "Resources", True
    since_s = begun.eligible_s
    live(slurm, daemon, router, 10)
    assert begun.eligible_s == since_s, "the owner ended its lease, so it waits for its places and for nothing else"
    begun.never_starts = False
    slurm.tick()
    assert begun.state == "RUNNING"


def test_no_service_goes_first_or_has_jobs_give_way_unless_the_site_says_so(fresh_store: Path) -> None:
    slurm = cluster(gpus=1)
    slurm.submit(1, gpus=1, work_s=500.0, checkpoint="TERM")
    slurm.tick()
    slurm.submit(2, gpus=1, work_s=50.0, checkpoint=None)
    daemon, router = sodad(slurm, fresh_store, services=SERVICES | {"first_in": ["other"]}), Router(slurm, load_qps=1e6)
    live(slurm, daemon, router, 15)
    assert (slurm.running(GPU), slurm.all[1].restarts, slurm.all[1].state) == ([], 0, "RUNNING")
    assert [job.job_id for job in slurm.tasks(GPU) if job.site_factor > slurm.all[2].site_factor] == []


def test_a_task_that_goes_first_is_lifted_before_all_others(fresh_store: Path) -> None:
    slurm = cluster(gpus=1)
    slurm.submit(1, gpus=1, work_s=500.0, checkpoint=None)
    slurm.tick()
    for job_id in (2, 3):
        slurm.submit(job_id, gpus=1, work_s=50.0, checkpoint=None)
    daemon, router = (
        sodad(slurm, fresh_store, services=SERVICES | {"first_in": ["main"]}),
        Router(slurm, load_qps=300.0),
    )
    live(slurm, daemon, router, 6)
    (first,) = [job for job in slurm.tasks(GPU) if job.site_factor]
    assert first.priority + first.site_factor > max(slurm.all[job_id].priority for job_id in (2, 3))


def test_a_job_that_consents_to_preemption_gives_way_to_a_service(fresh_store: Path) -> None:
    slurm = cluster(gpus=1)
    slurm.submit(1, gpus=1, work_s=500.0, checkpoint="TERM")
    slurm.tick()
    slurm.submit(2, gpus=1, work_s=50.0, checkpoint=None)
    daemon, router = (
        sodad(slurm, fresh_store, services=SERVICES | {"first_in": ["main"], "min_run_s": 0.0}),
        Router(slurm, load_qps=300.0),
    )
    live(slurm, daemon, router, 15)
    assert slurm.running(GPU) == [0]
    assert (slurm.all[1].restarts, slurm.all[1].state) == (1, "PENDING")


def test_after_a_job_gave_way_in_vain_none_does_for_a_while(fresh_store: Path) -> None:
    """The task does not start, for a reason that Slurm does not tell; nobody else takes its place."""
    slurm = cluster(gpus=1)
    slurm.submit(1, gpus=1, work_s=5000.0, checkpoint="TERM", user="bob")
    slurm.tick()
    slurm.submit(2, gpus=1, work_s=50.0, checkpoint=None)
    for job in (slurm.all[2], *slurm.tasks(GPU)):
        job.never_starts = True
    daemon, router = (
        sodad(
            slurm,
            fresh_store,
            services=SERVICES | {"first_in": ["main"], "min_run_s": 0.0},
            preemption={"release_after_s": 5},
        ),
        Router(slurm, load_qps=300.0),
    )
    live(slurm, daemon, router, 30)
    assert slurm.all[1].restarts == 1
    assert [(row.user, row.gpus) for row in daemon.rows(VainPreemption)] == [("alice", 1)]


def test_nobody_moves_jobs_of_others_by_reporting_them_as_instances(fresh_store: Path) -> None:
    slurm = cluster()
    slurm.submit(1, gpus=1, work_s=500.0, checkpoint="TERM")
    daemon, router = sodad(slurm, fresh_store, services=SERVICES | {"first_in": ["*"]}), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 8)
    (served,) = [slurm._shown_id(job) for job in slurm.tasks(CPU) if job.state == "RUNNING"]
    sent, board = slurm.updates, daemon.cycles._context.services
    for state in ("failed", "draining", "ready"):
        lie = report(load_qps=1e9, instances=[(1, "gpu", state), (served, "cpu", state)], at_s=slurm.clock.now_s())
        board.take("mallory", lie, Instant.read(slurm.clock))
        board.drain(ServiceKey("mallory", "answers"), ())
        live(slurm, daemon, router, 3)
    assert (slurm.running(CPU), slurm.all[1].state, slurm.all[1].restarts) == ([0], "RUNNING", 0)
    assert (slurm.updates, daemon.rows(ServiceDrainRow)) == (sent, [])
    assert router.told.drain == board.take("mallory", lie, Instant.read(slurm.clock)).drain == ()


def test_services_that_are_switched_off_are_left_alone(fresh_store: Path) -> None:
    slurm = cluster()
    daemon = sodad(slurm, fresh_store, services={"enabled": False})
    slurm.advance(61)
    daemon.follow(3)
    assert (slurm.running(CPU), slurm.updates) == ([0, 1, 2], 0)


def test_a_job_that_slurm_may_not_requeue_is_not_drained(fresh_store: Path, caplog: pytest.LogCaptureFixture) -> None:
    slurm = cluster()
    for job in slurm.tasks(CPU):
        job.requeue = False
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 8)
    router.load_qps = 300.0
    live(slurm, daemon, router, 10)
    assert (slurm.running(CPU), slurm.running(GPU), router.told.drain) == ([0], [0], ())
    assert [one.message.split()[0] for one in caplog.records].count("instance-not-drained") == 1, "once, not each cycle"


def test_a_task_whose_node_failed_starts_again_after_slurms_own_wait_alone(fresh_store: Path) -> None:
    slurm = cluster(tasks=1)
    daemon, router = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0)
    live(slurm, daemon, router, 6)
    (job,) = slurm.tasks(CPU)
    slurm.fail_node(job.job_id)
    failed_s = slurm.clock.now_s()
    while job.state != "RUNNING":
        live(slurm, daemon, router, 1)
    assert 120.0 <= slurm.clock.now_s() - failed_s <= 185.0


def test_what_slurm_refuses_is_tried_again_after_longer_and_longer_pauses(fresh_store: Path) -> None:
    slurm = cluster()
    daemon, router, tries = sodad(slurm, fresh_store), Router(slurm, load_qps=5.0), []
    slurm.refused = "Access/permission denied"
    for second in range(20):
        before = slurm.refusals
        live(slurm, daemon, router, 1)
        tries += [second] if slurm.refusals > before else []
    assert tries == [0, 1, 3, 7, 15]
    slurm.refused = ""
    live(slurm, daemon, router, 20)
    assert (slurm.running(CPU), slurm.running(GPU)) == ([0], [])


def test_a_noisy_low_load_comes_back_to_cores_after_the_cool_down(fresh_store: Path) -> None:
    """Every other report alone would need a GPU; all of them together do not."""
    slurm = cluster(tasks=4)
    daemon, router = sodad(slurm, fresh_store, services=SERVICES | {"cool_down_s": 60.0}), Router(slurm, load_qps=300.0)
    live(slurm, daemon, router, 8)
    assert slurm.running(GPU) == [0]
    for _ in range(75):
        for router.load_qps in (68.0, 32.0):
            live(slurm, daemon, router, 1)
    assert (len(slurm.running(CPU)), slurm.running(GPU)) == (4, [])
