"""From the progress that jobs tell to columns of a snapshot and to what is known of pairs: with a real store and cycles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.daemon.api.report_writer import ReportWriter
from slurm_soda.daemon.learning.ended_jobs import RECORDED_AFTER_S
from slurm_soda.daemon.learning.profile_rows import row_columns, value_from_row
from slurm_soda.daemon.sharing.observed_pairs import LATE_S, ObservedRun, behind_s, observe_pairs, saves_every_s
from slurm_soda.daemon.sharing.sharing_snapshot import SharingSnapshotReader
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.daemon.store.progress import CoRunners, RunId
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.wire.records import NodeReport, ReportedProgress
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.records import record

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


def test_an_ended_pair_is_learned_by_the_running_daemon(slurm: FakeSlurm, daemon: Start) -> None:
    model = {"hints": Hints(model="resnet50", batch_size=64)}
    slurm.submit(1, gpus=1, work_s=180.0, devices=(0,), **model)
    slurm.tick()
    nodes = Nodes(slurm, sodad := daemon(**SHARING))
    nodes.follow(40, {1: 10.0})
    slurm.submit(2, gpus=1, work_s=1e6, devices=(0,), guest=True, **model)
    nodes.follow(120, {1: 5.0, 2: 5.0})
    nodes.close()
    sodad.follow(40 + 2 * RECORDED_AFTER_S, every_s=2.0)
    assert slurm.all[1].state == "COMPLETED"
    with sodad.store.read() as session:
        (value,) = [value_from_row(row) for row in stored.all_values(session, "xi_time_slicing")]
    assert value.estimate.value == pytest.approx(2.0, rel=0.1)
    assert (value.subject.kind.model, value.subject.partner, value.owner) == ("resnet50", "resnet50", "alice")
