"""What the web page reads, on each database."""

from __future__ import annotations

import pytest

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.page import routes
from slurm_soda.daemon.store.engine import Store
from tests.daemon.page.page_site import USERS, PageSite, fill

HOSTILE = "bytes \udcff\udc80 of \u202e a <b>name</b>"


@pytest.mark.parametrize("private", ["none", "jobs"])
def test_every_view_is_the_same_on_each(store: Store, monkeypatch: pytest.MonkeyPatch, private: str) -> None:
    for module in (viewers, routes):
        monkeypatch.setattr(module, "user_name", lambda uid: USERS[uid])
    site = PageSite(store)
    fill(site, HOSTILE)
    site.slurm.private = private
    browser, shown = site.browser(1000), [7, 10] if private == "jobs" else [7, 8, 9, 10]
    jobs = browser.view("/data/queue")["jobs"]
    assert [job["job_id"] for job in jobs] == shown
    assert (jobs[0]["name"], jobs[0]["verdict"], jobs[0]["position"], jobs[0]["queue"]) == (HOSTILE, "wait", 1, 1)
    assert [one["job_id"] for one in browser.view("/data/changes")["changes"]] == shown[::-1]
    assert browser.view("/data/gpus")["totals"]["held"] == 3
    view = browser.view("/data/jobs/10")
    assert (view["name"], view["report"]["used"]["gpu_util_ratio"]) == (HOSTILE, 0.75)
