"""Jobs that ran before sodad came, as a real sacct tells of them."""

from __future__ import annotations

import json

import pytest

from tests.slurm.daemon_site import ENFORCE, PYTHON, DaemonSite

pytestmark = pytest.mark.slurm

READ = """
import json
from slurm_soda.slurm_ext.command_runner import LocalCommandRunner
from slurm_soda.slurm_ext.read.past_jobs import PastRunsReader, join_past_runs
print(json.dumps([job._asdict() for job in join_past_runs(PastRunsReader(LocalCommandRunner(), 20.0).read(2, 0))]))
"""


def test_run_times_of_jobs_that_ran_before_sodad_are_learned_from_accounting(site: DaemonSite) -> None:
    cluster = site.cluster
    submit = ("sbatch", "--parsable", "--output=/dev/null", "--time=9", "--nodes=1", "--gres=gpu:1", "--wrap=sleep 3")
    ids = [int(cluster.exec("alice", submit).check().stdout) for _ in range(3)]

    def read() -> dict[int, dict[str, object]]:
        found = json.loads(cluster.exec("root", (PYTHON, "-c", READ)).check().stdout)
        return {job["job_id"]: job for job in found if job["job_id"] in ids}

    cluster.wait_until(lambda: len(read()) == len(ids), "accounting knows that all have ended")
    for job in read().values():
        assert (job["owner"], job["gpus"], job["limit_s"]) == ("alice", 1, 540.0)
        assert 3 <= float(str(job["run_s"])) < 15
    site.start(f"{ENFORCE}[slurm]\naccounting_past_days = 2\n")
    cluster.wait_until(lambda: "past-jobs-read" in cluster.logs(100)["ctl/sodad"], "accounting has answered")
    (line,) = [line for line in cluster.logs(100)["ctl/sodad"].splitlines() if "past-jobs-read" in line][-1:]
    assert int(line.partition("jobs=")[2].split()[0]) >= len(ids)
    assert "past-jobs-not-read" not in cluster.logs(100)["ctl/sodad"]
