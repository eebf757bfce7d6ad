"""What preemptions cost, observed by sodad: over a real store, and in a daemon that preempts a training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.clock import Instant
from slurm_soda.daemon.learning.preemption_costs import PreemptionCostReader
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.jobs.cached_job import CachedJob, CachedRun
from slurm_soda.daemon.store.jobs.job_cache import JobCache
from slurm_soda.daemon.store.tables.kind_profiles import ObservedPreemption
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.daemon.store.tables.scheduling import Job, Preemption
from slurm_soda.policies.preemption_costs.observed_preemption import PreemptionCost
from slurm_soda.policies.run_times.job_groups import SubmissionTraits
from slurm_soda.policies.snapshot import NodeTable
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.wire.records import NodeReport, ReportedProgress
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record
from tests.policies.cases import NOW_S, cluster, running, waiting

Start = Callable[..., Daemon]
SUBMIT_S = 1_700_000_000.0
HINTS = Hints(checkpoint_signal="TERM", model="bert")
STOPPED_S, AGAIN_S = SUBMIT_S + 1000.0, SUBMIT_S + 5000.0
RUNNING = record(7, "RUNNING", submit_s=STOPPED_S, start_s=AGAIN_S, restarts=1, hints=HINTS)


class History:
    """Job 7 ran, was preempted, and runs again."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.job = CachedJob(7, SUBMIT_S, record=RUNNING, restart=1, state="RUNNING")
        self.job.runs = {0: CachedRun(0, SUBMIT_S, STOPPED_S), 1: CachedRun(1, AGAIN_S)}
        with store.write() as session:
            row = Job(job_id=7, submit_s=SUBMIT_S, user="alice", name="job", state="RUNNING", gpus=2)
            session.add(row)
            session.flush()
            self.job.pk = row.id
        self.cache = JobCache(store)
        self.cache.jobs = {7: self.job}

    def preempted(self, phase: str = "done", submit_s: float = SUBMIT_S) -> None:
        times = dict.fromkeys(("created_s", "deadline_s", "updated_s"), STOPPED_S)
        with self.store.write() as session:
            session.add(Preemption(job_id=7, submit_s=submit_s, restart=0, phase=phase, **times))

    def tell(self, restart: int, **values: Any) -> None:
        first_s = SUBMIT_S if restart == 0 else AGAIN_S
        row = {
            "began_s": first_s + 70.0, "began_iterations": 0.0, "at_s": first_s + 980.0, "clock_s": 900.0, "idle_s": 0.0,
            "iterations": 450.0, "total": 0.0, "batch": 0, "saved": -1.0, "saves": 0, "saved_s": None, **values,
        }  # fmt: skip
        pace = {"began_s": row["began_s"], "at_s": row["at_s"], "iterations": 450.0, "clock_s": 900.0}
        with self.store.write() as session:
            session.add(JobProgressRow(job_id=7, restart=restart, node="n1", first_s=first_s, **row))
            session.add(JobPaceRow(job_id=7, restart=restart, first_s=first_s, **pace))

    def observed(self) -> list[tuple[int, str, float, float]]:
        with self.store.read() as session:
            rows = session.query(ObservedPreemption).all()
            return [(row.restart, row.model, row.overhead_s, row.lost_s) for row in rows]

    def step(self, reader: PreemptionCostReader, later_s: float = 0.0) -> None:
        reader.step(Instant(AGAIN_S + 1000.0, later_s), self.cache)


def test_a_job_that_goes_on_shows_what_its_preemption_cost(store: Store) -> None:
    history, reader = History(store), PreemptionCostReader(store)
    history.preempted()
    history.tell(0)
    history.step(reader)
    assert history.observed() == [], "it has not told anything again"
    history.tell(1, began_iterations=400.0)
    history.step(reader, 10.0)
    assert history.observed() == [], "it is looked at every half a minute"
    history.step(reader, 31.0)
    assert history.observed() == [(0, "bert", 20.0 + 70.0, 50.0 * 2.0)]
    history.step(reader, 70.0)
    assert len(history.observed()) == reader.learner.observed == 1, "once"
    again = PreemptionCostReader(store)
    history.step(again)
    assert len(history.observed()) == again.learner.observed == 1, "the next daemon knows it, and that it is told"


@pytest.mark.parametrize(
    "change",
    ["not preempted", "ended by itself", "another job of the id", "told nothing before", "shared", "a clock was set"],
)
def test_what_shows_nothing_is_not_recorded(store: Store, change: str) -> None:
    history, reader = History(store), PreemptionCostReader(store)
    if change != "not preempted":
        lost, other = change == "ended by itself", change == "another job of the id"
        history.preempted("lost" if lost else "done", SUBMIT_S - 5.0 if other else SUBMIT_S)
    if change != "told nothing before":
        history.tell(0)
    history.job.runs[0].shared = change == "shared"
    history.tell(1, began_s=AGAIN_S - 50.0 if change == "a clock was set" else AGAIN_S + 70.0)
    history.step(reader)
    assert (history.observed(), reader.learner.observed) == ([], 0)


def filled(store: Store, *costs: PreemptionCost, owners: str = "abcd") -> Any:
    """Prices of a job of alice's that runs, of one that waits, of one that did not agree, and of one without GPUs."""
    reader = PreemptionCostReader(store)
    for owner in owners:
        for cost in costs:
            reader.learner.learn(SubmissionTraits(owner, 2, model="BERT"), cost)
    rows = [
        running(7, (0, 2), since_s=500.0),
        waiting(8, preemptible=True),
        waiting(9),
        waiting(10, 0, preemptible=True),
    ]
    snapshot = cluster(rows, NodeTable.uniform(1, 4))
    jobs = {
        job_id: record(job_id, "RUNNING" if job_id == 7 else "PENDING", restarts=1, hints=HINTS)
        for job_id in range(7, 11)
    }
    return reader.fill(snapshot, jobs)


