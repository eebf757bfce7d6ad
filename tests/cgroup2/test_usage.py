"""A job on cgroup v2: where it runs, and what prolog, agent and epilog record of a known amount of work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm_soda.containers.virtual_cluster import VirtualCluster
from tests.cgroup2.conftest import Site
from tests.slurm.test_nodes import KEPT
from tests.slurm.test_nodes import Site as Reports

pytestmark = pytest.mark.cgroup2

WORK = """
python3 -c '
import time
held = bytearray(b"x") * (100 << 20)
while time.process_time() < {seconds}:
    pass
time.sleep({idle_s})
'
"""


@pytest.fixture(scope="module")
def reports(cluster: VirtualCluster) -> Iterator[Reports]:
    reports = Reports(cluster)
    with reports.controller("slurm", KEPT):
        yield reports


def test_the_machine_has_nothing_but_cgroup_v2(site: Site) -> None:
    assert site.root("grep -c ' - cgroup ' /proc/self/mountinfo || true") == "0"
    assert site.root("stat -f -c %T /sys/fs/cgroup") == "cgroup2fs"
    assert site.root("scontrol show config | grep -c 'CgroupPlugin *= cgroup/v2'") == "1"


def test_a_job_runs_in_a_group_of_its_own_for_each_task(site: Site) -> None:
    job = site.submit("cat /proc/self/cgroup; srun --ntasks=1 cat /proc/self/cgroup")
    site.wait_state(job, "COMPLETED")
    groups = [line.removeprefix("0::") for line in site.output(job).splitlines()]
    assert len(groups) == 2
    for group, step in zip(groups, ("batch", "0"), strict=True):
        scope, _, below = group.partition("/job_")
        assert scope in ("/system.slice/slurmstepd.scope", "/system.slice/n1_slurmstepd.scope")
        assert below == f"{job}/step_{step}/user/task_0"


def test_cpu_seconds_and_memory_are_those_that_the_job_used(site: Site, reports: Reports) -> None:
    """Also to the end that no reading saw, and without what slurmstepd used in the same group."""
    for seconds, idle_s in ((6, 4), (3, 0)):
        job = site.submit(WORK.format(seconds=seconds, idle_s=idle_s))
        reports.wait_closed(job)
        usage, sacct_s = reports.heard().usage[job, 0, "n1"], reports.total_cpu_s(job)
        told = f"job of {seconds} s and 100 MiB: {usage.cpu_s} s, sacct {sacct_s} s, {usage.memory_peak_mib} MiB"
        print(told)
        assert usage.cpu_source == "cgroup/v2", told
        assert sacct_s >= seconds, told
        assert sacct_s - 0.2 <= usage.cpu_s <= sacct_s + 1.0, told
        assert idle_s == 0 or 100 <= usage.memory_peak_mib <= 120, told
