"""What whole cycles leave in the counters, and that counting costs no cycle whatever goes wrong in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_soda.daemon.metrics import cycle_meter
from slurm_soda.daemon.store.tables.scheduling import Cycle
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.metrics.metered import Metered, names
from tests.daemon.sharing_daemon import JoinAsTold, running, told
from tests.daemon.test_foresight import past_job

__all__ = ["told"]
Start = Callable[..., Daemon]


def test_a_preemption_in_figures(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=120.0)
    slurm.tick()
    sodad = daemon()
    metered = Metered.of(sodad)
    before = metered.shown()
    assert before["soda_changes_total", "kind=requeue", "result=done"] == 0, "rates count from zero"
    assert not any(key[0] == "soda_cycle_last_timestamp_seconds" for key in before), "there was no cycle yet"
    sodad.follow(60)
    slurm.submit(2, gpus=4, work_s=20.0)
    while not (under_way := metered.shown())["soda_preemptions_active",]:
        assert slurm.all[1].state == "RUNNING"
        sodad.follow(1)
    sodad.complete(400)
    shown = metered.shown()
    assert shown["soda_preemptions_total",] == 1
    assert shown["soda_preemptions_active",] == 0
    assert shown["soda_changes_total", "kind=requeue", "result=done"] == 1
    for kind in ("requeue", "start-now", "order"):
        done = [action for action in sodad.actions(kind) if action.state == "done"]
        assert shown["soda_changes_total", f"kind={kind}", "result=done"] == len(done)
    assert shown["soda_job_wait_seconds_count", "partition=main"] == 2, "job 2, and job 1 again; not its first run"
    assert under_way["soda_jobs_running",] + under_way["soda_jobs_pending",] == 2
    assert shown["soda_jobs_running",] == shown["soda_jobs_pending",] == 0
    assert (shown["soda_gpus",], shown["soda_gpus_idle",]) == (4, 4)
    cycles = shown["soda_cycles_total", "result=done"]
    assert cycles == len(sodad.rows(Cycle)) == shown["soda_cycle_duration_seconds_count",]


def test_jobs_in_and_out_of_scope(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=9000.0, user="bob")
    slurm.tick()
    for job_id, user in ((2, "alice"), (3, "bob"), (4, "bob")):
        slurm.submit(job_id, gpus=4, user=user)

    def counted(sodad: Daemon) -> list[float]:
        metered = Metered.of(sodad)
        sodad.run()
        shown = metered.shown()
        every = [(scope, state) for scope in ("in", "out") for state in ("pending", "running")]
        assert sum(key[0] == "soda_scope_jobs" for key in shown) == len(every), "whatever names there are"
        return [shown["soda_scope_jobs", f"scope={scope}", f"state={state}"] for scope, state in every]

    assert counted(daemon(mode="observe")) == [3, 1, 0, 0], "without a scope all are in"
    assert counted(daemon(mode="observe", scope={"users": ["alice"]})) == [1, 0, 2, 1]
    assert counted(daemon(scope={"users": ["alice", "carol"]})) == [1, 0, 2, 1]


def test_failing_cycles_and_the_breaker(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon(change_limits={"breaker_failures": 2, "breaker_pause_s": 30.0})
    metered = Metered.of(sodad)
    sodad.run()
    good = metered.shown()
    slurm.down = True
    for _ in range(2):
        slurm.clock.at_s += 1.0
        sodad.run()
    shown = metered.shown()
    assert shown["soda_cycles_total", "result=failed"] == 2
    assert (good["soda_breaker_open",], shown["soda_breaker_open",]) == (0, 1)
    success = "soda_cycle_last_success_timestamp_seconds"
    assert shown[success,] == good[success,] < shown["soda_cycle_last_timestamp_seconds",]
    assert shown["soda_gpus",] == 4, "as the last cycle saw it that was done; its age is told"
    slurm.clock.at_s += 31.0
    assert metered.shown()["soda_breaker_open",] == 0, "by the time of the scrape"


def test_a_guest_in_figures(fresh_store: Path, told: JoinAsTold) -> None:
    _, sodad = running(fresh_store, told)
    metered = Metered.of(sodad)
    sodad.follow(2)
    shown = metered.shown()
    assert (shown["soda_guests",], shown["soda_gpus_shared",]) == (1, 2)
    assert shown["soda_shares", "phase=started"] == 1
    assert metered.shown_nodes()["soda_node_gpus_shared", "node=n1"] == 2
    sodad.follow(70)
    assert metered.shown()["soda_shares_ended_total", "end=ended"] == 1


def test_modes(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon(mode="observe")
    metered = Metered.of(sodad)
    sodad.run()
    shown = metered.shown()
    assert [shown["soda_mode", f"mode={mode}"] for mode in ("observe", "advise", "enforce")] == [1, 0, 0]
    assert shown["soda_policy_info", "policy=tiresias-las"] == 1


def test_forecasts_are_counted_by_what_came_of_them(slurm: FakeSlurm, daemon: Start, fresh_store: Path) -> None:
    past_job(fresh_store, "alice", 300.0, 200, 100)
    slurm.submit(1, gpus=4, checkpoint=None, work_s=300.0, user="alice")
    sodad = daemon()
    metered = Metered.of(sodad)
    assert "soda_start_forecasts" not in names(metered.text())
    sodad.follow(20)
    slurm.submit(2, gpus=4, work_s=60.0, user="bob")
    sodad.follow(420)
    shown = metered.shown()
    assert [shown["soda_start_forecasts", f"outcome={one}"] for one in ("held", "earlier", "later")] == [1, 0, 0]


def test_a_mistake_in_counting_costs_no_cycle(
    slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    sodad = daemon()
    metered = Metered.of(sodad)
    monkeypatch.setattr(cycle_meter, "cluster_figures", fail)
    reports = [sodad.run() for _ in range(3)]
    assert [report.error for report in reports] == ["", "", ""]
    assert sum("cycle-not-measured" in record.getMessage() for record in caplog.records) == 1
    monkeypatch.undo()
    sodad.run()
    assert metered.shown()["soda_gpus",] == 4
