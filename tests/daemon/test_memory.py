"""What is known of a job's past, from what Slurm shows at whatever time somebody looks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from slurm_soda.daemon.cycle.accounting_lookup import apply_accounting
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.cached_job import CachedJob, update_from_record
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.scheduling import Action, Job, JobRun, NodeEvent
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.read.sacct import JobAccounting, RunAccounting
from slurm_soda.wire.records import JobClosed, JobOpened, NodeReport
from tests.daemon.records import NAN, record

WAITS = record(submit_s=1000.0)
RUNS = record(state="RUNNING", start_s=1010.0)
REQUEUED = record(reason="BeginTime", restarts=1, submit_s=1060.0, eligible_s=1181.0)
RUNS_AGAIN = record(state="RUNNING", restarts=1, submit_s=1060.0, start_s=1100.0)
ENDED = record(state="COMPLETED", restarts=1, submit_s=1060.0, start_s=1100.0, end_s=1130.0)


def seen(*sights: tuple[SlurmJob, float]) -> CachedJob:
    job = CachedJob(1, sights[0][0].submit_s)
    for slurm_state, now_s in sights:
        update_from_record(job, slurm_state, now_s)
    return job


@pytest.mark.parametrize(
    "sights",
    [
        [(WAITS, 1000.0), (RUNS, 1011.0), (REQUEUED, 1061.0), (RUNS_AGAIN, 1101.0), (ENDED, 1131.0)],
        [(WAITS, 1000.0), (RUNS, 1050.0), (RUNS_AGAIN, 1120.0), (ENDED, 1500.0)],
        [(RUNS, 1050.0), (ENDED, 1500.0)],
    ],
    ids=["every change seen", "requeue missed", "restart missed"],
)
def test_runs_are_right_however_late_one_looks(sights: list[tuple[SlurmJob, float]]) -> None:
    job = seen(*sights)
    assert [(run.start_s, run.end_s) for run in job.runs.values()] == [(1010.0, 1060.0), (1100.0, 1130.0)]
    assert (job.submit_s, job.first_start_s, job.end_s, job.executed_s) == (1000.0, 1010.0, 1130.0, 80.0)


def test_a_requeued_job_waits_since_the_end_of_its_run() -> None:
    past = seen((RUNS, 1011.0), (REQUEUED, 1090.0)).past()
    assert (past.executed_s, past.waiting_since_s, past.first_start_s, past.submit_s) == (50.0, 1060.0, 1010.0, 1000.0)


def test_a_completing_job_changes_nothing_yet() -> None:
    leaving = record(state="COMPLETING", restarts=1, start_s=1058.0, end_s=4000.0)
    job = seen((RUNS, 1011.0), (leaving, 1058.0))
    assert list(job.runs) == [0]
    assert job.runs[0].end_s is None


def test_a_running_job_that_somebody_changes_runs_on() -> None:
    longer = record(state="RUNNING", start_s=1010.0, time_limit_s=7200.0)
    job = seen((RUNS, 1011.0), (longer, 1200.0))
    assert [(run.start_s, run.end_s) for run in job.runs.values()] == [(1010.0, None)]


def test_a_job_cancelled_while_it_waited_has_no_run() -> None:
    job = seen((WAITS, 1000.0), (record(state="CANCELLED", start_s=1020.0, end_s=1020.0, node_names=""), 1021.0))
    assert not job.runs
    assert job.end_s == 1020.0


def test_an_ended_job_that_is_requeued_lives_again() -> None:
    failed = record(state="FAILED", start_s=1010.0, end_s=1050.0, exit_code="3:0")
    job = seen((RUNS, 1011.0), (failed, 1051.0), (REQUEUED, 1061.0))
    assert (job.end_s, job.exit_code, job.accounted) == (None, "", False)
    assert job.runs[0].end_s == 1050.0, "the run ended when Slurm said so, not at the requeue"


def test_a_promotion_forgives_service_and_waiting() -> None:
    job = seen((RUNS, 1011.0), (REQUEUED, 1061.0))
    job.promote(1080.0)
    assert (job.past().executed_s, job.past().waiting_since_s) == (0.0, 1080.0)
    update_from_record(job, RUNS_AGAIN, 1101.0)
    job.promote(1110.0)
    assert job.past().run_since_s == 1110.0
    update_from_record(job, ENDED, 1131.0)
    assert (job.executed_s, job.promotions) == (20.0, 2)


@given(st.lists(st.sampled_from([0, 1, 2, 3, 4]), min_size=1, unique=True).map(sorted))
def test_any_subset_of_sights_ends_in_the_same_past(which: list[int]) -> None:
    story = [(WAITS, 1000.0), (RUNS, 1030.0), (REQUEUED, 1070.0), (RUNS_AGAIN, 1110.0), (ENDED, 1140.0)]
    job = seen((WAITS, 1000.0), *[story[at] for at in which], (ENDED, 1140.0))
    full = seen(*story)
    assert job.runs[1] == full.runs[1]
    assert (job.end_s, job.state, job.restart, job.submit_s) == (full.end_s, full.state, full.restart, full.submit_s)
    if 1 in which:
        assert job.executed_s == full.executed_s


# --- the book ---------------------------------------------------------------------------------------------------


def write(job_cache: JobCache, store: Store, now_s: float = 0.0) -> int:
    with store.write() as session:
        rows = job_cache.save(session, now_s)
    job_cache.saved()
    return rows


def all_rows(store: Store, table: type[Any]) -> list[Any]:
    with store.read() as session:
        return list(session.scalars(select(table).order_by(table.id)))


def test_only_what_changed_is_written(store: Store) -> None:
    job_cache = JobCache(store)
    jobs = [record(job_id) for job_id in range(1, 6)]
    job_cache.observe(jobs, 1000.0)
    assert write(job_cache, store) == 5
    older = [record(job_id, priority=job_id * 10, eligible_s=1001.0) for job_id in range(1, 6)]
    job_cache.observe(older, 1010.0)
    assert write(job_cache, store) == 0, "priority grows with age: nothing to remember"
    job_cache.observe([record(1, state="RUNNING", start_s=1011.0), *older[1:]], 1012.0)
    assert write(job_cache, store) == 2, "a job and its run"


def test_a_run_never_counts_for_less_than_was_seen_of_it(store: Store) -> None:
    """Slurm's whole seconds must not bring a preempted job back below the threshold that it was preempted for crossing."""
    job_cache = JobCache(store)
    for now_s in (1011.0, 1060.4, 1060.9):
        job_cache.observe([RUNS], now_s)
    leaving = record(state="COMPLETING", restarts=1, start_s=1060.0)
    job_cache.observe([leaving], 1061.4)
    job_cache.observe([REQUEUED], 1062.0)
    assert job_cache.past()[1].executed_s == pytest.approx(50.9)
    job_cache.observe([RUNS_AGAIN], 1101.0)
    job_cache.observe([ENDED], 1131.0)
    assert [run.end_s for run in job_cache.jobs[1].runs.values()] == [pytest.approx(1060.9), 1130.0]


