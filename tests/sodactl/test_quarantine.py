"""``sodactl quarantine``, and what ``shares`` and ``explain`` tell of faults under MPS."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.store.tables.sharing import FaultedPairRow, ShareRow

from .conftest import NOW_S, SUBMIT_S, Bench, record, stored_job


def fault(one: int, other: int, **values: Any) -> FaultedPairRow:
    programs = {"owner": "alice", "model": "resnet50", "other_owner": "alice", "other_model": "bert"}
    return FaultedPairRow(**{"node": "n1", "at_s": NOW_S - 60, "one": one, "other": other, **programs, **values})


@pytest.fixture
def site(soda: Bench) -> Bench:
    soda.daemon()
    soda.add(*(stored_job(job, user="alice", state="RUNNING", hints={"model": "BERT"}) for job in (5, 7, 8)))
    soda.slurm.queue = [record(job, state="RUNNING", user="alice") for job in (5, 7, 8)]
    return soda


def test_no_fault_is_known(soda: Bench) -> None:
    assert soda("quarantine").out == "no fault under MPS is known\n"
    assert soda("quarantine", "--json").document == {"faults": []}


def test_an_admin_lifts_what_keeps_two_programs_apart(site: Bench) -> None:
    turned = {"owner": "alice", "model": "bert", "other_owner": "alice", "other_model": "resnet50"}
    site.add(fault(5, 7), fault(7, 9, at_s=NOW_S - 30, **turned), fault(5, 9, model="vgg16"))
    assert "alice's resnet50 and alice's bert" in site("quarantine").out
    found = site("quarantine", "--lift", "1", "--json").document["faults"]
    lifted = {tuple(one["jobs"]): one["lifted_s"] for one in found}
    assert lifted == {(5, 7): NOW_S, (7, 9): NOW_S, (5, 9): None}
    assert {one["lifted_by"] for one in found if one["lifted_s"]} != {""}
    assert "again, by " in site("quarantine").out


def test_a_fault_that_is_not_there(soda: Bench) -> None:
    assert "there is no fault 3; `sodactl quarantine` lists them" in soda("quarantine", "--lift", "3", status=1).err


def test_explain_tells_of_own_faults_and_of_the_programs(site: Bench) -> None:
    site.add(fault(5, 7))
    reasons = {job: "\n".join(site("explain", str(job), "--json").document["reasons"]) for job in (5, 7, 8)}
    assert "a fatal fault under MPS on n1 concerned it and job 7, and may have ended both" in reasons[5]
    assert "concerned it and job 5" in reasons[7]
    assert "It does not share with jobs like 5: at " in reasons[8]
    assert "concerned that and job 7, which is like this one. An admin can lift that" in reasons[8]


def test_a_share_that_a_fault_ended_says_so(site: Bench) -> None:
    site.add(
        ShareRow(
            guest=7, submit_s=SUBMIT_S, restart=0, hosts=[5], nodes=["n1"], gpus=[0], record="", phase="over", end="ended",
            why="the guest ended: FAILED", created_s=SUBMIT_S, deadline_s=SUBMIT_S, updated_s=SUBMIT_S,
        ),
        fault(5, 7),
    )  # fmt: skip
    (row,) = site("shares", "--json").document["shares"]
    assert row["reason"] == "the guest ended: FAILED; a fatal fault under MPS concerned it and job 5"
