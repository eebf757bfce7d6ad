"""Which nodes jobs show to be without walls, by who was recorded there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.daemon.sharing.node_guards import NodeGuards, keep_lapses, read_node_guards
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.engine import open_store
from slurm_soda.slurm_ext.client import HeldOnNode, SlurmJob
from slurm_soda.wire.records import NodeReport
from slurm_soda.wire.walls import NodeWalls
from tests.daemon.records import record
from tests.daemon.sharing_daemon import JoinAsTold, told
from tests.daemon.test_shares import ends, running

__all__ = ["told"]


def job(job_id: int, start_s: float, *, guest: bool = False) -> tuple[SlurmJob, HeldOnNode]:
    made = replace(record(job_id, state="RUNNING", start_s=start_s, node_names="n1"), shared_gpus=int(guest), gpus=1)
    return made, HeldOnNode("n1", 1, 1, () if guest else (0,), shared_indices=(0,) if guest else ())


def judged(
    walls: NodeWalls, *jobs: tuple[SlurmJob, HeldOnNode], lapse: tuple[float, int] | None = None, ours: bool = True
) -> NodeGuards:
    told = NodeGuards({"n1": walls}, {"n1": 100.0}, {} if lapse is None else {"n1": lapse})
    held = {one.job_id: [on] for one, on in jobs}
    guests = {one.job_id for one, _ in jobs if one.shared_gpus} if ours else set[int]()
    return told.with_jobs([one for one, _ in jobs], held, guests)


HOST, GUEST, LATER = job(7, 10.0), job(10, 20.0, guest=True), job(12, 30.0)
NONE = NodeWalls(guests=())


@pytest.mark.parametrize(
    ("walls", "jobs", "lapse", "unrecorded"),
    [
        (NodeWalls("", (7,), (10,)), (HOST, GUEST), None, ()),
        (NodeWalls("", (7,), ()), (HOST, GUEST), (20.0, 10), (10,)),
        (NONE, (GUEST,), (20.0, 10), (10,)),
        (NodeWalls("", (7,), None), (HOST, GUEST), None, ()),
        (NodeWalls("gone", (7,), ()), (HOST, GUEST), None, ()),
        (NodeWalls("", (7, 12), ()), (HOST, GUEST, LATER), None, (10,)),
        (NodeWalls("", (7,), (10,)), (HOST, GUEST, LATER), (30.0, 12), ()),
        (NONE, (HOST, LATER), None, ()),
        (NONE, (job(10, 90.0, guest=True),), None, ()),
    ],
    ids=[
        "recorded", "a guest", "a guest alone", "an older agent", "a fault", "a later job is recorded", "a plain job",
        "from before the installation", "its prolog may be at work",
    ],
)  # fmt: skip
def test_the_last_job_that_no_prolog_recorded_closes_its_node(
    walls: NodeWalls,
    jobs: tuple[tuple[SlurmJob, HeldOnNode], ...],
    lapse: tuple[float, int] | None,
    unrecorded: tuple[int, ...],
) -> None:
    found = judged(walls, *jobs)
    assert found.lapses.get("n1") == lapse
    assert found.unrecorded == set(unrecorded)
    assert ("no prolog has recorded job" in found.walls["n1"].fault) == (lapse is not None)


def test_who_asked_for_the_second_gres_by_himself_is_not_judged() -> None:
    assert judged(NONE, GUEST, ours=False) == judged(NONE)


def test_it_stays_closed_when_that_job_has_ended_until_a_later_one_is_recorded() -> None:
    walls = NodeWalls("", (7, 12), ())
    assert judged(walls, HOST, lapse=(20.0, 10)).lapses == {"n1": (20.0, 10)}
    assert judged(walls, lapse=(20.0, 10)).walls["n1"].fault
    opened = judged(walls, HOST, LATER, lapse=(20.0, 10))
    assert (opened.lapses, opened.walls) == ({}, {"n1": walls})


def test_the_store_keeps_it_over_reports(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.db")

    def reports(now_s: float) -> NodeGuards:
        with store.write() as session:
            store_report(session, NodeReport("n1", "a", int(now_s), now_s, walls=(NONE,)), now_s)
        with store.read() as session:
            return read_node_guards(session, now_s)

    before = reports(100.0)
    keep_lapses(store, before, before.with_jobs([GUEST[0]], {10: [GUEST[1]]}, {10}))
    kept = reports(130.0)
    assert (kept.lapses, kept.walls) == ({"n1": (20.0, 10)}, {"n1": NONE})
    keep_lapses(store, kept, NodeGuards())
    assert not reports(160.0).lapses
    store.close()


def test_a_guest_that_no_prolog_recorded_is_sent_back(fresh_store: Path, told: JoinAsTold) -> None:
    """Also one that cannot save its state. It gets its own request back, and may share again elsewhere."""
    slurm, daemon = running(fresh_store, told)
    slurm.unrecorded = {2}
    told.wanted = {}
    daemon.follow(9)
    assert ends(daemon) == [("started", "")]
    daemon.follow(8)
    assert slurm.all[2].restarts == 1
    daemon.follow(10)
    assert ends(daemon) == [("over", "revoked")]
    assert "no prolog has recorded it" in daemon.preemptions()[0].reason
