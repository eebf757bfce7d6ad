"""Requests that become a guest's, and what is restored of a record. On real Slurm: tests/slurm/test_guest_requests.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_soda.policies.pipeline.actions import JoinGpus
from slurm_soda.slurm_ext.client import JobUpdate, SlurmClient, SlurmJob
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.read.scontrol_allocation import parse_extras
from slurm_soda.slurm_ext.read.slurm_values import SHARED_GPU_GRES
from slurm_soda.slurm_ext.sharing.guest_record import parse_guest_record
from slurm_soda.slurm_ext.sharing.guest_requests import read_guest_records, why_not_guest
from slurm_soda.slurm_ext.write.guest_release import guest_release_changes
from slurm_soda.slurm_ext.write.job_changes import JobChange, join_change, split_change, unshare_change
from slurm_soda.slurm_ext.write.scontrol_updates import refusal_of_update, scontrol_script
from slurm_soda.slurm_ext.write.sending import update_of

from .records import job

REPLY = (Path(__file__).parent / "replies" / "24.11.5" / "guest-extras.txt").read_bytes()
GUEST, PLAIN = 87, 88
RECORD = "soda-guest:1,hosts=5,gpus=2,undo="
NOW_S = 1000.0
REQUEST = JobRequest(7, 1, 0, 1, 0, 1, 1, 1, memory_per_node_mib=100)


class Extras:
    """A client that knows one job's Extra."""

    def __init__(self, extra: str | SlurmReplyError) -> None:
        self.extra = extra

    def extras(self, job_ids: Sequence[int]) -> dict[int, str | SlurmReplyError]:
        return dict.fromkeys(job_ids, self.extra)


def joined(asks: SlurmJob, *gpus: int, own: int = 0, nodes: tuple[str, ...] = ("n1",)) -> JobChange:
    return join_change(JoinGpus(asks.job_id, (5,), nodes, gpus, own, "why"), asks, SHARED_GPU_GRES)


def restored(asks: SlurmJob, extra: str | SlurmReplyError) -> tuple[list[dict[str, str]], list[str]]:
    client = cast("SlurmClient", Extras(extra))
    changes, said = guest_release_changes(client, [asks], "why")
    assert not any(refusal_of_update(JobUpdate(change.job_id, tuple(change.new.items()))) for change in changes)
    return [dict(change.new) for change in changes], said


def guest(**fields: Any) -> SlurmJob:
    return job(7, **{"tres_per_node": "gres/sharedgpu:g2:1", "shared_gpus": 1, "req_node_names": "n1", **fields})


@pytest.mark.parametrize(
    ("asks", "wanted"),
    [
        ({"tres_per_node": "gres/gpu:1"}, {"TresPerNode": "gres/sharedgpu:g2:1"}),
        ({"tres_per_node": "gres/gpu"}, {"TresPerNode": "gres/sharedgpu:g2:1"}),
        ({"tres_per_node": "gres/fpga:1,gres/gpu:1"}, {"TresPerNode": "gres/sharedgpu:g2:1,gres/fpga:1"}),
        ({"tres_per_job": "gres/gpu:1"}, {"TresPerJob": "gres/sharedgpu:g2:1"}),
        ({"tres_per_task": "gres/gpu=1"}, {"TresPerTask": "", "TresPerNode": "gres/sharedgpu:g2:1"}),
        ({"tres_per_node": "gres/gpu:1", "tres_per_job": "gres/gpu:1"},
         {"TresPerJob": "", "TresPerNode": "gres/sharedgpu:g2:1"}),
    ],
)  # fmt: skip
def test_each_way_of_asking_has_one_update_there_and_one_back(asks: dict[str, str], wanted: dict[str, str]) -> None:
    asking = job(7, **asks, req_node_names="n[1-2]")
    change = joined(asking, 2)
    extra = change.new["Extra"]
    assert dict(change.new) == {**wanted, "ReqNodeList": "n1", "Extra": extra}
    assert not refusal_of_update(JobUpdate(7, tuple(change.new.items())))
    undo = unshare_change(7, parse_guest_record(extra), "why")
    assert undo.new == change.old
    assert {name: value for name, value in undo.new.items() if value} == {
        **{{"tres_per_node": "TresPerNode", "tres_per_job": "TresPerJob", "tres_per_task": "TresPerTask"}[key]: value
           for key, value in asks.items()},
        "ReqNodeList": "n[1-2]",
    }  # fmt: skip
    waits = guest(
        tres_per_node=wanted.get("TresPerNode", ""), tres_per_job=wanted.get("TresPerJob", ""), req_node_names="n1"
    )
    assert restored(waits, extra) == ([dict(undo.new)], [])


