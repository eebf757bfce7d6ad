"""What is left out of views of jobs that a user may see: what others used, and who else is there."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from slurm_soda.daemon.api import viewers
from slurm_soda.daemon.store.tables.scheduling import Job, JobNodeUsage
from tests.daemon.test_view_privacy import SECRET, Site, site

__all__ = ["site"]


@pytest.mark.parametrize("private", ["usage", "users"])
def test_a_job_of_another_is_shown_without_what_it_used(site: Site, private: str) -> None:
    now_s = site.clock.now_s()
    with site.store.write() as session:
        session.add(
            JobNodeUsage(job_id=8, restart=0, node="n1", first_s=now_s, last_s=now_s, samples=9, gpu_util_ratio=0.5,
                         gpu_util_last_ratio=0.5, gpu_memory_peak_mib=9, gpu_count=1, cpu_s=9, memory_peak_mib=9)
        )  # fmt: skip
    assert len(site.view("/v1/jobs/8", 1000)["usage"]) == 1
    site.slurm.private = private
    site.later(viewers.MAX_AGE_S)
    assert {uid: len(site.view("/v1/jobs/8", uid)["usage"]) for uid in (1000, 1001, 0)} == {1000: 0, 1001: 1, 0: 1}
    assert site.view("/v1/jobs/8", 1000)["job"]["user"] == "bob"


@pytest.mark.parametrize("private", ["jobs", "nodes"])
def test_notes_of_own_jobs_name_no_others(site: Site, private: str) -> None:
    with site.store.write() as session:
        job = session.scalars(select(Job).where(Job.job_id == 7)).one()
        job.note = {"verdict": "wait", "shares": {"unguarded": "n1 (job 99)"}}
    assert "job 99" in site.ask("/v1/jobs").text
    site.slurm.private = private
    site.later(viewers.MAX_AGE_S)
    for path in ("/v1/jobs", "/v1/jobs/7"):
        assert "operators are told which" in site.ask(path).text
        assert "job 99" not in site.ask(path).text


def test_why_cycles_fail_may_name_jobs_of_others(site: Site) -> None:
    site.later(3600)
    assert site.view("/v1/jobs", 1000)["head"]["stall"] == SECRET
    site.slurm.private = "jobs"
    site.later(viewers.MAX_AGE_S)
    stalls = {uid: site.view("/v1/jobs", uid)["head"]["stall"] for uid in (1000, 0)}
    assert stalls == {1000: "its cycles fail; sodad's log says why", 0: SECRET}
