"""Hosts, guests, guests that wait, and who can be one, as sodad's snapshot has them; and the order that follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.daemon.sharing.gpu_columns import DeviceReader, without_guests
from slurm_soda.daemon.sharing.may_join import why_pools_exclude
from slurm_soda.daemon.sharing.node_guards import NodeGuards
from slurm_soda.daemon.sharing.open_shares import OpenShares
from slurm_soda.daemon.sharing.sharing_snapshot import describe_jobs, limit_partings
from slurm_soda.policies.cpu_fit.limits import AccountingLimits
from slurm_soda.policies.sharing.engine.assembly import assemble_sharing_snapshot
from slurm_soda.policies.sharing.mechanism.mechanism import SLURM
from slurm_soda.policies.sharing.pair_knowledge.kind_profiles import KindProfiles
from slurm_soda.policies.sharing.snapshot import GpuDevices, SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot, JobState
from slurm_soda.slurm_ext.client import HeldOnNode, SlurmJob, SlurmNode
from slurm_soda.slurm_ext.read.exclusive_nodes import ExclusiveNodes
from slurm_soda.slurm_ext.read.snapshot import JobRunHistory, build_snapshot
from slurm_soda.wire.walls import NodeWalls
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon
from tests.daemon.test_sharing_snapshot import LM, MODES, RESNET, know, seen

__all__ = ["seen"]
Start = Callable[..., Daemon]


def shared(snapshot: ClusterSnapshot) -> SharingSnapshot:
    assert isinstance(snapshot, SharingSnapshot)
    return snapshot


def test_who_holds_gpu_is_the_host_whatever_the_order_of_ids(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]
) -> None:
    slurm.submit(1, gpus=1, work_s=1e6, hints=RESNET, devices=(2,), guest=True)
    slurm.submit(2, gpus=2, work_s=1e6, hints=RESNET, devices=(1, 2))
    slurm.tick()
    daemon(**MODES["enforce"]).run()
    snapshot = shared(seen[-1])
    assert snapshot.mechanism is SLURM
    assert [snapshot.devices.of(row).tolist() for row in (0, 1)] == [[2], [1, 2]]
    assert [snapshot.devices.guest_on(row).tolist() for row in (0, 1)] == [[2], []]
    assert snapshot.devices.shareable.tolist() == [False, True, True, False], "where a host runs"


def test_a_waiting_guest_has_its_seat_its_cpus_and_the_first_place(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]
) -> None:
    long, short = replace(RESNET, iterations=8000), replace(LM, iterations=1200)
    slurm.submit(1, gpus=2, work_s=4000.0, hints=long, devices=(0, 2))
    slurm.submit(2, gpus=2, work_s=4000.0, hints=long, devices=(1, 3))
    slurm.tick()
    slurm.submit(3, gpus=2, cpus=7, work_s=50.0, hints=LM, devices=(0, 2), guest=True, never_starts=True)
    slurm.submit(4, gpus=2, work_s=600.0, hints=short, priority=300, memory_per_cpu_mib=1000)
    slurm.submit(5, gpus=2, work_s=600.0, hints=short)
    sodad = daemon(**MODES["enforce"])
    know(sodad.store)
    sodad.run()
    sodad.run()
    snapshot = shared(seen[-1])
    assert [snapshot.devices.guest_on(row).tolist() for row in range(5)] == [[], [], [0, 2], [], []]
    assert snapshot.sharing.waits_as_guest.tolist() == [False, False, True, False, False]
    assert snapshot.jobs.view(2).state is JobState.BLOCKED
    assert snapshot.nodes.cpus_free.tolist() == [28 - 4 - 7]
    place = sodad.job(4).note["shares"]
    assert place == {"gpus": {"n1": [1, 3]}, "with": [2]}, "the one seat that is left"
    assert [sodad.job(job_id).note["verdict"] for job_id in (3, 4, 5)] == ["join", "join", "wait"]
    assert 3 in {row.job_id for row in sodad.actions()}
    assert slurm.all[3].priority + slurm.all[3].site_factor > slurm.all[4].priority
    assert not slurm.all[4].site_factor, "it does not fit as it is"


@pytest.mark.parametrize("why", ["host preempted", "no host", "seat taken", "held", "node completes"])
def test_a_guest_that_waits_in_vain_leads_nobody(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot], why: str
) -> None:
    slurm.submit(1, gpus=2, work_s=4000.0, hints=RESNET, devices=(0, 1))
    slurm.submit(2, gpus=1, work_s=4000.0, hints=RESNET, devices=(3,))
    if why == "seat taken":
        slurm.submit(3, gpus=1, work_s=4000.0, hints=LM, devices=(1,), guest=True)
    slurm.tick()
    at = 2 if why == "no host" else 1
    slurm.submit(4, gpus=1, work_s=50.0, hints=LM, devices=(at,), guest=True, never_starts=True)
    sodad = daemon(**MODES["advise"])
    sodad.run()
    assert shared(seen[-1]).sharing.waits_as_guest.any() == (why not in ("seat taken", "no host"))
    if why in ("host preempted", "node completes"):
        slurm.requeue(1 if why == "host preempted" else 2)
    if why == "held":
        slurm.all[4].never_starts, slurm.all[4].reason = False, "JobHeldUser"
        slurm.all[4].eligible_s = 4e9
    sodad.run()
    snapshot = shared(seen[-1])
    assert not snapshot.sharing.waits_as_guest.any()
    keeps = why in ("held", "node completes")
    assert snapshot.devices.of(len(snapshot.jobs) - 1).tolist() == ([1] if keeps else []), "it may still come"
    if why in ("host preempted", "node completes"):
        assert not snapshot.devices.shareable.any(), "Slurm starts nothing on a node while a job completes there"


def test_who_can_be_a_guest_and_who_meets_whom(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[int, Any] = {}

    def why_not(_shares: OpenShares, job: SlurmJob, request: Any) -> str:
        asked[job.job_id] = request
        return "it has --cpus-per-gpu" if job.job_id == 4 else ""

    slurm.submit(1, gpus=4, work_s=4000.0, hints=RESNET, devices=(0, 1, 2, 3))
    slurm.tick()
    for job_id, more in ((2, {}), (3, {"batch": False}), (4, {}), (5, {"hints": replace(LM, share=False)})):
        slurm.submit(job_id, gpus=1, work_s=50.0, **{"hints": LM, **more})  # type: ignore[arg-type]
    site = {**MODES["advise"], "sharing": {"partitions": ["main"], "different_users": ["main"]}}
    sodad = daemon(**site)
    monkeypatch.setattr(OpenShares, "why_not_guest", why_not)
    sodad.run()
    sharing = shared(seen[-1]).sharing
    assert sharing.requeueable.tolist() == [True, True, False, True, True]
    assert [sharing.obstacles[at] if at >= 0 else "" for at in sharing.obstacle] == [
        "",
        "",
        "",
        "it has --cpus-per-gpu",
        "",
    ]
    assert sharing.meets_others.all()
    assert {job_id: request.job_id for job_id, request in asked.items()} == {2: 2, 3: 3, 4: 4}, "those that would share"
    told = [sodad.job(job_id).note.get("shares", {}).get("no_guest", "") for job_id in (2, 3, 4, 5)]
    assert [bool(text) for text in told] == [False, True, True, False]
    assert told[2] == "it has --cpus-per-gpu"
    daemon(**MODES["advise"]).run()
    assert not shared(seen[-1]).sharing.meets_others.any()


@pytest.mark.parametrize("trap", ["the host", "another job of its owner"])
@pytest.mark.parametrize(
    ("exclusive", "shares", "meets"),
    [
        (ExclusiveNodes.NOBODY, True, True),
        (ExclusiveNodes.USERS, True, False),
        (ExclusiveNodes.MCS, True, False),
        (ExclusiveNodes.ALL, False, False),
        (ExclusiveNodes.TOPOLOGY, False, False),
    ],
)
def test_a_node_that_is_kept_to_its_users_is_nobody_elses(
    slurm: FakeSlurm,
    daemon: Start,
    seen: list[ClusterSnapshot],
    trap: str,
    exclusive: ExclusiveNodes,
    shares: bool,
    meets: bool,
) -> None:
    """Slurm would never start a guest of another user there, and hold it back from GPUs elsewhere."""
    kept = [exclusive, ExclusiveNodes.NOBODY][:: 1 if trap == "the host" else -1]
    slurm.submit(1, gpus=2, work_s=4000.0, hints=RESNET, devices=(0, 1), exclusive=kept[0])
    slurm.submit(2, gpus=2, work_s=4000.0, hints=replace(RESNET, share=False), devices=(2, 3), exclusive=kept[1])
    slurm.tick()
    slurm.submit(3, gpus=2, work_s=50.0, hints=LM, user="bob", exclusive=exclusive)
    daemon(**{**MODES["advise"], "sharing": {"partitions": ["main"], "different_users": ["main"]}}).run()
    sharing = shared(seen[-1]).sharing
    assert (bool(sharing.shares[0]), bool(sharing.meets_others[0])) == (shares, meets)
    assert sharing.shares[2], "what waits keeps nobody off"


NO_DEVICES = GpuDevices(np.zeros(1, np.int64), np.zeros(0), np.zeros(3, np.int64), np.zeros(0, np.int64))
SAVES = replace(RESNET, checkpoint_signal="TERM")


@pytest.mark.parametrize(("more", "preempted", "refused", "parted"), [
    ({}, 0, [], True),
    ({"hints": replace(SAVES, checkpoint_signal=None)}, 0, [], False),
    ({"requeue": False}, 0, [], False),
    ({}, 2, [], False),
    ({}, 0, [7], False),
])  # fmt: skip
def test_guests_that_save_their_state_are_revocable_and_preemptible_by_no_policy(
    more: dict[str, Any], preempted: int, refused: list[int], *, parted: bool
) -> None:
    host, guest = record(1, "RUNNING", hints=SAVES), record(7, "RUNNING", shared_gpus=2, **{"hints": SAVES, **more})
    snapshot = build_snapshot(0.0, [host, guest], [], {}, {7: JobRunHistory(preemptions=preempted)}, {})
    sharing = describe_jobs(snapshot.jobs, [host, guest], [], KindProfiles(()), SharingSettings(max_slowdown=1.5))
    assert sharing.max_slowdown.tolist() == [1.5, 1.5]
    filled = assemble_sharing_snapshot(snapshot, NO_DEVICES, sharing, KindProfiles(()), SLURM)
    limited = shared(limit_partings(filled, refused, 2))
    assert limited.jobs.preemptible.tolist() == [True, False]
    assert limited.sharing.revocable.tolist() == [False, parted]


def test_an_owners_bound_goes_before_the_sites() -> None:
    records = [record(1, "PENDING", hints=replace(RESNET, max_slowdown=bound)) for bound in (1.1, None, 3.0)]
    jobs = build_snapshot(0.0, records, [], {}, {}, {}).jobs

    def bounds(settings: SharingSettings) -> list[float]:
        return describe_jobs(jobs, records, [], KindProfiles(()), settings).max_slowdown.tolist()

    assert bounds(SharingSettings(max_slowdown=1.5)) == [1.1, 1.5, 3.0]
    assert bounds(SharingSettings()) == [1.1, np.inf, 3.0]


def test_gangs_and_own_gpus_of_waiting_guests() -> None:
    """On two nodes the guest shares GPU 1 and gets one idle GPU; another one's node is unknown."""
    nodes = [SlurmNode(name, "MIXED", True, 16, 2, 9000, 0, 4, 1, "", ("p",), gpus_in_use=(1,), shareable=(0, 1))
             for name in ("n1", "n2")]  # fmt: skip
    host, guest = (
        record(1, "RUNNING", node_names="n[1-2]", nodes=2),
        record(2, "PENDING", req_node_names="n[1-2]", nodes=2),
    )
    guest = replace(guest, shared_gpus=2, gpus=4, cpus=8, memory_mib=1001,
                    tres_per_node="gres/fpga:1", tres_per_job="gres/sharedgpu:g1:1,gres/gpu:1")  # fmt: skip
    lost = replace(guest, job_id=3, req_node_names="n9")
    records = [host, guest, lost]
    allocations = {1: [HeldOnNode(name, 1, 1, (1,)) for name in ("n1", "n2")]}
    snapshot = build_snapshot(0.0, records, nodes, {}, {}, allocations)
    guards = NodeGuards({name: NodeWalls(recorded=(1,)) for name in ("n1", "n2")})
    devices, guests = DeviceReader(snapshot, records, nodes, allocations, "sharedgpu", guards).find_devices(
        KindProfiles(())
    )
    assert [devices.of(row).tolist() for row in range(3)] == [[1, 5], [1, 5], []]
    assert devices.guest.tolist() == [False, False, True, True]
    assert np.flatnonzero(devices.unavailable).tolist() == [0, 4], "the lowest idle GPU of each node"
    assert np.flatnonzero(devices.shareable).tolist() == [1, 5]
    left = without_guests(snapshot.nodes, snapshot, guests)
    assert (left.cpus_free.tolist(), left.memory_free_mib.tolist()) == ([10, 10], [8499, 8499])