def test_a_restarted_daemon_goes_on_where_the_last_one_was(store: Store) -> None:
    first = JobCache(store)
    first.observe([RUNS], 1011.0)
    first.count_preemption(1)
    first.promote([1], 1020.0)
    write(first, store)
    second = JobCache(store)
    second.observe([RUNS_AGAIN], 1105.0)
    assert second.past()[1].executed_s == 40.0
    assert second.past()[1].preemptions == 1
    assert write(second, store) > 0
    assert [(run.restart, run.start_s, run.end_s) for run in all_rows(store, JobRun)] == [
        (0, 1010.0, 1060.0),
        (1, 1100.0, None),
    ]


@pytest.mark.parametrize("reason", ["JobHeldUser", "Dependency", "QOSMaxJobsPerUserLimit", "AssocGrpGRES"])
def test_a_job_that_is_kept_back_waits_from_when_it_no_longer_is(store: Store, reason: str) -> None:
    job_cache, waits = JobCache(store), record(reason="Resources")
    job_cache.observe([waits], 1000.0)
    assert 1 not in job_cache.past(), "Slurm knows since when it waits"
    job_cache.observe([record(reason=reason)], 2000.0)
    job_cache.observe([waits], 90_000.0)
    assert job_cache.past()[1].waiting_since_s == 90_000.0
    write(job_cache, store)
    job_cache.observe([record(reason="Priority")], 90_100.0)
    assert job_cache.past()[1].waiting_since_s == 90_000.0, "from place to place in the queue it waits on"
    job_cache.observe([record(state="RUNNING", start_s=90_200.0)], 90_201.0)
    assert job_cache.past()[1].waiting_since_s == 90_000.0, "so long it has waited for this run"
    again = JobCache(store)
    again.observe([waits], 90_300.0)
    assert again.past()[1].waiting_since_s == 90_000.0, "the store remembers"


def test_a_requeue_delays_no_wait(store: Store) -> None:
    job_cache = JobCache(store)
    job_cache.observe([RUNS], 1011.0)
    job_cache.observe([record(restarts=1, submit_s=1060.0, reason="BeginTime")], 1062.0)
    job_cache.observe([record(restarts=1, submit_s=1060.0, eligible_s=1181.0, reason="Resources")], 1185.0)
    assert job_cache.past()[1].waiting_since_s == 1060.0


