"""From the progress that jobs tell to columns of a snapshot and to what is known of pairs: with a real store and cycles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.learning.pair_observations import record_pair_observations
from slurm_soda.daemon.learning.profile_rows import row_columns, value_from_row
from slurm_soda.daemon.learning.stored_profiles import read_kind_profiles
from slurm_soda.daemon.sharing.co_runners import GuestsByNode, find_co_runners
from slurm_soda.daemon.sharing.observed_pairs import LATE_S, ObservedRun, behind_s, observe_pairs, saves_every_s
from slurm_soda.daemon.sharing.sharing_snapshot import SharingSnapshotReader
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.progress import CoRunners, RunId
from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow, ObservedPair
from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.policies.run_times.batch_prediction import LEARNED_AFTER_S
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.slurm_ext.client import HeldOnNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.wire.mps import MpsJob
from slurm_soda.wire.records import NodeReport, ReportedProgress
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record
from tests.sampling import examples

Start = Callable[..., Daemon]
SHARING = {"mode": "advise", "policy": {"name": "sjf-bsbf"}, "sharing": {"partitions": ["main"]}}
R50, VGG, BERT = (JobKind(*told, "v100") for told in (("resnet50", 64), ("vgg16", 32), ("bert", 8)))


class Nodes:
    """Trainings that tell their progress through reports, while a daemon follows."""

    def __init__(self, slurm: FakeSlurm, sodad: Daemon) -> None:
        self._slurm, self._sodad = slurm, sodad
        self._writer = ReportWriter(sodad.store, slurm.clock, lambda: None, guests=sodad.cycles._context.guests)
        self._done: dict[int, float] = {}
        self._first_s: dict[int, float] = {}
        self._seq = 0

    def close(self) -> None:
        self._writer.close()

    def follow(self, seconds: float, speeds: dict[int, float], every_s: float = 2.0) -> None:
        """Jobs iterate at these speeds and report now and then."""
        for _ in range(round(seconds / every_s)):
            self._sodad.follow(every_s)
            now_s = self._slurm.clock.now_s()
            told = []
            for job_id, speed in speeds.items():
                self._done[job_id] = self._done.get(job_id, 0.0) + speed * every_s
                first_s = self._first_s.setdefault(job_id, now_s)
                told.append(ReportedProgress(job_id, 0, "n1", first_s, now_s, now_s, 0.0, self._done[job_id], 1e6))
            self._seq += 1
            self._writer.submit(NodeReport("n1", "a", self._seq, now_s, progress=tuple(told))).result(30)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[SharingSnapshot]:
    """Snapshots that policies decided on, the newest last."""
    found: list[SharingSnapshot] = []
    fill = SharingSnapshotReader.fill

    def noting(self: SharingSnapshotReader, *arguments: Any, **more: Any) -> object:
        snapshot = fill(self, *arguments, **more)
        assert isinstance(snapshot, SharingSnapshot)
        found.append(snapshot)
        return snapshot

    monkeypatch.setattr(SharingSnapshotReader, "fill", noting)
    return found


def column(snapshot: SharingSnapshot, name: str) -> dict[int, float]:
    values = getattr(snapshot.sharing, name)
    return {job_id: float(value) for job_id, value in zip(snapshot.jobs.job_id.tolist(), values, strict=True)}


def test_slowdowns_of_a_pair_are_seen_within_a_tenth_and_end_with_it(
    slurm: FakeSlurm, daemon: Start, seen: list[SharingSnapshot]
) -> None:
    slurm.submit(1, gpus=2, work_s=1e6, devices=(0, 1))
    slurm.submit(2, gpus=2, work_s=1e6, devices=(2, 3))
    slurm.tick()
    nodes = Nodes(slurm, sodad := daemon(**SHARING))
    nodes.follow(40, {1: 10.0, 2: 5.0})
    assert all(math.isnan(one) for one in column(seen[-1], "observed_slowdown").values())
    slurm.submit(3, gpus=1, work_s=1e6, devices=(1,), guest=True)
    nodes.follow(6, {1: 10.0, 2: 5.0})  # the guest loads
    nodes.follow(40, {1: 8.0, 2: 5.0, 3: 1.0})
    sodad.run()
    slowdown, together_s = column(seen[-1], "observed_slowdown"), column(seen[-1], "together_s")
    assert slowdown[1] == pytest.approx(10 / 8, rel=0.02)
    assert 34 <= together_s[1] <= 40
    assert math.isnan(slowdown[2])
    assert math.isnan(together_s[2])
    assert math.isnan(slowdown[3]), "nobody knows how fast the guest is alone"
    assert 30 <= together_s[3] <= 40
    slurm.all[3].work_s = 0.0  # it ends
    nodes.follow(6, {1: 10.0, 2: 5.0})
    sodad.run()
    assert math.isnan(column(seen[-1], "observed_slowdown")[1])
    nodes.close()
    assert daemon(**SHARING).run().error == "", "the next daemon reads what this one left"


def test_who_may_be_tried_beside_others_tells_its_pace_and_needs_memory_that_is_known(
    slurm: FakeSlurm, daemon: Start, seen: list[SharingSnapshot]
) -> None:
    sodad = daemon(**SHARING)
    with sodad.store.write() as session:
        for quantity, kind, source, owner in (
            ("memory_mib", R50, Source.IMPORTED, ""), ("memory_mib", VGG, Source.MEASURED, "alice"),
            ("iteration_s", R50, Source.MEASURED, "alice"), ("iteration_s", VGG, Source.IMPORTED, ""),
            ("iteration_s", BERT, Source.MEASURED, "alice"),
        ):  # fmt: skip
            subject = ProfileSubject.of(replace(kind, gpus=4, gpu_type=""))
            value = ProfileValue(subject, quantity, Estimate(0.1, 0.0, source), owner=owner)
            stored.put_value(session, row_columns(value))
    waiting = {2: (R50, "alice"), 3: (R50, "bob"), 4: (VGG, "alice"), 5: (BERT, "alice"), 6: (None, "alice")}
    for job_id, (kind, user) in {1: (R50, "bob"), **waiting}.items():
        hints = Hints() if kind is None else Hints(model=kind.model, batch_size=kind.batch)
        slurm.submit(job_id, gpus=4, work_s=1e6, user=user, hints=hints)
    slurm.tick()
    nodes = Nodes(slurm, sodad)
    sodad.run()
    assert column(seen[-1], "triable") == {job_id: float(job_id == 2) for job_id in range(1, 7)}
    nodes.follow(20, {1: 10.0})
    nodes.close()
    sodad.run()
    assert column(seen[-1], "triable") == {job_id: float(job_id in {1, 2}) for job_id in range(1, 7)}


@pytest.mark.parametrize("signal", ["TERM", None])
def test_beyond_a_bound_the_guest_goes_or_it_is_said_why_it_stays(
    slurm: FakeSlurm, daemon: Start, signal: str | None
) -> None:
    slurm.submit(1, gpus=2, work_s=1e6, devices=(0, 1))
    slurm.tick()
    nodes = Nodes(slurm, sodad := daemon(**{**SHARING, "sharing": {"partitions": ["main"], "max_slowdown": 1.5}}))
    nodes.follow(20, {1: 10.0})
    slurm.submit(3, gpus=1, work_s=1e6, devices=(1,), guest=True, checkpoint=signal)
    nodes.follow(6, {1: 10.0})
    nodes.follow(50, {1: 5.0, 3: 1.0})
    assert (sodad.job(3).note["verdict"], "shares" in sodad.job(1).note) == ("run", False), "not a minute yet"
    nodes.follow(30, {1: 5.0, 3: 1.0})
    nodes.close()
    told = sodad.job(1).note.get("shares", {}).get("stays", "")
    assert sodad.job(3).note["verdict"] == ("preempt" if signal else "run")
    assert ("guest 3 cannot be requeued with its state saved" in told) == (signal is None)


def observed(
    co_runners: Sequence[int] = (8,),
    pace: tuple[float, float] | None = (100.0, 20.0),
    began_s: float = 100.0,
    **told: float,
) -> ObservedRun:
    """A run of job 7 that has done so many iterations in so many seconds beside its co-runners."""
    values = {"at_s": 130.0, "idle_s": 0.0, "iterations": 500.0, "total": 0.0, "saved": -1.0, "saves": 0, **told}
    row = JobProgressRow(job_id=7, restart=0, node="n1", first_s=90.0, began_s=95.0, began_iterations=100.0, **values)
    others = CoRunners(tuple(RunId(one, 0) for one in co_runners), began_s)
    paces = []
    if pace is not None:
        paces = [JobPaceRow(job_id=7, restart=0, first_s=90.0, co_runners=others.name, began_s=began_s,
                            iterations=pace[0], clock_s=pace[1])]  # fmt: skip
    return ObservedRun(record(7, state="RUNNING"), row, paces, others, began_s, None)


@pytest.mark.parametrize(
    ("run", "alone_s", "slowdown", "together_s"),
    [
        (None, 0.1, math.nan, math.nan),
        (observed(co_runners=()), 0.1, math.nan, math.nan),
        (observed(), 0.1, 2.0, 20.0),
        (observed(), None, math.nan, 20.0),
        (observed(pace=None), 0.1, math.nan, 0.0),
        # A few seconds without news are nothing: files are written, read and reported now and then.
        (observed(idle_s=LATE_S), 0.1, 2.0, 20.0),
        # Standing still is slow, also before the first iteration beside others.
        (observed(idle_s=LATE_S + 181.8), 0.1, 201.8 / 101 / 0.1, 201.8),
        (observed(pace=None, at_s=90.0, idle_s=60.0), 0.1, (50.0 - LATE_S) / 0.1, 50.0 - LATE_S),
        (observed(idle_s=1e4, total=500.0), 0.1, 2.0, 20.0),  # it has done its work
    ],
)
def test_what_one_run_shows(run: ObservedRun | None, alone_s: float | None, slowdown: float, together_s: float) -> None:
    found = observe_pairs([run], [alone_s])
    np.testing.assert_allclose(np.array(found).ravel(), [slowdown, together_s])


def beside(began_s: float, at_s: float, slowdown: float, other: str = "8.0") -> JobPaceRow:
    """Beside another job, with iterations that take 0.1 s alone."""
    return JobPaceRow(job_id=7, restart=0, first_s=90.0, co_runners=other, began_s=began_s, at_s=at_s,
                      iterations=(at_s - began_s) / slowdown / 0.1, clock_s=at_s - began_s)  # fmt: skip


def in_another_run(pace: JobPaceRow) -> JobPaceRow:
    pace.restart = 1
    return pace


@pytest.mark.parametrize(
    ("paces", "told", "bound", "behind"),
    [
        ([beside(100, 160, 2.0)], {"at_s": 160.0}, 1.5, 15.0),
        ([beside(100, 160, 2.0)], {"at_s": 180.0}, 1.5, 5.0),  # alone for 20 s
        ([beside(100, 160, 2.0)], {"at_s": 191.0}, 1.5, 0.0),
        ([beside(100, 160, 1.4)], {"at_s": 160.0}, 1.5, 0.0),
        ([beside(100, 160, 2.0)], {"at_s": 160.0}, math.inf, 0.0),
        ([beside(100, 160, 2.0)], {"at_s": 1e9}, 1.0, 30.0),
        # Short guests one after the other, in whatever order they are read; nothing is saved up for later.
        ([beside(130, 150, 2.0, "9.0"), beside(100, 120, 2.0)], {"at_s": 150.0}, 1.5, 5.0),
        ([beside(100, 400, 1.0), beside(400, 420, 2.0, "9.0")], {"at_s": 420.0}, 1.5, 5.0),
        ([beside(100, 120, 2.0), beside(120, 140, 2.0, "8.0+9.0")], {"at_s": 140.0}, 1.5, 10.0),
        ([in_another_run(beside(100, 160, 2.0))], {"at_s": 160.0}, 1.5, 0.0),
        ([beside(100, 160, 2.0)], {"at_s": 160.0, "idle_s": LATE_S + 20.0}, 1.5, 34.85),
    ],
)
def test_how_far_a_job_is_behind_its_bound(
    paces: list[JobPaceRow], told: dict[str, float], bound: float, behind: float
) -> None:
    run = observed(pace=None, **told)._replace(paces=paces)
    assert behind_s(run, 0.1, bound) == pytest.approx(behind)
    assert behind_s(run, None, bound) == behind_s(None, 0.1, bound) == 0.0


def test_how_often_a_job_saves_is_known_from_its_checkpoints() -> None:
    run = observed(saved=500.0, saves=4)
    assert saves_every_s(run, 0.1) == pytest.approx(10.0)
    assert saves_every_s(observed(), 0.1) == saves_every_s(run, None) == saves_every_s(None, 0.1) == math.inf
    assert saves_every_s(observed(saved=50.0, saves=1), 0.1) == math.inf, (
        "less than it began with: a lie, or another training"
    )


def test_co_runners_are_whoever_is_on_a_gpu_of_the_job() -> None:
    jobs = {
        job_id: record(job_id, state="RUNNING", gpus=gpus, node_names="n1", shared_gpus=shared, restarts=restarts)
        for job_id, gpus, shared, restarts in [(1, 2, 0, 0), (2, 1, 0, 0), (3, 1, 1, 4), (4, 1, 1, 0), (5, 0, 0, 0)]
    }
    held = {
        1: [HeldOnNode("n1", 2, 1, (0, 1))], 2: [HeldOnNode("n1", 1, 1, (2,))],
        3: [HeldOnNode("n1", 1, 1, (), (1,))], 4: [HeldOnNode("n1", 1, 1, (), (0,))],
    }  # fmt: skip
    one, guests = RunId(1, 0), (RunId(3, 4), RunId(4, 0))
    assert find_co_runners(jobs, held) == {one: guests, RunId(2, 0): (), guests[0]: (one,), guests[1]: (one,)}
    dark = {**held, 4: [HeldOnNode("n1", 1, 1)]}
    assert find_co_runners(jobs, dark) == {}, "nobody knows on whose GPU job 4 is"
    noted = GuestsByNode()
    noted.note(jobs, held, 10.0)
    noted.note(jobs, held, 20.0)
    assert noted.co_runners_of[one] == CoRunners(guests, 10.0)
    noted.note({**jobs, 3: record(3, state="COMPLETED")}, held, 30.0)
    assert noted.co_runners_of[one] == CoRunners(guests[1:], 30.0)


def test_who_shares_a_daemon_of_mps_shares_by_it_until_they_part() -> None:
    jobs = {
        job_id: record(job_id, state="RUNNING", gpus=1, node_names="n1", shared_gpus=shared)
        for job_id, shared in [(1, 0), (2, 1), (3, 0), (4, 1)]
    }
    held = {
        job_id: [HeldOnNode("n1", 1, 1, *((gpu,), ()) if job_id % 2 else ((), (gpu,)))]
        for job_id, gpu in [(1, 0), (2, 0), (3, 1), (4, 1)]
    }
    noted = GuestsByNode()

    def by_mps() -> dict[int, bool]:
        return {run.job_id: co_runners.mps for run, co_runners in noted.co_runners_of.items()}

    noted.note_mps(
        "n1", [MpsJob(1, "1000", (0,)), MpsJob(2, "1000", (0,)), MpsJob(3, "1000", (1,)), MpsJob(4, "7", (1,))]
    )
    noted.note(jobs, held, 10.0)
    assert by_mps() == {1: True, 2: True, 3: False, 4: False}, "jobs of two daemons take turns"
    noted.note_mps("n1", ())
    noted.note(jobs, held, 20.0)
    assert by_mps() == {1: True, 2: True, 3: False, 4: False}, "the node forgets a job before Slurm does"
    noted.note(
        {one: job for one, job in jobs.items() if one != 2}, {one: on for one, on in held.items() if one != 2}, 30.0
    )
    noted.note(jobs, held, 40.0)
    assert by_mps() == dict.fromkeys(jobs, False)


class History:
    """Ended jobs of a store that told their progress beside others, learned from as sodad learns."""

    def __init__(self, store: Store) -> None:
        self._store, self._ids = store, iter(range(1, 1_000_000))

    def pair(self, owner: str, slowdown: float, *, jobs: int = 1, together_s: float = 100.0, mps: bool = True) -> None:
        """Jobs of R50 ran beside jobs of VGG."""
        with self._store.write() as session:
            ended = []
            for _ in range(jobs):
                job, other = (self._job(session, user, kind) for user, kind in ((owner, R50), ("other", VGG)))
                key = {"job_id": job.job_id, "restart": 0, "first_s": 5.0, "began_s": 6.0, "at_s": 200.0}
                alone = JobPaceRow(**key, co_runners="", mps=False, iterations=200.0, clock_s=20.0)
                beside = JobPaceRow(**key, co_runners=f"{other.job_id}.0", mps=mps, iterations=together_s / 0.1 / slowdown,
                                    clock_s=together_s)  # fmt: skip
                session.add_all([alone, beside])
                ended.append(job)
            session.flush()
            for _ in range(2):  # the second time nothing is new
                record_pair_observations(session, ended, {"n1": "V100"}, 20_000.0)

    def _job(self, session: object, user: str, kind: JobKind) -> Job:
        hints = {"model": kind.model, "batch_size": str(kind.batch)}
        job = Job(job_id=next(self._ids), submit_s=1.0, user=user, state="COMPLETED", gpus=1, end_s=300.0, hints=hints)
        session.add(job)  # type: ignore[attr-defined]
        session.flush()  # type: ignore[attr-defined]
        session.add(JobRun(job_pk=job.id, restart=0, start_s=2.0, end_s=300.0, node_names="n1"))  # type: ignore[attr-defined]
        return job

    def told(self, owner: str, *, mps: bool = True) -> float | None:
        """What an owner is told of R50 beside VGG, where it was measured."""
        with self._store.read() as session:
            found = read_kind_profiles(session, mps=mps).of_owner(owner).xi(R50, [VGG])
        return found.value if found.source == Source.MEASURED else None

    def forget(self) -> None:
        with self._store.write() as session:
            for table in (ObservedPair, JobPaceRow, JobRun, ProfileValueRow, Job):
                session.execute(delete(table))


def test_a_pair_is_known_to_its_owner_and_after_three_owners_to_all(store: Store) -> None:
    history = History(store)
    history.pair("alice", 1.5)
    assert (history.told("alice"), history.told("bob")) == (pytest.approx(1.5), None)
    history.pair("bob", 1.2)
    history.pair("carol", 1.3, jobs=3)
    assert history.told("newcomer") == pytest.approx(1.3)
    assert history.told("bob") == pytest.approx(1.2)
    with store.read() as session:
        rows = session.scalars(select(ProfileValueRow).where(ProfileValueRow.quantity == "xi")).all()
    common = next(value_from_row(row) for row in rows if not row.owner)
    assert (common.origin, common.observations, common.subject.kind.gpu_type) == ("median of 3 owners", 5, "v100")
    assert common.estimate.error > 0


def test_half_a_minute_is_too_short_and_two_of_them_are_enough(store: Store) -> None:
    history = History(store)
    history.pair("alice", 1.5, together_s=30.0)
    assert history.told("alice") is None
    history.pair("alice", 1.5, together_s=30.0)
    assert history.told("alice") == pytest.approx(1.5)


def test_what_was_measured_without_mps_is_kept_apart(store: Store) -> None:
    history = History(store)
    history.pair("alice", 1.9, mps=False)
    assert (history.told("alice", mps=False), history.told("alice")) == (pytest.approx(1.9), None)
    history.pair("alice", 1.2)
    assert (history.told("alice", mps=False), history.told("alice")) == (pytest.approx(1.9), pytest.approx(1.2))


def test_nobody_is_faster_beside_another_than_alone(store: Store) -> None:
    history = History(store)
    history.pair("alice", 0.5)
    assert history.told("alice") == 1.0


@given(
    honest=st.lists(st.floats(1.0, 5.0), min_size=2, max_size=5), lie=st.floats(0.001, 1e6), jobs=st.integers(1, 3),
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(30))
def test_a_lie_never_leaves_the_range_of_honest_owners(
    store: Store, honest: list[float], lie: float, jobs: int
) -> None:
    history = History(store)
    history.forget()
    history.pair("liar", lie, jobs=jobs)
    for at, slowdown in enumerate(honest):
        history.pair(f"owner{at}", slowdown)
    told = history.told("newcomer")
    assert told is not None
    assert min(honest) * 0.999 <= told <= max(honest) * 1.001
    for at, slowdown in enumerate(honest):
        assert history.told(f"owner{at}") == pytest.approx(slowdown), "own reports count for own jobs"


def test_an_ended_pair_is_learned_by_the_running_daemon(slurm: FakeSlurm, daemon: Start) -> None:
    model = {"hints": Hints(model="resnet50", batch_size=64)}
    slurm.submit(1, gpus=1, work_s=180.0, devices=(0,), **model)
    slurm.tick()
    nodes = Nodes(slurm, sodad := daemon(**SHARING))
    nodes.follow(40, {1: 10.0})
    slurm.submit(2, gpus=1, work_s=1e6, devices=(0,), guest=True, **model)
    nodes.follow(120, {1: 5.0, 2: 5.0})
    nodes.close()
    sodad.follow(40 + 2 * LEARNED_AFTER_S, every_s=2.0)
    assert slurm.all[1].state == "COMPLETED"
    with sodad.store.read() as session:
        (value,) = [value_from_row(row) for row in stored.all_values(session, "xi_time_slicing")]
    assert value.estimate.value == pytest.approx(2.0, rel=0.1)
    assert (value.subject.kind.model, value.subject.partner, value.owner) == ("resnet50", "resnet50", "alice")
