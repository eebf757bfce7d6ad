"""GPUs, changes and one job as the page gets them."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.api.viewers import Viewer
from slurm_soda.daemon.page.gpu_view import gpu_excerpt, read_gpu_holders
from slurm_soda.daemon.store.tables.scheduling import Action, AgentHeartbeat, NodeEvent
from tests.daemon.page.page_site import NOW_S, SUBMIT_S, PageSite, fill, job


@pytest.mark.parametrize(
    ("kind", "nodes"),
    [("all", ["n1", "n2", "n10"]), ("shared", ["n1"]), ("free", ["n1", "n2", "n10"]), ("mine", ["n2"])],
)
def test_which_nodes_are_asked_for(site: PageSite, kind: str, nodes: list[str]) -> None:
    fill(site)
    view = site.browser(1000).view(f"/data/gpus?kind={kind}")
    assert [node["node"] for node in view["nodes"]] == nodes
    assert (view["found"], view["totals"]) == (len(nodes), {"gpus": 12, "held": 3, "shared": 1})
    assert [one["node"] for one in site.browser(1000).view("/data/gpus?offset=1&limit=1")["nodes"]] == ["n2"]


def test_a_silent_agent_and_one_that_never_was(site: PageSite) -> None:
    fill(site)
    site.later(3600)
    site.add(NodeEvent(kind="open", job_id=10, restart=0, node="n7", at_s=NOW_S, record={"gpus": [1]}))
    nodes = {node["node"]: node for node in site.browser(1000).view("/data/gpus")["nodes"]}
    assert all(node["silent"] for node in nodes.values())
    assert [bool(gpu["jobs"]) for gpu in nodes["n7"]["gpus"]] == [False, True]


def test_records_of_earlier_runs_and_absurd_ones_are_left_out(site: PageSite) -> None:
    fill(site)
    site.add(
        NodeEvent(kind="open", job_id=10, restart=1, node="n2", at_s=NOW_S, record={"gpus": [3]}),
        NodeEvent(kind="open", job_id=10, restart=0, node="n10", at_s=NOW_S - 900, record={"gpus": [3]}),
        NodeEvent(kind="open", job_id=8, restart=0, node="n2", at_s=NOW_S, record={"gpus": [65_535, -1]}),
        NodeEvent(kind="open", job_id=7, restart=0, node="n2", at_s=NOW_S, record={"gpus": [2]}),
        AgentHeartbeat(node="cpu1", agent_id="a", seq=1, seen_s=NOW_S, gpu_count=0),
    )
    with site.store.read() as session:
        shown = gpu_excerpt(read_gpu_holders(session), Viewer("x"), kind="all", offset=0, limit=9, now_s=NOW_S)
    held = {node.node: [gpu.index for gpu in node.gpus if gpu.held] for node in shown.nodes}
    assert held == {"n1": [0, 1], "n2": [0], "n10": []}


def test_changes_come_newest_first_and_in_parts(site: PageSite) -> None:
    fill(site)
    browser = site.browser(1000)
    first = browser.view("/data/changes?limit=3")
    assert ([one["job_id"] for one in first["changes"]], first["more"]) == ([10, 9, 8], True)
    rest = browser.view(f"/data/changes?limit=3&before={first['changes'][-1]['change_id']}")
    assert ([one["job_id"] for one in rest["changes"]], rest["more"]) == ([7], False)
    (change,) = rest["changes"]
    assert (change["old"], change["new"], change["by_hand"]) == ({"SiteFactor": "0"}, {"SiteFactor": "5"}, False)


def test_changes_of_an_earlier_job_of_the_same_id_are_not_of_this_one(site: PageSite) -> None:
    site.add(job(7), job(7, user="bob", submit_s=SUBMIT_S - 5000, end_s=SUBMIT_S - 4000))
    for submit_s in (SUBMIT_S, SUBMIT_S - 5000, SUBMIT_S - 9000):
        values: dict[str, Any] = {"kind": "order", "state": "done", "created_s": submit_s, "reason": str(submit_s)}
        site.add(Action(job_id=7, submit_s=submit_s, **values))
    site.slurm.private = "jobs"
    assert [one["at_s"] for one in site.browser(1000).view("/data/changes")["changes"]] == [SUBMIT_S]
    assert [one["at_s"] for one in site.browser(1001).view("/data/changes")["changes"]] == [SUBMIT_S - 5000]
    assert len(site.browser(0).view("/data/changes")["changes"]) == 3, "also of a job that the store has forgotten"


def test_a_job_is_explained_without_asking_slurm(site: PageSite) -> None:
    fill(site)
    asked = len(site.slurm.asked)
    view = site.browser(1000).view("/data/jobs/7")
    assert {argv[:2] for argv in site.slurm.asked[asked:]} == {("scontrol", "show")}, "for PrivateData alone"
    reasons = " ".join(view["reasons"])
    for words in (
        "Slurm: PENDING, reason train, when sodad looked last",
        "Position 1 in line",
        "expected to start around",
    ):
        assert words in reasons
    assert view["hints"] == {"model": "resnet50"}
    assert [change["reason"] for change in view["changes"]] == ["train"]


def test_a_job_tells_with_whom_it_shares_and_that_it_gave_way(site: PageSite) -> None:
    fill(site)
    host, guest = (site.browser(1001).view(f"/data/jobs/{job_id}") for job_id in (8, 9))
    shares = [(share["as_guest"], share["others"]) for share in (*host["shares"], *guest["shares"])]
    assert shares == [(False, [9]), (True, [8])]
    assert [entry["phase"] for entry in host["preemptions"]] == ["done"]
    assert [run["node_names"] for run in host["runs"]] == ["train"]
    assert "Slurm: RUNNING on train since" in host["reasons"][0]