def test_a_reused_job_id_is_another_job(store: Store) -> None:
    job_cache = JobCache(store)
    job_cache.observe([ENDED], 1131.0)
    write(job_cache, store)
    job_cache.observe([record(submit_s=5000.0)], 5000.0)
    write(job_cache, store)
    assert [(job.submit_s, job.state) for job in all_rows(store, Job)] == [(1060.0, "COMPLETED"), (5000.0, "PENDING")]


def test_hostile_text_survives(store: Store) -> None:
    name = 'a\'; echo \udcff|\n"x"'
    job_cache = JobCache(store)
    job_cache.observe([record(name=name)], 1000.0)
    write(job_cache, store)
    assert all_rows(store, Job)[0].name == name


def test_runs_that_nobody_saw_come_from_prolog_and_epilog(store: Store) -> None:
    opened = JobOpened(1, 0, "n1", 1000, "alice", "main", 1010.0, (0, 1), 4)
    closed = JobClosed(1, 0, "n1", 1055.0)
    report = NodeReport("n1", "a", 1, 1056.0, (opened,), (closed,))
    for told in ("once", "again, which changes nothing"):
        with store.write() as session:
            store_report(session, report, 1056.0)
        assert len(all_rows(store, NodeEvent)) == 2, told
    job_cache = JobCache(store)
    job_cache.observe([WAITS], 1005.0)
    job_cache.observe([RUNS_AGAIN], 1120.0)
    write(job_cache, store)
    runs = {(run.restart, run.start_s, run.end_s, run.gpus) for run in all_rows(store, JobRun)}
    assert runs == {(0, 1010.0, 1055.0, 2), (1, 1100.0, None, 2)}
    assert job_cache.past()[1].executed_s == 45.0


def test_a_vanished_job_is_not_alive_for_ever(store: Store) -> None:
    job_cache = JobCache(store)
    job_cache.observe([RUNS], 1011.0)
    write(job_cache, store)
    job_cache.observe([], 5000.0)
    job_cache.forget(set(), 5000.0, accounting=False)
    write(job_cache, store)
    (job,) = all_rows(store, Job)
    assert (job.state, job.end_s) == ("UNKNOWN", 5000.0)
    assert not job_cache.jobs


def accounted(**more: Any) -> JobAccounting:
    runs = (
        RunAccounting(1010.0, 1060.0, "REQUEUED", "0:0", 30.0, 100.0, 2, 4, 1, "n1"),
        RunAccounting(1100.0, 1130.0, "COMPLETED", "0:0", 20.0, NAN, 2, 4, 1, "n1"),
    )
    values: dict[str, Any] = {"job_id": 1, "user": "alice", "submit_s": 1000.0, "state": "COMPLETED"}
    return JobAccounting(**(values | {"exit_code": "0:0", "runs": runs} | more))


def test_the_end_of_a_run_that_accounting_alone_saw_is_written(store: Store) -> None:
    job_cache = JobCache(store)
    job_cache.observe([RUNS], 1011.0)
    write(job_cache, store)
    apply_accounting(job_cache.jobs[1], accounted(runs=accounted().runs[:1]))
    write(job_cache, store)
    assert [(run.start_s, run.end_s) for run in all_rows(store, JobRun)] == [(1010.0, 1060.0)]


def test_accounting_completes_a_job_that_was_first_seen_late(store: Store) -> None:
    job_cache = JobCache(store)
    job_cache.observe([RUNS_AGAIN], 1110.0)
    write(job_cache, store)
    with store.write() as session:
        session.add(Action(job_id=1, submit_s=1060.0, kind="order", state="done", created_s=1111.0))
    job_cache.observe([ENDED], 1140.0)
    apply_accounting(job_cache.jobs[1], accounted())
    write(job_cache, store)
    (job,) = all_rows(store, Job)
    assert (job.submit_s, job.cpu_s, job.memory_peak_mib, job.accounted) == (1000.0, 50.0, 100.0, True)
    assert {(run.restart, run.start_s, run.end_s) for run in all_rows(store, JobRun)} == {
        (0, 1010.0, 1060.0),
        (1, 1100.0, 1130.0),
    }
    assert all_rows(store, Action)[0].submit_s == 1000.0, "the trail follows the job"


def test_accounting_tells_how_a_vanished_job_ended(store: Store) -> None:
    job_cache = JobCache(store)
    job_cache.observe([RUNS_AGAIN], 1110.0)
    job_cache.observe([], 9000.0)
    job_cache.forget(set(), 9000.0, accounting=True)
    assert [job.job_id for job in job_cache.unaccounted(set())] == [1]
    apply_accounting(job_cache.jobs[1], accounted())
    job_cache.forget(set(), 9000.0, accounting=True)
    write(job_cache, store)
    (job,) = all_rows(store, Job)
    assert (job.state, job.end_s, job.first_start_s) == ("COMPLETED", 1130.0, 1010.0)
