"""What a guest's record says is believed, kept and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.errors import SlurmReplyError
from tests.daemon.sharing_daemon import OWN, PAIR, JoinAsTold, cluster, ends, joined, shares, sodad, told

__all__ = ["told"]


def test_a_former_guest_that_runs_with_its_record_is_not_looked_at_again_and_again(
    fresh_store: Path, told: JoinAsTold
) -> None:
    """Its owner made it a plain job, and it started before its record was taken back."""
    slurm, daemon = joined(fresh_store, told)
    told.wanted = {}
    assert daemon.run().next_s - slurm.clock.now_s() < 1
    slurm.all[1].work_s = 0.0
    former = slurm.all[2]
    former.other_gres, former.guest, former.devices = "gres/gpu:2", False, ()
    slurm.advance(0.5)
    assert former.state == "RUNNING"
    daemon.run()
    assert ends(daemon) == [("parting", "withdrawn")]
    assert daemon.run().next_s - slurm.clock.now_s() > 1
    slurm.requeue(2)
    daemon.follow(3, every_s=0.5)
    assert slurm.requests()[2] == OWN


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"req_node_names": "n2"}, ("gres/gpu:2", "n2", "")),
        ({"other_gres": "gres/gpu:1", "guest": False}, ("gres/gpu:1", "", "")),
        ({"extra": "mine"}, ("gres/gpu:2", "", "mine")),
        ({"requeue": False}, OWN),
        ({"other_gres": "gres/gpu:2", "req_node_names": "", "guest": False}, OWN),
    ],
)
def test_what_the_owner_wrote_stays(
    fresh_store: Path, told: JoinAsTold, fields: dict[str, object], left: tuple[str, str, str]
) -> None:
    slurm, daemon = joined(fresh_store, told)
    slurm.held = True
    for name, value in fields.items():
        setattr(slurm.all[2], name, value)
    daemon.follow(8)
    assert slurm.requests()[2] == left
    assert ends(daemon) == [("over", "owner")]
    assert "changed while it waited" in daemon.job(2).note["shares"]["refused"]


def test_half_an_update_is_taken_back_at_once(fresh_store: Path, told: JoinAsTold) -> None:
    slurm, told.wanted = cluster(), dict(PAIR)
    slurm.refuse_gres = 1
    daemon = sodad(slurm, fresh_store)
    daemon.run()
    assert slurm.requests()[2] == ("gres/gpu:2", "n1", "")
    told.wanted = {}
    daemon.follow(2, every_s=0.5)
    assert slurm.requests()[2] == OWN
    assert ends(daemon) == [("over", "refused")]


def test_a_guest_that_the_store_does_not_know_is_taken_up(fresh_store: Path, told: JoinAsTold, tmp_path: Path) -> None:
    slurm, _ = joined(fresh_store, told)
    slurm.held = True
    told.wanted = {}
    (other := tmp_path / "other").mkdir()
    daemon = sodad(slurm, other)
    daemon.run()
    assert [(row.phase, row.hosts) for row in shares(daemon)] == [("rewritten", [1])]
    daemon.follow(35)
    assert slurm.requests()[2] == OWN


def test_a_job_that_becomes_a_guest_after_it_was_looked_at_is_taken_up_at_once(fresh_store: Path) -> None:
    """Another sodad, or an admin by hand, made it one: it was bound to a node before, so it was asked about already."""
    slurm = cluster()
    guest, slurm.held = slurm.all[2], True
    guest.req_node_names = "n1"
    daemon = sodad(slurm, fresh_store)
    daemon.follow(3)
    guest.other_gres, guest.guest, guest.devices = "gres/sharedgpu:g0:1,gres/sharedgpu:g1:1", True, (0, 1)
    guest.extra = "soda-guest:1,hosts=1,gpus=0+1,undo=TresPerNode=gres/gpu:2;ReqNodeList=n1"
    daemon.follow(2)
    assert [(row.phase, row.hosts) for row in shares(daemon)] == [("rewritten", [1])]


def test_a_guest_without_a_record_is_nobodys(fresh_store: Path, told: JoinAsTold) -> None:
    slurm = cluster()
    slurm.all[2].other_gres = "gres/sharedgpu:g0:1"
    slurm.tick()
    daemon = sodad(slurm, fresh_store)
    daemon.follow(5)
    assert shares(daemon) == []
    assert slurm.requests()[2][0] == "gres/sharedgpu:g0:1"


def test_a_record_that_promises_more_than_the_job_has_is_not_followed(fresh_store: Path, told: JoinAsTold) -> None:
    slurm = cluster()
    guest, slurm.held = slurm.all[2], True
    guest.other_gres, guest.req_node_names, guest.guest, guest.devices = "gres/sharedgpu:g0:1", "n1", True, (0,)
    guest.gpus, guest.extra = 1, "soda-guest:1,hosts=1,gpus=0,undo=TresPerNode=gres/gpu:4;ReqNodeList="
    sodad(slurm, fresh_store).follow(5, every_s=0.5)
    assert slurm.requests()[2] == ("gres/gpu:1", "", "")


@pytest.mark.parametrize(
    ("asks", "at", "nodes", "left"),
    [
        ("gres/gpu:2", "n1", "", ""),
        ("gres/gpu:1", "n1", "n1", "n1"),
        ("gres/gpu:1", "n2", "", "n2"),
    ],
)
def test_a_record_that_its_guest_was_left_with_is_taken_back(
    fresh_store: Path, told: JoinAsTold, asks: str, at: str, nodes: str, left: str
) -> None:
    """Its owner made it a plain job, and no share of it is known any more."""
    slurm = cluster()
    slurm.submit(3, gpus=1)
    former, stranger = slurm.all[2], slurm.all[3]
    former.other_gres, former.req_node_names = asks, at
    former.extra = f"soda-guest:1,hosts=1,gpus=0+1,undo=TresPerNode=gres/gpu:2;ReqNodeList={nodes}"
    stranger.req_node_names, stranger.extra = "n1", "mine"
    daemon = sodad(slurm, fresh_store)
    daemon.follow(3, every_s=0.5)
    assert slurm.requests()[2] == (asks, left, "")
    assert slurm.requests()[3] == ("gres/gpu:1", "n1", "mine")
    assert ends(daemon) == [("over", "owner")]


def test_who_becomes_a_guest_between_two_looks_keeps_its_record(
    fresh_store: Path, told: JoinAsTold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sodad has read the jobs, somebody else makes one a guest, and sodad reads the records."""
    slurm = cluster()
    guest, extras = slurm.all[2], slurm.extras
    guest.req_node_names = "n1"
    record = "soda-guest:1,hosts=1,gpus=0+1,undo=TresPerNode=gres/gpu:2;ReqNodeList=n1"

    def made_a_guest(job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        guest.other_gres, guest.extra = "gres/sharedgpu:g0:1,gres/sharedgpu:g1:1", record
        return extras(job_ids)

    monkeypatch.setattr(slurm, "extras", made_a_guest)
    daemon = sodad(slurm, fresh_store)
    daemon.run()
    slurm.advance(1)
    daemon.follow(3)
    assert (guest.state, guest.guest, guest.extra) == ("RUNNING", True, record)
    assert [row.phase for row in shares(daemon)] == ["started"]
