"""What sodad sees of GPUs that are shared, what is decided on it, and that nothing of that reaches Slurm."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.daemon.cycle.observation import SnapshotReader
from slurm_soda.daemon.learning.manual_edits import ProfileEditor
from slurm_soda.daemon.learning.profile_rows import row_columns
from slurm_soda.daemon.sharing import sharing_snapshot
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.tables.kind_profiles import ProfileValueRow
from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.registry.catalog import make_policy
from slurm_soda.policies.sharing.engine.plan_check import SharingPlanError, check_sharing_plan
from slurm_soda.policies.sharing.job_kinds import Estimate, JobKind, Source
from slurm_soda.policies.sharing.pair_knowledge.profile_values import ProfileSubject, ProfileValue
from slurm_soda.policies.sharing.plan import SharingPlan
from slurm_soda.policies.sharing.prediction.predicted_interference import PredictedInterference
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.snapshot_file.document import SnapshotDump, plan_bytes, read_dump, write_dump
from slurm_soda.policies.snapshot_file.values import EncodingError
from slurm_soda.slurm_ext.hints.flags import Hints
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon

Start = Callable[..., Daemon]
POLICY = "sjf-bsbf"
MODES: dict[str, dict[str, Any]] = {
    mode: {
        "mode": mode,
        "policy": {"name": POLICY},
        "sharing": {"partitions": ["main"]},
    }
    for mode in ("advise", "enforce")
}
RESNET, LM = (Hints(model=model, batch_size=8, share=True) for model in ("ResNet-50", "LM"))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[ClusterSnapshot]:
    """Snapshots on which sodad decided."""
    found: list[ClusterSnapshot] = []
    plain = SnapshotReader.snapshot

    def snapshot(self: SnapshotReader, *args: Any, **more: Any) -> ClusterSnapshot:
        found.append(plain(self, *args, **more))
        return found[-1]

    monkeypatch.setattr(SnapshotReader, "snapshot", snapshot)
    return found


def know(store: Store) -> None:
    """Both models barely slow each other down; the GPU is large."""
    resnet, lm = (JobKind(model, 8, "", 2) for model in ("resnet50", "lm"))
    pairs = [(resnet, lm), (lm, resnet), (resnet, resnet), (lm, lm)]
    values = [ProfileValue(ProfileSubject.of(*pair), "xi", Estimate(1.1, 0.0, Source.SET)) for pair in pairs]
    values += [ProfileValue(ProfileSubject.of(*pair), "fits", Estimate(1.0, 0.0, Source.SET)) for pair in pairs]
    values += [
        ProfileValue(ProfileSubject(kind), "iteration_s", Estimate(0.5, 0.0, Source.SET)) for kind in (resnet, lm)
    ]
    values.append(ProfileValue(ProfileSubject(JobKind("", 0, "", 1)), "device_mib", Estimate(16e3, 0.0, Source.SET)))
    values.append(
        ProfileValue(ProfileSubject(JobKind("unet", 1, "", 1)), "iteration_s", Estimate(1.0, 0.0, Source.SET))
    )
    owned = ProfileValue(ProfileSubject(lm), "memory_mib", Estimate(3.0, 0.0, Source.MEASURED), owner="alice")
    with store.write() as session:
        session.add_all(ProfileValueRow(**row_columns(value)) for value in (*values, owned))


def busy(slurm: FakeSlurm) -> None:
    """Two jobs hold the four GPUs, a guest is with the second, a third job waits and may share."""
    slurm.submit(1, gpus=2, work_s=2000.0, hints=replace(RESNET, iterations=4000), devices=(1, 3))
    slurm.submit(2, gpus=2, work_s=3000.0, hints=replace(RESNET, share=False), devices=(0, 2))
    slurm.submit(3, gpus=1, work_s=3000.0, hints=replace(LM, max_slowdown=1.5), devices=(2,), guest=True)
    slurm.tick()
    slurm.submit(4, gpus=2, work_s=600.0, hints=replace(LM, iterations=1200, accumulates=True))
    slurm.submit(5, gpus=1, work_s=600.0, hints=Hints(share=True))
    slurm.submit(6, gpus=1, work_s=600.0, hints=Hints(model="LM"))
    slurm.submit(7, gpus=2, work_s=600.0, hints=LM, devices=(0, 2), guest=True, never_starts=True)


def test_sodad_sees_single_gpus_kinds_and_consent(slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]) -> None:
    busy(slurm)
    sodad = daemon(**MODES["advise"])
    know(sodad.store)
    assert not sodad.run().error
    assert not sodad.run().error, "run times are predicted from the second cycle on"
    snapshot = seen[-1]
    assert isinstance(snapshot, SharingSnapshot)
    jobs, devices, sharing = snapshot.jobs, snapshot.devices, snapshot.sharing
    assert jobs.job_id.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert [devices.of(row).tolist() for row in range(7)] == [[1, 3], [0, 2], [2], [], [], [], []]
    assert (snapshot.nodes.gpus_free.tolist(), devices.memory_mib.tolist()) == ([0], [16e3] * 4)
    assert [jobs.alloc(row)[0][1] for row in range(3)] == [2, 2, 1]
    kinds = [sharing.kinds[code] if code >= 0 else None for code in sharing.kind.tolist()]
    resnet, lm = JobKind("resnet50", 8, "", 2), JobKind("lm", 8, "", 2)
    assert kinds == [resnet, resnet, replace(lm, gpus=1), lm, None, JobKind("lm", 0, "", 1), lm]
    assert sharing.shares.tolist() == [True, False, True, True, True, False, True]
    assert sharing.accumulates.tolist() == [False] * 3 + [True] + [False] * 3
    assert sharing.max_slowdown.tolist() == [np.inf, np.inf, 1.5, np.inf, np.inf, np.inf, np.inf]
    assert sharing.iterations[3] == pytest.approx(1200.0)
    assert not devices.unavailable.any()
    assert jobs.view(6).state.name == "BLOCKED", "a waiting guest is not a policy's to start"


def test_knowledge_is_one_value_until_something_else_is_known(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]
) -> None:
    busy(slurm)
    sodad = daemon(**MODES["advise"])
    know(sodad.store)

    def known_later() -> Any:
        sodad.follow(sharing_snapshot.KNOWN_FOR_S + 5)
        assert isinstance(seen[-1], SharingSnapshot)
        return seen[-1].known

    lm = JobKind("lm", 8, "", 2)
    first = known_later()
    assert known_later() is first, "answers about pairs are kept for as long as the value"
    edits = ProfileEditor("root", slurm.clock.now_s())
    with sodad.store.write() as session:
        edits.set_value(session, ProfileValue(ProfileSubject(lm), "iteration_s", Estimate(0.7, 0.0, Source.SET)))
    second = known_later()
    assert (first.iteration_s(lm).value, second.iteration_s(lm).value) == (0.5, 0.7)
    with sodad.store.write() as session:
        edits.undo(session)
    assert known_later().iteration_s(lm).value == 0.5


def test_a_policy_lets_a_waiting_job_join_on_these_very_gpus(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]
) -> None:
    busy(slurm)
    sodad = daemon(**MODES["advise"])
    know(sodad.store)
    sodad.run()
    sodad.run()
    plan = make_policy(POLICY).decide(seen[-1])
    assert isinstance(plan, SharingPlan)
    assert dict(plan.devices) == {4: (1, 3)}
    assert isinstance(seen[-1], SharingSnapshot)
    assert check_sharing_plan(seen[-1], plan, plan.places, 2)[4].devices == (1, 3)
    assert sodad.job(4).note["shares"] == {"gpus": {"n1": [1, 3]}, "with": [1]}
    assert not [job_id for job_id in (1, 2, 3, 5, 6, 7) if "shares" in sodad.job(job_id).note]
    slurm.all[1].state = "CANCELLED"
    slurm.submit(8, gpus=2, work_s=1e5, hints=Hints(share=False), devices=(1, 3), priority=10_000)
    slurm.tick()
    sodad.run()
    assert "shares" not in sodad.job(4).note


def test_who_is_refused_for_what_only_slurm_tells_keeps_its_seat_from_nobody(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]
) -> None:
    busy(slurm)
    slurm.submit(9, gpus=2, work_s=900.0, hints=slurm.all[4].hints, memory_per_cpu_mib=1000)
    sodad = daemon(**MODES["enforce"])
    know(sodad.store)

    for _ in range(4):
        sodad.run()
    assert "whole memory" in sodad.job(4).note["shares"]["no_guest"]
    assert "whole memory" not in str(sodad.job(9).note.get("shares"))
    assert {action.job_id for action in sodad.actions("share")} == {9}


def test_nothing_about_sharing_reaches_slurm(slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]) -> None:
    busy(slurm)
    changed: dict[str, set[tuple[int, tuple[str, ...]]]] = {}
    for mode, options in MODES.items():
        slurm.calls.clear()
        sodad = daemon(**options)
        know(sodad.store) if mode == "advise" else None
        sodad.follow(30)
        changed[mode] = {(row.job_id, tuple(sorted(row.new))) for row in sodad.actions()}
        assert not {"signal", "requeue"} & set(slurm.calls)
        assert ("update" in slurm.calls) == bool(changed[mode])
    assert changed["advise"] == set()
    assert {fields for _, fields in changed["enforce"]} <= {("SiteFactor",)}, "an order, and no request is rewritten"
    assert not {3, 7} & {job_id for job_id, _ in changed["enforce"]}, "guests are left alone"
    assert isinstance(seen[-1], SharingSnapshot), "where changes are sent, the policy shares too"
    assert slurm.all[4].state == "PENDING"


@pytest.mark.parametrize(
    "sharing",
    [{}, {"partitions": []}, {"consent_by_default": True}],
)
def test_without_a_partition_that_shares_nothing_is_asked_and_seen(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot], sharing: dict[str, Any]
) -> None:
    busy(slurm)
    del slurm.all[3]  # of a guest Slurm is asked in any case: its node's agent must know
    daemon(**{**MODES["advise"], "sharing": sharing}).run()
    assert type(seen[-1]) is ClusterSnapshot
    assert "allocations" not in slurm.calls


def test_silence_is_no_consent_unless_the_site_says_so(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]
) -> None:
    busy(slurm)
    daemon(**{**MODES["advise"], "sharing": {"partitions": ["main"], "consent_by_default": True}}).run()
    assert isinstance(seen[-1], SharingSnapshot)
    assert seen[-1].sharing.shares.tolist() == [True, False, True, True, True, True, True]
    daemon(**{**MODES["advise"], "sharing": {"partitions": ["other"], "consent_by_default": True}}).run()
    assert isinstance(seen[-1], SharingSnapshot)
    assert not seen[-1].sharing.shares.any()


def test_gpus_of_which_nobody_knows_the_holder_are_given_to_nobody(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]
) -> None:
    slurm.submit(1, gpus=2, work_s=1e6, hints=RESNET)
    slurm.tick()
    slurm.submit(4, gpus=1, work_s=600.0, hints=LM)
    daemon(**MODES["advise"]).run()
    assert isinstance(seen[-1], SharingSnapshot)
    assert (seen[-1].devices.unavailable.tolist(), seen[-1].nodes.gpus_free.tolist()) == ([True] * 4, [0])
    plan = make_policy(POLICY).decide(seen[-1])
    assert isinstance(plan, SharingPlan)
    assert dict(plan.devices) == {}
    free = replace(seen[-1].devices, unavailable=np.zeros(0, dtype=np.bool_))
    nodes = replace(seen[-1].nodes, gpus_free=np.array([4]))
    bold = make_policy(POLICY).decide(replace(seen[-1], devices=free, nodes=nodes))
    with pytest.raises(SharingPlanError, match="nobody knows who holds GPU 0"):
        check_sharing_plan(seen[-1], bold, bold.places, 2)


def test_slurm_is_asked_once_about_each_run_and_its_silence_stops_nobody(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]
) -> None:
    busy(slurm)
    slurm.silent.add("allocations")
    sodad = daemon(**MODES["advise"])
    assert not sodad.run().error
    assert isinstance(seen[-1], SharingSnapshot)
    assert not len(seen[-1].devices.held)
    slurm.silent.clear()
    asked = slurm.calls.count("allocations")
    sodad.follow(20)
    assert slurm.calls.count("allocations") == asked + 1


def test_what_fails_here_stops_no_cycle(
    slurm: FakeSlurm,
    daemon: Start,
    seen: list[ClusterSnapshot],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    busy(slurm)
    monkeypatch.setattr(sharing_snapshot, "describe_jobs", lambda *_: 1 / 0)
    sodad = daemon(**MODES["advise"])
    assert not sodad.run().error
    assert not sodad.run().error
    assert type(seen[-1]) is ClusterSnapshot
    assert caplog.text.count("sharing-not-seen") == 1


def dumped(slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]) -> SnapshotDump:
    busy(slurm)
    sodad = daemon(**MODES["advise"])
    know(sodad.store)
    sodad.run()
    sodad.run()
    dump = SnapshotDump(seen[-1], make_policy(POLICY), mode="advise", made_by="0.1.0")
    return replace(dump, plan=dump.decide())


def test_a_file_decides_the_same_to_the_byte(slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]) -> None:
    dump = dumped(slurm, daemon, seen)
    assert isinstance(dump.plan, SharingPlan)
    raw = write_dump(dump)
    again = read_dump(raw)
    assert write_dump(again) == raw
    assert plan_bytes(again.decide()) == plan_bytes(dump.plan) == plan_bytes(again.plan or dump.decide())
    assert b"unet" not in raw, "what concerns no job of the snapshot stays at home"
    elsewhere = replace(dump.plan, devices={4: (0, 1)})
    assert plan_bytes(elsewhere) != plan_bytes(dump.plan)


def test_stand_ins_keep_the_decision_and_no_name(slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]) -> None:
    dump = dumped(slurm, daemon, seen)
    masked = read_dump(write_dump(dump.with_stand_ins()))
    assert plan_bytes(masked.decide()) == plan_bytes(masked.plan or dump.decide())
    assert isinstance(masked.plan, SharingPlan)
    assert list(masked.plan.devices.values()) == [(1, 3)]
    assert not [name for name in (b"resnet", b'"lm"', b"alice") if name in write_dump(masked)]
    assert isinstance(dump.snapshot, SharingSnapshot)
    trained = replace(dump.snapshot, known=_with_predictor(dump.snapshot))
    with pytest.raises(PolicyError, match="by their models' names"):
        replace(dump, snapshot=trained).with_stand_ins()
    assert write_dump(read_dump(write_dump(replace(dump, snapshot=trained)))) == write_dump(
        replace(dump, snapshot=trained)
    )


def _with_predictor(snapshot: SharingSnapshot) -> Any:
    return type(snapshot.known)((), PredictedInterference({}, {}))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("devices", "first"), [0, 3], "sharing.devices.first"),
        (("devices", "held"), [1, 3, 0, 2, 9], r"sharing.devices.held\[4\] = 9: expected a whole number from 0 to 3"),
        (("devices", "held_start"), [0, 2, 4, 5, 5, 5, 5, 4], "sharing.devices.held_start"),
        (("devices", "memory_mib"), [1.0], "sharing.devices.memory_mib has 1 values: expected 4"),
        (("devices", "unavailable"), [True], "sharing.devices.unavailable has 1 values: expected 4"),
        (("jobs", "kind"), [9, 0, 0, 0, 0, 0, 0], r"sharing.jobs.kind\[0\] = 9"),
        (("jobs", "shares"), [True], "sharing.jobs.shares has 1 values: expected 7"),
        (("jobs", "batch"), [-1, 0, 0, 0, 0, 0, 0], r"sharing.jobs.batch\[0\] = -1"),
        (("known",), [3], r"sharing.known\[0\] = 3: expected an object"),
        (("predictor",), {"format": "other"}, "sharing.predictor: a model of interference has the format"),
    ],
)
def test_bad_columns_are_refused(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot], path: tuple[str, ...], value: object, message: str
) -> None:
    told = json.loads(write_dump(dumped(slurm, daemon, seen)))
    part = told["sharing"]
    for key in path[:-1]:
        part = part[key]
    assert path[-1] in part
    part[path[-1]] = value
    with pytest.raises(EncodingError, match=message):
        read_dump(json.dumps(told).encode())


def test_what_a_simulation_knows_is_not_written(slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]) -> None:
    dump = dumped(slurm, daemon, seen)
    assert isinstance(dump.snapshot, SharingSnapshot)
    with pytest.raises(PolicyError, match="what a object knows cannot be written"):
        write_dump(replace(dump, snapshot=replace(dump.snapshot, known=object())))  # type: ignore[arg-type]


def test_pools_are_not_shared(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(slurm)
    monkeypatch.setattr(sharing_snapshot, "members_of", lambda _: object())
    daemon(**MODES["advise"]).run()
    assert type(seen[-1]) is ClusterSnapshot