def test_snapshots_have_the_price_of_each_job_that_agreed(store: Store) -> None:
    assert not len(filled(store).preemption_costs), "nothing was learned"
    costs = filled(store, *[PreemptionCost(300.0, 0.0)] * 5).preemption_costs
    assert costs.learned_s.tolist() == [300.0, 300.0, 0.0, 0.0]
    assert costs.weight.tolist() == [pytest.approx(0.8), pytest.approx(0.8), 0.0, 0.0]
    assert costs.most_s.tolist() == [300.0, 300.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("saved", "saved_s", "unsaved_s"),
    [(-1.0, None, 100.0), (50.0, None, 200.0), (60.0, NOW_S - 30.0, 30.0), (60.0, NOW_S - 9e4, 200.0)],
    ids=["tells of none", "none in this run", "half a minute ago", "long ago"],
)
def test_the_price_grows_with_the_work_since_the_last_checkpoint(
    store: Store, saved: float, saved_s: float | None, unsaved_s: float
) -> None:
    """A state of this kind is saved every 200 s, and its jobs do not save it when they are asked to."""
    with store.write() as session:
        session.add(JobProgressRow(
            job_id=7, restart=1, node="n1", first_s=NOW_S - 499.0, began_s=NOW_S - 490.0, began_iterations=0.0, total=0.0,
            at_s=NOW_S, clock_s=400.0, idle_s=0.0, iterations=100.0, batch=0, saved=saved, saved_s=saved_s, saves=0,
        ))  # fmt: skip
    costs = filled(store, PreemptionCost(40.0, 100.0)).preemption_costs
    assert costs.learned_s.tolist()[:2] == [40.0 + unsaved_s, 40.0]


def test_what_fails_leaves_the_snapshot_and_the_cycle_as_they_were(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("broken")

    for name in ("_with_costs", "_observe"):
        monkeypatch.setattr(PreemptionCostReader, name, fail)
    assert not len(filled(store, PreemptionCost(300.0, 0.0)).preemption_costs)
    history, reader = History(store), PreemptionCostReader(store)
    for later_s in (0.0, 100.0):
        history.step(reader, later_s)
    told = [message.split()[0] for message in caplog.messages]
    assert told == ["preemption-costs-not-told", "preemption-costs-not-learned"], "each once"


class Training:
    """Job 1, an iteration a second; it saves its state every 100, is told to stop, and does not save then."""

    def __init__(self, slurm: FakeSlurm, sodad: Daemon) -> None:
        self.slurm, self.sodad, self._seq = slurm, sodad, 0
        self._writer = ReportWriter(sodad.store, slurm.clock, lambda: None, guests=sodad.cycles._context.guests)
        self._done = 0.0
        self._restart, self._first_s = 0, math.nan

    def follow(self, seconds: float, every_s: float = 10.0) -> None:
        for _ in range(round(seconds / every_s)):
            self.sodad.follow(every_s, every_s)
            job, now_s = self.slurm.all[1], self.slurm.clock.now_s()
            if job.state != "RUNNING":
                self._first_s = math.nan
                continue
            if math.isnan(self._first_s):
                self._first_s, self._restart = job.start_s, job.restarts
                self._done = self._done // 100.0 * 100.0
            if now_s - self._first_s < 60.0:  # it loads
                continue
            self._done += every_s
            saved = self._done // 100.0 * 100.0
            told = ReportedProgress(1, job.restarts, "n1", self._first_s, now_s, now_s, 0.0, self._done, 1e6, saved)
            self._seq += 1
            self._writer.submit(NodeReport("n1", "a", self._seq, now_s, progress=(told,))).result(30)

    def close(self) -> None:
        self._writer.close()


def test_sodad_learns_from_its_own_preemptions_and_says_so(slurm: FakeSlurm, daemon: Start) -> None:
    config = {"policy": {}, "preemption": {"default_grace_s": 1.0}}
    slurm.submit(1, gpus=4, work_s=1e5, time_limit_s=1e6, hints=replace(HINTS, checkpoint_signal=None))
    training = Training(slurm, sodad := daemon(**config))
    training.follow(900)
    slurm.submit(2, gpus=4, work_s=100.0, time_limit_s=200.0)
    training.follow(700)
    assert slurm.all[1].restarts == 1
    seen = sodad.rows(ObservedPreemption)
    assert [(row.job_pk, row.restart, row.model) for row in seen] == [(sodad.job(1).id, 0, "bert")]
    assert 50.0 <= seen[0].overhead_s <= 90.0
    assert 0.0 < seen[0].lost_s <= 100.0
    slurm.submit(3, gpus=4, work_s=100.0, time_limit_s=200.0)
    training.follow(400)
    training.close()
    assert slurm.all[1].restarts == 2
    reasons = [row.reason for row in sodad.preemptions()]
    assert "costs" not in reasons[0]
    assert "to stop it costs 60 s on each of its GPUs" in reasons[1], (
        "no more than the policy's own number: he is alone"
    )


def test_columns_are_those_of_the_table(store: Store) -> None:
    snapshot = filled(store, PreemptionCost(300.0, 0.0))
    assert len(snapshot.preemption_costs) == len(snapshot.jobs)
    assert snapshot.preemption_costs.only(np.array([1, 3])).learned_s.tolist() == [300.0, 0.0]