def record(job_id: int, state: str, **more: Any) -> SlurmJob:
    plain: dict[str, Any] = {
        "array_job_id": 0, "array_task": "", "reason": "Priority", "user": "al", "uid": 1, "account": "a", "partition": "p",
        "qos": "q", "name": "", "comment": "", "submit_s": 0.0, "eligible_s": 0.0, "start_s": 0.0, "end_s": float("nan"),
        "time_limit_s": 60.0, "priority": 1, "nice": 0, "restarts": 0, "nodes": 1, "cpus": 2, "memory_mib": 0, "gpus": 2,
        "gpus_per_node": 0, "gpu_type": "", "node_names": "", "exit_code": "0:0", "dependency": "",
    }  # fmt: skip
    return SlurmJob(job_id=job_id, state=state, **{**plain, **more})


def test_pools_and_sharing_exclude_each_other_and_people_are_told(
    slurm: FakeSlurm, daemon: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not why_pools_exclude(SharingSettings(), pools_in_force=True)
    assert not why_pools_exclude(SharingSettings(partitions=["main"]), pools_in_force=False)
    slurm.submit(1, gpus=1, work_s=10.0)
    sodad = daemon(**MODES["advise"])
    sodad.run()
    assert "problems" not in sodad.last_cycle().facts
    monkeypatch.setattr("slurm_soda.daemon.sharing.sharing_snapshot.members_of", lambda _: object())
    sodad.run()
    (problem,) = sodad.last_cycle().facts["problems"]
    assert "sharing.partitions = main has no effect: pools are in force" in problem


UNGUARDED = {
    "no report": (None, (), "", "upgrade it"),
    "a fault": ("share-start is missing", (), "", "n1 (share-start is missing)"),
    "no record": ("", (1,), "", "no prolog has recorded job 1 there"),
    "Slurm's settings": ("", (), "Prolog=(null)", "Prolog=(null)"),
    "all is well": ("", (), "", ""),
}


@pytest.mark.parametrize("case", UNGUARDED)
def test_nobody_joins_where_the_hooks_do_not_guard_him(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot], case: str
) -> None:
    slurm.walls, unrecorded, unguarded, told = UNGUARDED[case]
    slurm.unrecorded, slurm.limits = set(unrecorded), AccountingLimits(unguarded=unguarded)
    slurm.submit(1, gpus=4, work_s=4000.0, hints=RESNET, devices=(0, 1, 2, 3))
    slurm.tick()
    slurm.submit(2, gpus=2, work_s=600.0, hints=LM)
    sodad = daemon(**MODES["enforce"])
    sodad.run()
    snapshot = shared(seen[-1])
    open_to_all = snapshot.devices.shareable.all() and (snapshot.sharing.obstacle < 0).all()
    assert open_to_all == (not told)
    shares = sodad.job(2).note.get("shares", {})
    assert told in str(shares.get("no_guest", shares.get("unguarded", "")))