def test_a_guest_beside_gpus_of_its_own_and_a_gang() -> None:
    half = joined(job(7, gpus=2, tres_per_node="gres/gpu:a100:2", gpu_type="a100"), 3, own=1)
    assert half.new["TresPerNode"] == "gres/sharedgpu:g3:1,gres/gpu:a100:1"
    gang = joined(job(7, gpus=4, nodes=2, tres_per_job="gres/gpu:4"), 0, 1, nodes=("n1", "n2"))
    assert gang.new["TresPerNode"] == "gres/sharedgpu:g0:1,gres/sharedgpu:g1:1"
    assert (gang.new["TresPerJob"], gang.new["ReqNodeList"]) == ("", "n1,n2")
    for change in (half, gang):
        assert not refusal_of_update(JobUpdate(7, tuple(change.new.items())))


@pytest.mark.parametrize(
    "fields",
    [
        {"TresPerNode": "gres/sharedgpu:g1:1"}, {"TresPerNode": "gres/sharedgpu:g2:2"}, {"TresPerNode": "gres/sharedgpu:1"},
        {"TresPerNode": "gres/sharedgpu:g2:1,gres/sharedgpu:2"}, {"TresPerNode": "gres/sharedgpu:g2:1,gres/gpu:1"},
        {"TresPerNode": "gres/gpu:g2:1"}, {"ReqNodeList": ""}, {"Extra": "mine"}, {"Extra": "soda-guest:1,undo="},
    ],
)  # fmt: skip
def test_a_guest_that_its_record_does_not_name_is_not_sent(fields: dict[str, str]) -> None:
    change = dict(joined(job(7, tres_per_node="gres/gpu:1"), 2).new)
    assert not refusal_of_update(JobUpdate(7, tuple(change.items())))
    assert refusal_of_update(JobUpdate(7, tuple((change | fields).items())))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"batch": False}, "salloc or srun"), ({"requeue": False}, "--no-requeue"), ({"het_job_id": 3}, "heterogeneous"),
        ({"gpus": 0}, "no GPU"), ({"dependency": "afterok:3"}, "other jobs"),
        ({"tres_per_node": ""}, "by socket"), ({"state": "RUNNING"}, "does not wait"), ({"shared_gpus": 1}, "already"),
        ({"tres_per_task": "gres/fpga:1"}, "other generic resources"), ({"tres_per_task": "gres/gpu:1"}, "another way"),
    ],
)  # fmt: skip
def test_who_cannot_be_a_guest_is_told_why(fields: dict[str, Any], said: str) -> None:
    asking: dict[str, Any] = {"tres_per_node": "gres/gpu:1"}
    assert why_not_guest(job(7, **asking), REQUEST) == ""
    assert why_not_guest(job(7, **asking, array_task="3"), None) == ""
    assert said in why_not_guest(job(7, **asking | fields), None)


def test_the_rest_of_a_request_counts_too() -> None:
    asks = job(7, tres_per_node="gres/gpu:1")
    assert "whole memory" in why_not_guest(asks, JobRequest(7, 1, 0, 1, 0, 1, 1, 1))
    tied = JobRequest(7, 1, 0, 1, 0, 1, 1, 1, memory_per_node_mib=100, unshareable="--exclusive")
    assert "--exclusive" in why_not_guest(asks, tied)


@pytest.mark.parametrize(
    "asks", [{"tres_per_task": "gres/gpu=1", "tasks": 2}, {"tres_per_job": "gres/gpu:2", "nodes": 2}]
)
def test_a_job_that_may_take_more_nodes_is_no_guest(asks: dict[str, Any]) -> None:
    nodes = asks.get("nodes", 1)
    open_ended, fixed = (JobRequest(7, nodes, most, 2, 0, 2, 1, 1, memory_per_node_mib=100) for most in (0, nodes))
    assert "--nodes=N" in why_not_guest(job(7, gpus=2, **asks), open_ended)
    assert why_not_guest(job(7, gpus=2, **asks), fixed) == ""
    assert why_not_guest(job(7, tres_per_task="gres/gpu=1"), REQUEST) == "", "one task is on one node"


