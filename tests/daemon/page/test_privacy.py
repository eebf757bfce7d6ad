"""What each user is shown: everything where Slurm shows everything, else own jobs and those of coordinated accounts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import event

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.store.tables.cpu_fit import CpuFitRow
from slurm_soda.daemon.store.tables.progress import JobPaceRow, JobProgressRow
from tests.daemon.page.page_site import NOW_S, SUBMIT_S, PageSite, fill, job, note

OWN, ALL = [7, 10], [7, 8, 9, 10]


def changed(browser: Any) -> list[int]:
    return sorted(change["job_id"] for change in browser.view("/data/changes")["changes"])


def on_gpus(browser: Any) -> dict[str, list[Any]]:
    """By node, of each GPU the jobs on it, or whether it is held."""
    return {
        node["node"]: [[job["job_id"] for job in gpu["jobs"]] or gpu["held"] for gpu in node["gpus"]]
        for node in browser.view("/data/gpus")["nodes"]
    }


def test_everybody_sees_everything_where_slurm_shows_it(site: PageSite) -> None:
    fill(site)
    browser = site.browser(1002)
    assert (browser.queued(), changed(browser)) == (ALL, ALL)
    assert browser.view("/data/jobs/8")["report"]["job"]["user"] == "bob"
    free = [False] * 4
    assert on_gpus(browser) == {"n1": [[8, 9], [8], False, False], "n2": [[10], *free[1:]], "n10": free}
    host, guest = browser.view("/data/gpus?kind=shared")["nodes"][0]["gpus"][0]["jobs"]
    assert (host["is_guest"], guest["is_guest"], host["util_ratio"]) == (False, True, 0.5)


@pytest.mark.parametrize("private", ["jobs", "jobs,users", "all"])
def test_no_foreign_job_where_slurm_keeps_them_private(site: PageSite, private: str) -> None:
    fill(site)
    site.slurm.private = private
    alice, carol = site.browser(1000), site.browser(1002)
    assert (alice.queued(), changed(alice)) == (OWN, OWN)
    assert (carol.queued(), changed(carol)) == ([], [])
    totals = alice.view("/data/queue")["totals"]
    assert (totals["waiting"], totals["running"], totals["running_gpus"]) == (1, 1, 2)
    refused, absent = alice.get("/data/jobs/8"), alice.get("/data/jobs/99")
    assert (refused.status_code, absent.status_code) == (404, 404)
    assert refused.text.replace("8", "99") == absent.text
    assert alice.view("/data/queue?words=bob")["jobs"] == []
    told = "".join(alice.get(path).text for path in ("/data/queue", "/data/gpus", "/data/changes", "/data/jobs/10"))
    assert "bob" not in told
    assert '"job_id":8' not in told
    assert '"job_id":9' not in told


def test_of_a_gpu_with_a_foreign_job_there_remains_that_it_is_held(site: PageSite) -> None:
    fill(site)
    site.slurm.private = "jobs"
    shown = on_gpus(site.browser(1000))
    assert shown["n1"] == [True, True, False, False]
    assert shown["n2"][0] == [10]
    assert site.browser(1000).view("/data/gpus")["totals"] == {"gpus": 12, "held": 3, "shared": 0}


def test_only_nodes_of_own_jobs_where_nodes_are_private(site: PageSite) -> None:
    fill(site)
    site.slurm.private = "jobs,nodes"
    assert list(on_gpus(site.browser(1000))) == ["n2"]
    assert on_gpus(site.browser(1002)) == {}


@pytest.mark.parametrize("private", ["usage", "users"])
def test_what_others_used_is_private_by_itself(site: PageSite, private: str) -> None:
    fill(site)
    site.slurm.private = private
    alice = site.browser(1000)
    assert alice.queued() == ALL
    assert alice.view("/data/jobs/8")["report"] is None
    assert alice.view("/data/jobs/10")["report"]["used"]["gpu_util_ratio"] == 0.75
    nodes = alice.view("/data/gpus")["nodes"]
    utils = {job["job_id"]: job["util_ratio"] for node in nodes for gpu in node["gpus"] for job in gpu["jobs"]}
    assert utils == {8: None, 9: None, 10: 0.5}


USE = ("700 iterations", "an iteration takes", "its GPUs hardly work")
"""In the reasons of a job that tells its progress and whose cores were searched for."""


def add_use(site: PageSite, job_id: int) -> None:
    """Its progress, its pace beside a guest, and how a search for its cores ended."""
    run = {"job_id": job_id, "restart": 0, "first_s": NOW_S - 500, "at_s": NOW_S, "began_s": NOW_S - 500}
    fit = {"gpus": 2, "nodes": 1, "start_cores": 4, "most_cores": 8, "cores": 2, "steps": 3, "search": 0}
    site.add(
        JobProgressRow(
            **run, node="n1", began_iterations=0, clock_s=1, idle_s=0, iterations=700, total=0, batch=0, saved=-1
        ),
        JobPaceRow(**run, co_runners="9.0", iterations=700, clock_s=500),
        CpuFitRow(
            job_id=job_id, submit_s=SUBMIT_S, restart=0, node="n1", at_s=NOW_S, user="bob", **fit, start_ratio=0.1,
            utilisation_ratio=0.1, reason="idle",
        ),
    )  # fmt: skip


@pytest.mark.parametrize("private", ["usage", "users"])
def test_how_fast_and_how_busy_others_are_is_in_no_sentence_where_use_is_private(site: PageSite, private: str) -> None:
    fill(site)
    add_use(site, 8)
    assert all(words in " ".join(site.browser(1000).view("/data/jobs/8")["reasons"]) for words in USE)
    site.slurm.private = private
    site.later(viewers.MAX_AGE_S)
    told = {uid: " ".join(site.browser(uid).view("/data/jobs/8")["reasons"]) for uid in (1000, 1001)}
    assert "Slurm: RUNNING" in told[1000]
    assert not any(words in told[1000] for words in USE)
    assert all(words in told[1001] for words in USE), "his own"


@pytest.mark.parametrize(("private", "told"), [("none", True), ("jobs", False), ("nodes", False)])
def test_where_nobody_can_be_a_guest_names_nodes_and_jobs_of_others(site: PageSite, private: str, told: bool) -> None:
    fill(site)
    site.add(job(11, note=note(2) | {"shares": {"unguarded": "n1 (no prolog recorded job 8)"}}))
    site.slurm.private = private
    reasons = " ".join(site.browser(1000).view("/data/jobs/11")["reasons"])
    assert "It cannot be a guest on some nodes with jobs that it could join: " in reasons
    assert ("job 8" in reasons, "operators are told which" in reasons) == (told, not told)
    assert "job 8" in " ".join(site.browser(0).view("/data/jobs/11")["reasons"])


def test_a_foreign_job_is_refused_as_soon_as_one_that_is_not_there(site: PageSite) -> None:
    """Reading all about it before would tell by the time that it takes how much happened to it."""
    fill(site)
    site.slurm.private = "jobs"
    alice, statements = site.browser(1000), []

    def count(*arguments: Any) -> None:
        statements.append(arguments[2])

    event.listen(site.store.engine, "before_cursor_execute", count)
    counts = {}
    for job_id in (99, 8, 7):
        statements.clear()
        alice.get(f"/data/jobs/{job_id}")
        counts[job_id] = len(statements)
    assert counts[8] == counts[99] < counts[7]


def test_operators_and_coordinators(site: PageSite) -> None:
    fill(site)
    site.slurm.private, site.slurm.coordinated["carol"] = "jobs", "lab"
    assert site.browser(1002).queued() == [8, 9]
    assert site.browser(0).queued() == ALL
    assert site.browser(64030).queued() == ALL


def test_a_right_that_is_taken_ends_within_a_minute_in_a_session_too(site: PageSite) -> None:
    fill(site)
    site.slurm.private, site.slurm.levels["carol"] = "jobs", "Operator"
    browser = site.browser(1002)
    assert browser.queued() == ALL
    site.slurm.levels.clear()
    site.later(viewers.MAX_AGE_S)
    assert browser.queued() == []


def test_until_slurm_has_said_what_is_private_everything_is(site: PageSite) -> None:
    fill(site)
    site.slurm.is_down = True
    assert site.browser(1000).queued() == OWN


def test_kept_rows_of_one_viewer_are_not_shown_to_another(site: PageSite) -> None:
    fill(site)
    site.slurm.private = "jobs"
    for _ in range(2):
        assert (site.browser(0).queued(), site.browser(1000).queued(), site.browser(1001).queued()) == (
            ALL,
            OWN,
            [8, 9],
        )


def test_no_secret_of_the_daemon_is_told(site: PageSite) -> None:
    fill(site)
    head = site.browser(1000).get("/data/queue").json()["head"]
    assert set(head) == {"now_s", "zone_s", "user", "daemon_alive", "stall", "mode", "policy", "private"}
    assert "pid" not in json.dumps(head)
