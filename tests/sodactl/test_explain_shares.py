"""``sodactl explain``, ``jobs``, ``status`` and ``undo`` of guests and their hosts."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.store.tables.scheduling import Action
from slurm_soda.daemon.store.tables.sharing import ShareRow

from .conftest import NOW_S, SUBMIT_S, Bench, record, stored_job

RECORD = "soda-guest:1,hosts=5,gpus=1+2,undo=TresPerNode=gres/gpu:2;ReqNodeList="
GUEST = "gres/sharedgpu:g1:1,gres/sharedgpu:g2:1"


def share(phase: str, **values: Any) -> ShareRow:
    defaults: dict[str, Any] = {
        "guest": 7, "submit_s": SUBMIT_S, "restart": 0, "hosts": [5], "nodes": ["n1"], "gpus": [1, 2], "record": RECORD,
        "created_s": NOW_S - 60, "deadline_s": NOW_S, "updated_s": NOW_S, "why": "the plan's reason",
    }  # fmt: skip
    return ShareRow(phase=phase, **{**defaults, **values})


@pytest.fixture
def site(soda: Bench) -> Bench:
    soda.daemon()
    soda.add(stored_job(5, state="RUNNING"), stored_job(7, state="RUNNING"))
    soda.slurm.queue = [record(5, state="RUNNING"), record(7, state="RUNNING", shared_gpus=2)]
    return soda


def reasons(soda: Bench, job_id: int) -> str:
    return "\n".join(soda("explain", str(job_id), "--json").document["reasons"])


def test_who_is_whose_guest_where_and_since_when(site: Bench) -> None:
    site.add(share("over", end="not-started", why="it did not start in time", ended_s=NOW_S - 90))
    site.add(share("over", end="revoked", why="its host 5 no longer runs", started_s=NOW_S - 80, ended_s=NOW_S - 70))
    site.add(share("started", started_s=NOW_S - 50))
    told = reasons(site, 7)
    assert "It is a guest on GPU 1, 2 of n1, beside job 5, since " in told
    assert "It was a guest on GPU 1, 2 of n1, beside job 5, from " in told
    assert "its host 5 no longer runs." in told
    assert "It was to be a guest on GPU 1, 2 of n1, beside job 5, until " in told
    assert "Job 7 is its guest on GPU 1, 2, since " in reasons(site, 5)
    assert "It was" not in reasons(site, 5)


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_a_host_is_told_of_its_guests_of_the_past(site: Bench, state: str) -> None:
    past = {"started_s": NOW_S - 80, "ended_s": NOW_S - 70, "why": "its host 5 no longer runs"}
    site.add(share("over", end="revoked", **past), share("over", guest=8, hosts=[55, 15], end="ended", **past))
    site.add(share("over", guest=9, end="ended", created_s=SUBMIT_S - 9, **past))
    site.slurm.queue[0] = record(5, state=state)
    told = reasons(site, 5)
    assert "Job 7 was its guest on GPU 1, 2, from " in told
    assert ": its host 5 no longer runs." in told
    assert "Job 8" not in told, "of others"
    assert "Job 9" not in told, "an earlier job had that id"


def test_a_guest_that_waits_again_is_one_no_more(site: Bench) -> None:
    site.add(share("started", started_s=NOW_S - 50))
    site.slurm.queue[1] = record(7, restarts=1)
    told = reasons(site, 7)
    assert "It was a guest on GPU 1, 2 of n1, beside job 5, since " in told
    assert "and lost that place; it gets its own request back." in told


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("rewritten", "It waits to start as a guest on GPU 1, 2 of n1, beside job 5; from "),
        ("parting", "gets its own request back: the plan's reason."),
    ],
)
def test_a_guest_on_its_way(site: Bench, phase: str, said: str) -> None:
    site.add(share(phase))
    assert said in reasons(site, 7)
    assert f"Job 7 is not on its GPUs, but is on its way there or back ({phase})." in reasons(site, 5)


def test_guests_are_counted_and_marked(site: Bench) -> None:
    site.add(share("started", started_s=NOW_S), share("over", ended_s=NOW_S))
    assert site("status", "--json").document["shares"] == {"started": 1}
    assert "guests  " in site("status").out
    assert "running as guest" in site("jobs").out


def rewritten(site: Bench, **seen: Any) -> None:
    new = {"TresPerNode": GUEST, "ReqNodeList": "n1", "Extra": RECORD}
    old = {"TresPerNode": "gres/gpu:2", "ReqNodeList": "", "Extra": ""}
    site.add(
        Action(job_id=7, submit_s=SUBMIT_S, kind="share", new=new, old=old, state="done", created_s=NOW_S - 5),
    )
    shown = {"tres_per_node": GUEST, "req_node_names": "n1", "shared_gpus": 2} | seen
    site.slurm.queue = [record(5, state="RUNNING"), record(7, **shown)]


def test_a_share_is_undone_by_hand(site: Bench) -> None:
    rewritten(site)
    (row,) = site("undo", "--job", "7", "--dry-run", "--json").document["actions"]
    assert row["outcome"] == "would undo"
    assert row["restores"] == {"TresPerNode": "gres/gpu:2", "ReqNodeList": "", "Extra": ""}


def test_what_the_owner_wrote_since_is_not_undone(site: Bench) -> None:
    rewritten(site, tres_per_node="gres/gpu:1", shared_gpus=0)
    (row,) = site("undo", "--job", "7", "--dry-run", "--json", status=1).document["actions"]
    assert (row["outcome"], "somebody else changed it" in row["reason"]) == ("refused", True)