def test_recorded_records() -> None:
    found = parse_extras(REPLY, [GUEST, PLAIN, 999999])
    assert found[GUEST] == f"{RECORD}TresPerNode=gres/gpu:1;ReqNodeList="
    assert found[PLAIN] == ""
    assert isinstance(found[999999], SlurmReplyError)
    cut = parse_extras(REPLY[: len(REPLY) // 3], [GUEST])
    assert isinstance(cut[GUEST], SlurmReplyError)
    client = cast("SlurmClient", Extras("mine"))
    assert read_guest_records(client, [7]) == {}
    assert isinstance(read_guest_records(cast("SlurmClient", Extras("soda-guest:2,x")), [7])[7], SlurmReplyError)


@pytest.mark.parametrize(
    "undo",
    [
        "TresPerNode=gres/gpu:8;ReqNodeList=", "TresPerNode=gres/gpu:1,gres/sharedgpu:g1:1;ReqNodeList=", "ReqNodeList=",
        "TresPerNode=gres/gpu:1,gres/fpga:4;ReqNodeList=", "TresPerJob=gres/gpu:1;ReqNodeList=", "TresPerNode=;ReqNodeList=",
        "TresPerNode=gres/gpu:1;TresPerTask=cpu:64;ReqNodeList=", "TresPerNode=gres/gpu:1;TresPerSocket=gres/gpu:1",
        "TresPerNode=gres/gpu:1;TresPerJob=gres/gpu:4;ReqNodeList=", "$(id)",
    ],
)  # fmt: skip
def test_a_record_gives_nobody_more_than_he_has_as_a_guest(undo: str) -> None:
    changes, said = restored(guest(), f"{RECORD}{undo}")
    assert changes == [{"TresPerNode": "gres/gpu:1", "ReqNodeList": "", "Extra": ""}]
    assert "plain GPUs" in said[0]


def test_what_owners_wrote_since_stays() -> None:
    plain = job(7, tres_per_node="gres/gpu:2", req_node_names="n1")
    assert restored(plain, f"{RECORD}TresPerNode=gres/gpu:1;ReqNodeList=n2") == (
        [{"ReqNodeList": "n2", "Extra": ""}],
        [],
    )
    assert restored(guest(), "mine") == ([], [])
    assert restored(job(7, state="RUNNING", shared_gpus=1), f"{RECORD}TresPerNode=gres/gpu:1") == ([], [])
    changes, said = restored(guest(), SlurmReplyError("cut short"))
    assert (changes, "stays a guest" in said[0]) == ([], True)


def test_slurms_own_wait_after_a_requeue_stays() -> None:
    """Nobody knows whether the former run has left its node: a node that was set down is back at once."""
    waits = guest(reason="BeginTime", restarts=1, submit_s=NOW_S - 60, eligible_s=NOW_S + 61)
    ((change,), _) = restored(waits, f"{RECORD}TresPerNode=gres/gpu:1;ReqNodeList=")
    assert change == {"TresPerNode": "gres/gpu:1", "ReqNodeList": "", "Extra": ""}


@pytest.mark.parametrize(
    ("asks", "own"),
    [
        ({"tres_per_node": "gres/extragpu:g0:1,gres/extragpu:g2:1"}, "TresPerNode=gres/gpu:2"),
        ({"tres_per_node": "gres/extragpu:g0:1,gres/gpu:1", "gpus": 1}, "TresPerNode=gres/gpu:2"),
        ({"tres_per_job": "gres/extragpu:g0:1", "tres_per_node": ""}, "TresPerJob=gres/gpu:1"),
        ({"tres_per_node": "gres/extragpu:g0:1", "nodes": 2}, "TresPerJob=gres/gpu:2;TresPerNode="),
    ],
)
def test_a_guest_under_another_name_gets_its_own_request(asks: dict[str, Any], own: str) -> None:
    """The settings that have the name may be broken."""
    unknown = guest(**{"shared_gpus": 0, "gpus": 0, **asks})
    changes, said = restored(unknown, f"{RECORD}{own};ReqNodeList=")
    assert (changes, said) == (
        [dict(one.split("=", 1) for one in own.split(";")) | {"ReqNodeList": "", "Extra": ""}],
        [],
    )


@pytest.mark.parametrize(("tasks", "first"), [("2-9", "2"), ("3,7", "3"), ("12-40:4%2", "12"), ("5%1", "5")])
def test_the_first_task_of_an_array_becomes_a_job_of_its_own(tasks: str, first: str) -> None:
    change = split_change(JoinGpus(7, (5,), ("n1",), (2,), 0, "why"), job(7, array_job_id=7, array_task=tasks))
    update = update_of(change)
    assert refusal_of_update(update) == ""
    assert scontrol_script([update], "abcdefgh", str).splitlines()[0] == f"update JobId=7_{first} SiteFactor=0".encode()


@pytest.mark.parametrize("task", ["1-3", "x", "1 Priority=9", "-1"])
def test_what_is_no_task_is_not_sent(task: str) -> None:
    assert "no task" in refusal_of_update(JobUpdate(7, (("SiteFactor", "0"),), task))
