"""Cores of running jobs on cgroup v2: real ones, in the groups that Slurm made."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from slurm_soda.wire.core_tuning import CoreFit
from slurm_soda.wire.records import NodeReport
from tests.cgroup2.conftest import Site
from tests.slurm.test_cores import CURVES, HALVE
from tests.slurm.test_nodes import KEPT, PYTHON
from tests.slurm.test_nodes import Site as Reports

pytestmark = pytest.mark.cgroup2

BUSY = "for _ in 1 2 3; do (while :; do :; done) & done; {more} wait"
SETTINGS = "[cores]\nenabled = true\nstep_s = 6.0\nsettle_s = 4.0\nsample_s = 0.5\nwarm_up_s = 2.0\n"
"""Longer than in containers: emulated, everything takes longer to show."""


def allowed(site: Site, job: int) -> set[str]:
    """What the kernel lets the job's tasks run on."""
    script = f"cat /sys/fs/cgroup/system.slice/*slurmstepd.scope/job_{job}/*/user/*/cgroup.procs"
    lists = site.root(f"for p in $({script}); do grep Cpus_allowed_list /proc/$p/status; done 2>/dev/null; true")
    return set(lists.split()[1::2])


def cores_used(site: Site, job: int, over_s: float = 6.0) -> float:
    """Cores that the job used in the mean of some seconds of the machine's clock."""
    stat = f"grep usage_usec /sys/fs/cgroup/system.slice/*slurmstepd.scope/job_{job}/cpu.stat; cat /proc/uptime"
    words = site.root(f"{stat}; sleep {over_s}; {stat}").split()
    (used, at), (used_later, later) = ((int(words[i + 1]) / 1e6, float(words[i + 2])) for i in (0, 4))
    return (used_later - used) / (later - at)


def on_record(site: Site) -> list[dict[str, object]]:
    text = site.cluster.exec("root", ("cat", "/var/lib/slurm-soda-agent/cores.json")).stdout
    jobs: list[dict[str, object]] = json.loads(text)["jobs"] if text else []
    return jobs


def test_cores_are_taken_and_given_back_in_slurms_own_groups(site: Site) -> None:
    """Two real cores, one, a step that starts meanwhile, and two again by an agent that finds what was left behind."""
    second = (
        "until [ -e /tmp/second-step ]; do sleep 0.5; done; srun --ntasks=1 --cpus-per-task=2 --overlap sleep 600 &"
    )
    job = site.submit(BUSY.format(more=second), "--nodelist=n1", "--cpus-per-task=2")
    whole = "0-1"
    try:
        site.until(lambda: site.groups(job, "cpuset.cpus").get("") == whole, "the job has its two cores")
        site.until(lambda: bool(site.root(f"ls /var/spool/slurm-soda/{job}.*.usage 2>/dev/null; true")), "it is seen")
        assert allowed(site, job) == {whole}
        before = cores_used(site, job)
        site.cluster.stop("soda-agent", node="n1")
        done = site.cluster.exec("root", (PYTHON, "-c", HALVE, str(job), "/sys/fs/cgroup"), node="n1").check()
        assert done.stdout.split() == ["2", "1"]
        assert set(site.groups(job, "cpuset.cpus").values()) == {"0"}
        assert set(site.groups(job, "cpuset.cpus.effective").values()) == {"0"}
        assert allowed(site, job) == {"0"}
        after = cores_used(site, job)
        print(f"three busy loops used {before:.2f} cores of 2, {after:.2f} of 1")
        assert before > 1.5
        assert after < 1.2
        site.root("touch /tmp/second-step")
        site.until(lambda: "step_0/user" in site.groups(job, "cpuset.cpus"), "a second step runs")
        site.start_agent()
        site.until(lambda: set(site.groups(job, "cpuset.cpus").values()) == {whole}, "all groups have them again")
        site.until(lambda: allowed(site, job) == {whole}, "so have the processes")
        site.until(lambda: not on_record(site), "nothing is on record")
    finally:
        site.start_agent()
        site.root("rm -f /tmp/second-step")


@pytest.fixture
def tuned(site: Site) -> Iterator[Site]:
    """An agent that tunes, and tells a stand-in for sodad."""
    with Reports(site.cluster).controller("slurm", KEPT):
        try:
            site.configure(SETTINGS)
            yield site
        finally:
            site.clear()
            site.configure("")


def told(site: Site) -> list[NodeReport]:
    return [NodeReport.from_json(line.encode()) for line in site.root(f"cat {KEPT}", "ctl").splitlines()]


def fits(site: Site) -> dict[int, CoreFit]:
    return {fit.job_id: fit for report in told(site) for fit in report.core_fits if fit.search == 0}


def test_the_agent_takes_cores_from_one_training_and_lets_another_grow(tuned: Site) -> None:
    """A model that needs two and a half of four cores: it has all four and feels that two are too few; then one, by srun."""
    # Without that variable a training counts the cores that it may run on now, not those that its step was given.
    train = f"env --unset=SLURM_CPUS_ON_NODE soda-train --profiles {CURVES} --model vgg16 --duration-s 1e6"
    options = ("--nodelist=n1", "--cpus-per-task=4", "--gres=gpu:1")
    for launch, start in (("exec", 4), ("exec srun --ntasks=1 --cpus-per-task=1", 1)):
        job = tuned.submit(f"{launch} {train}", *options)
        tuned.until(lambda job=job: job in fits(tuned), f"the search for job {job} ends")  # type: ignore[misc]
        fit = fits(tuned)[job]
        print(f"from {start} cores: {fit}")
        assert (fit.start_cores, fit.limit) == (start, 4)
        assert fit.cores in (3, 4)
        measured = [one for report in told(tuned) for one in report.core_measurements if one.job_id == job]
        few = [one.utilisation_ratio for one in measured if one.cores < 3]
        assert few, measured
        assert max(few) < fit.utilisation_ratio
        cpus = f"0-{fit.cores - 1}"
        tuned.until(lambda job=job, cpus=cpus: allowed(tuned, job) == {cpus}, f"it runs on {cpus}")  # type: ignore[misc]
        assert tuned.groups(job, "cpuset.cpus")[""] == cpus
        tuned.clear()