@pytest.mark.parametrize(
    ("unrecorded", "told"),
    [((2,), "no prolog has recorded job 2"), ((1,), "no prolog has recorded job 1 there: it is a host"), ((), "")],
    ids=["the last one", "one from before the installation", "none"],
)
def test_nobody_joins_where_slurm_runs_our_prolog_no_more(
    slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot], unrecorded: tuple[int, ...], told: str
) -> None:
    slurm.unrecorded = set(unrecorded)
    for job_id in (1, 2):
        slurm.submit(job_id, gpus=2, work_s=4000.0, hints=RESNET, devices=(2 * job_id - 2, 2 * job_id - 1))
        slurm.tick()
        slurm.advance(5.0)
    slurm.submit(3, gpus=2, work_s=600.0, hints=LM)
    sodad = daemon(**MODES["enforce"])
    sodad.run()
    assert shared(seen[-1]).devices.shareable[:2].all() == (1 not in unrecorded), "its prolog may be at work"
    slurm.advance(10.0)
    sodad.run()
    snapshot = shared(seen[-1])
    assert (
        snapshot.devices.shareable.tolist()
        == {
            (): [True] * 4,
            (1,): [False, False, True, True],
            (2,): [False] * 4,
        }[unrecorded]
    )
    assert told in sodad.job(3).note.get("shares", {}).get("unguarded", "")


def test_a_silent_agents_word_does_not_count(slurm: FakeSlurm, daemon: Start, seen: list[ClusterSnapshot]) -> None:
    slurm.submit(1, gpus=4, work_s=4000.0, hints=RESNET, devices=(0, 1, 2, 3))
    slurm.tick()
    sodad = daemon(**MODES["enforce"])
    sodad.run()
    assert shared(seen[-1]).devices.shareable.all()
    slurm.walls = None
    slurm.advance(61.0)
    sodad.run()
    assert not shared(seen[-1]).devices.shareable.any()
