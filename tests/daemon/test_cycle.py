"""Whole cycles over the small Slurm: what is sent, what is written, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import event

from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.cycle.epoch import SupersededError, begin_epoch
from slurm_soda.daemon.cycle.slurm_state import SlurmReader
from slurm_soda.daemon.cycle.stopwatch import Stopwatch
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.queries import put_admin_setting
from slurm_soda.policies.snapshot import JobState
from slurm_soda.slurm_ext.write import sending
from tests.daemon.fake_slurm import BEGIN_TIME_S, FakeClock, FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record

Start = Callable[..., Daemon]


def test_a_long_job_makes_way_for_a_short_one_and_goes_on_later(slurm: FakeSlurm, daemon: Start) -> None:
    long = slurm.submit(1, gpus=4, work_s=120.0)
    slurm.tick()
    sodad = daemon()
    sodad.follow(60)
    short = slurm.submit(2, gpus=4, work_s=20.0)
    sodad.complete(400)
    assert (long.state, short.state) == ("COMPLETED", "COMPLETED")
    assert long.restarts == 1
    assert short.runs[0][0] - short.first_submit_s < 6
    assert long.runs[1][0] - short.runs[0][1] < 3, "released as soon as its successor was through, not after 121 s"
    (preemption,) = sodad.preemptions()
    assert preemption.phase == "done"
    assert [(a.kind, a.state) for a in sodad.actions() if a.preemption_id] == [
        ("requeue", "done"),
        ("start-now", "done"),
    ]
    assert sodad.job(1).preemptions == 1
    assert [(run.start_s, run.end_s) for run in sodad.runs(1)] == [pytest.approx(run, abs=1.0) for run in long.runs]


def test_a_release_that_slurmctld_forgot_is_sent_again(slurm: FakeSlurm, daemon: Start) -> None:
    """Killed before it saved the release, slurmctld has the job wait for the 121 s of its requeue again."""
    long = slurm.submit(1, gpus=4, work_s=120.0)
    slurm.tick()
    sodad = daemon()
    sodad.follow(60)
    short = slurm.submit(2, gpus=4, work_s=20.0)
    while not sodad.actions("start-now"):
        sodad.follow(1)
    sodad.follow(2)
    assert (long.state, long.reason != "BeginTime") == ("PENDING", True)
    long.eligible_s, long.reason = long.requeued_s[-1] + BEGIN_TIME_S, "BeginTime"
    sodad.complete(400)
    assert long.runs[1][0] - short.runs[0][1] < 3
    assert [a.state for a in sodad.actions("start-now")] == ["done", "done"]


@pytest.mark.parametrize(
    ("on_signal", "signals", "requeues", "phase"),
    [
        ("exit", 1, 1, "done"),
        ("requeue", 1, 1, "done"),
        ("ignore", 1, 1, "done"),
        ("finish", 1, 0, "lost"),
    ],
)
def test_a_signal_other_than_term_is_sent_first(
    slurm: FakeSlurm, daemon: Start, on_signal: str, signals: int, requeues: int, phase: str
) -> None:
    long = slurm.submit(1, gpus=4, work_s=120.0, checkpoint="USR1", on_signal=on_signal, grace_s=10)
    slurm.tick()
    sodad = daemon()
    sodad.follow(60)
    slurm.submit(2, gpus=4, work_s=20.0)
    sodad.complete(500)
    assert len(long.signals) == signals
    assert len(long.requeued_s) == requeues
    assert [p.phase for p in sodad.preemptions()] == [phase]
    assert long.state == "COMPLETED"
    if on_signal == "ignore":
        signal = sodad.actions("signal")[0]
        assert long.requeued_s[0] - signal.finished_s == pytest.approx(10, abs=2), "the grace is given in full"


def test_a_job_without_consent_is_never_requeued(slurm: FakeSlurm, daemon: Start) -> None:
    stubborn = slurm.submit(1, gpus=4, work_s=300.0, checkpoint=None)
    slurm.tick()
    sodad = daemon()
    sodad.follow(60)
    slurm.submit(2, gpus=4, work_s=20.0)
    sodad.follow(120)
    assert stubborn.state == "RUNNING"
    assert not sodad.preemptions()


def test_an_unchanged_queue_gets_no_updates(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    for job_id in range(2, 30):
        slurm.submit(job_id, gpus=1 + job_id % 4, work_s=10.0)
    sodad = daemon()
    sodad.follow(5)
    before = slurm.updates
    reports = []
    for _ in range(10):
        reports.append(sodad.run())
        slurm.advance(1)
    assert slurm.updates == before
    assert [report.sent for report in reports] == [0] * 10


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_only_enforce_changes_anything(slurm: FakeSlurm, daemon: Start, mode: str) -> None:
    slurm.submit(1, gpus=4, work_s=300.0)
    slurm.tick()
    sodad = daemon(mode=mode)
    sodad.follow(60)
    slurm.submit(2, gpus=4, work_s=20.0)
    slurm.submit(3, gpus=1, work_s=20.0)
    sodad.follow(30)
    assert not sodad.actions()
    asked = {"waiting_jobs"} if mode == "advise" else set()
    assert set(slurm.calls) == {"jobs", "nodes", "site_factors"} | asked
    cycle = sodad.last_cycle()
    assert (cycle.planned > 0) == (mode == "advise")
    assert ("plan" in cycle.facts) == (mode == "advise")


def test_settings_of_sodactl_override_the_file_at_the_next_cycle(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon(mode="observe")
    assert sodad.run().mode == "observe"
    with sodad.store.write() as session:
        put_admin_setting(session, "mode", "advise", now_s=0.0, by="root")
        put_admin_setting(session, "policy", "no-such-policy", now_s=0.0, by="root")
    assert sodad.run().mode == "advise"
    cycle = sodad.last_cycle()
    assert cycle.policy == "tiresias-las"
    assert "no-such-policy" in cycle.facts["problems"][0]


@pytest.mark.parametrize("while_it", ["reads", "sends"])
def test_what_was_decided_is_not_sent_once_another_mode_is_set(
    slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch, while_it: str
) -> None:
    for job_id in range(1, 30):
        slurm.submit(job_id, gpus=4 if job_id < 10 else 1)
    slurm.tick()
    sodad = daemon(policy={"name": "smallest"})
    monkeypatch.setattr(sending, "CHUNK_UPDATES", 1)

    def observe() -> None:
        with sodad.store.write() as session:
            put_admin_setting(session, "mode", "observe", now_s=0.0, by="root")

    call = "site_factors" if while_it == "reads" else "update"
    before = getattr(slurm, call)

    def during(*args: object) -> object:
        answer = before(*args)
        observe()
        return answer

    monkeypatch.setattr(slurm, call, during)
    report = sodad.run()
    assert (report.mode, report.error) == ("observe", "")
    assert len([job for job in slurm.all.values() if job.site_factor]) == (1 if while_it == "sends" else 0)
    sodad.follow(5)
    assert not [action for action in sodad.actions() if action.state == "intended"]


def test_no_reply_means_no_action_and_says_so(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1)
    sodad = daemon()
    slurm.down = True
    report = sodad.run()
    assert "Unable to contact" in report.error
    assert sodad.last_cycle().error == report.error
    assert not sodad.actions()
    slurm.down = False
    assert not sodad.run().error


def test_the_breaker_opens_after_failures_and_closes_after_its_pause(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    sodad = daemon(change_limits={"breaker_failures": 3, "breaker_pause_s": 60.0})
    slurm.down = True
    for _ in range(3):
        sodad.run()
    slurm.down = False
    slurm.submit(2, gpus=1)
    slurm.submit(3, gpus=1, priority=500)
    report = sodad.run()
    assert (report.sent, report.mode, report.acts) == (0, "enforce", False)
    assert "Unable" in sodad.last_cycle().facts["breaker_cause"]
    slurm.advance(61)
    report = sodad.run()
    assert report.sent > 0
    assert report.acts


@pytest.mark.parametrize(("mode", "acts"), [("observe", False), ("advise", False), ("enforce", True)])
def test_a_report_says_whether_others_may_act_too(daemon: Start, slurm: FakeSlurm, mode: str, acts: bool) -> None:
    sodad = daemon(mode=mode)
    assert sodad.run().acts is acts
    slurm.down = True
    assert not sodad.run().acts


def test_at_most_n_changes_a_cycle_the_rest_later(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    for job_id in range(2, 12):
        slurm.submit(job_id, gpus=1, priority=100 * job_id)
    sodad = daemon(change_limits={"max_changes_per_cycle": 3, "min_change_interval_s": 0.0})
    sent = [sodad.run().sent for _ in range(6)]
    assert max(sent) <= 3
    assert sum(sent) > 3
    assert sent[-1] == 0


def test_a_superseded_daemon_stops_before_it_sends_anything(slurm: FakeSlurm, daemon: Start) -> None:
    old = daemon()
    old.run()
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.submit(2)
    begin_epoch(old.store, host="h", pid=2, version="0", now_s=slurm.clock.now_s())
    calls = len(slurm.calls)
    with pytest.raises(SupersededError, match="superseded by epoch 2"):
        old.run()
    assert slurm.calls[calls:] == []


def test_the_last_plan_is_kept_with_each_job(slurm: FakeSlurm, daemon: Start) -> None:
    slurm.submit(1, gpus=4, work_s=1e6, checkpoint=None)
    slurm.tick()
    slurm.submit(2, gpus=4)
    sodad = daemon()
    sodad.run()
    sodad.run()
    assert sodad.job(1).note["verdict"] in ("run", "protected")
    assert sodad.job(2).note["verdict"] == "wait"
    assert sodad.job(2).note["score_name"]


def test_an_idle_cycle_writes_one_heartbeat(slurm: FakeSlurm, daemon: Start) -> None:
    sodad = daemon()
    sodad.run()
    slurm.advance(10)
    written: list[str] = []
    event.listen(
        sodad.store.engine, "before_cursor_execute", lambda _c, _cursor, statement, *_more: written.append(statement)
    )
    sodad.run()
    assert sum(statement.startswith("UPDATE epoch") for statement in written) == 1


def test_a_running_job_that_was_told_to_go_counts_as_going(slurm: FakeSlurm, daemon: Start) -> None:
    jobs = [record(1, "RUNNING", start_s=0.0), record(2, "RUNNING", start_s=0.0), record(3)]
    slurm.jobs = lambda: jobs  # type: ignore[method-assign]
    state = SlurmReader(slurm).read(Instant(10.0, 10.0), Stopwatch(slurm.clock))
    snapshot = state.snapshot(JobCache(daemon().store), leaving={1, 3}, requeued=(), refused=())
    seen = dict(zip(snapshot.jobs.job_id.tolist(), snapshot.jobs.state.tolist(), strict=True))
    assert seen == {1: JobState.COMPLETING, 2: JobState.RUNNING, 3: JobState.PENDING}


def test_tiers_are_asked_for_where_several_partitions_have_waiting_jobs() -> None:
    slurm = FakeSlurm(FakeClock())
    reader, watch = SlurmReader(slurm), Stopwatch(slurm.clock)
    slurm.tiers = {"main": 1, "short": 2}
    assert reader.read(Instant(0.0, 0.0), watch).tiers == {}
    jobs = [record(1), record(2, partition="short")]
    slurm.jobs = lambda: list(jobs)  # type: ignore[method-assign]
    for now_s in (0.0, 59.0, 60.0):
        state = reader.read(Instant(now_s, now_s), watch)
        assert state.tiers == slurm.tiers
    assert slurm.calls.count("partition_tiers") == 2
    jobs.append(record(3, partition="short,main"))
    slurm.silent.add("partition_tiers")
    assert reader.read(Instant(61.0, 61.0), watch).tiers == slurm.tiers, "as they were, while Slurm does not tell"
    assert slurm.calls.count("partition_tiers") == 3


def test_nobody_is_preempted_while_slurm_does_not_tell_of_waiting_jobs(
    slurm: FakeSlurm, daemon: Start, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [record(1, "RUNNING", start_s=0.0, gpus=1), record(2, gpus=1)]
    slurm.jobs = lambda: jobs  # type: ignore[method-assign]
    slurm.silent.add("waiting_jobs")
    reader, watch = SlurmReader(slurm), Stopwatch(slurm.clock)
    for now_s in (10.0, 20.0):
        state = reader.read(Instant(now_s, now_s), watch)
    table = state.snapshot(JobCache(daemon().store), leaving=(), requeued=(), refused=()).jobs
    assert table.may_preempt[table.job_id.tolist().index(2)].item() is False
    assert sum("waiting-jobs-not-read" in entry.getMessage() for entry in caplog.records) == 1


@pytest.mark.parametrize(("mode", "problems"), [("observe", 0), ("advise", 0), ("enforce", 1)])
def test_a_site_whose_priorities_know_no_site_factor_is_watched(
    slurm: FakeSlurm, daemon: Start, mode: str, problems: int
) -> None:
    """And nothing is changed there, in no mode."""
    slurm.submit(1, gpus=4, work_s=900.0)
    slurm.tick()
    sodad = daemon(mode=mode)
    sodad.follow(60)
    slurm.submit(2, gpus=4, work_s=20.0)
    slurm.basic_priority = True
    sodad.follow(60)
    report = sodad.run()
    assert (report.error, report.acts, sodad.actions()) == ("", False, [])
    assert sodad.job(2).state == "PENDING"
    said = [line for line in sodad.last_cycle().facts.get("problems", []) if "PriorityType=priority/basic" in line]
    assert len(said) == problems
