"""A cluster that systemd runs, with jobs: packages take the place of make install, are upgraded, taken back and removed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.docker_engine import connect_docker
from slurm_soda.daemon.store.engine import SCHEMA_VERSION
from tests.slurm.daemon_site import ENFORCE, DaemonSite
from tests.slurm.package_lab import APT, TOP, Archives, Box, PackageLab, clean, make_lab
from tests.slurm.test_packages import FUTURE

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

JOB_S = 420
CONTROLLER = ("common", "login", "controller", "spank")
NODE = ("common", "agent", "spank")
ENDED_RUNS = "select job.job_id from job_run join job on job.id = job_run.job_pk where job_run.end_s is not null"
LEAVE = """
sed -i -E '/opt\\/slurm-soda|^PrologFlags|^PrologEpilogTimeout|^JobSubmitPlugins/d' /etc/slurm/slurm.conf
rm -f /etc/slurm/job_submit.lua
sed -i '/slurm-soda/d' /etc/slurm/plugstack.conf
"""


@pytest.fixture(scope="module")
def lab(slurm: str) -> Iterator[PackageLab]:
    lab = make_lab(slurm)
    try:
        yield lab
    finally:
        clean(lab)


def newer(lab: PackageLab) -> Archives:
    """Of a version to come, with another revision of the store."""
    engine = (TOP / "daemon/store/engine.py").read_text()
    changes = {
        "daemon/store/engine.py": engine.replace(f'= "{SCHEMA_VERSION}"', '= "9000"').encode(),
        "daemon/store/migrations/versions/r9000_future.py": FUTURE.format(before=SCHEMA_VERSION).encode(),
    }
    return lab.build("ONLY='common login controller agent spank' REVISION=2", changes)


@dataclass
class UpgradeSite(DaemonSite):
    """One controller and one node, with jobs that run and jobs that wait while packages come and go."""

    jobs: list[int] = field(default_factory=list)

    def box(self, node: str) -> Box:
        return Box(connect_docker(print), self.cluster.container_of(node))

    def submit(self, gpus: int, seconds: int) -> int:
        script = f"#!/bin/sh\nsleep {seconds}\n"
        argv = ("sbatch", "--parsable", "--output=/dev/null", f"--gres=gpu:{gpus}", "--cpus-per-task=1", "--no-requeue")
        return int(self.cluster.exec("alice", argv, input=script).check().stdout)

    def install(self, archives: Archives) -> str:
        return self.box("ctl").install(archives, *CONTROLLER) + self.box("n1").install(archives, *NODE)

    def check(self, revision: str) -> None:
        """Daemons run by their units, sodad has had a cycle since, and jobs are where they were."""
        self.wait(
            lambda: bool(self.store("select 1 from cycle where epoch_id = (select max(id) from epoch)")), "a cycle"
        )
        for node, unit in (("ctl", "sodad"), ("n1", "soda-agent")):
            self.wait(lambda n=node, u=unit: self.box(n).run(f"systemctl is-active {u}").status == 0, f"{unit} runs")
        assert self.store("select version_num from alembic_version") == [{"version_num": revision}]
        running = [job for job in self.jobs[:2] if self.states([job]) == ["RUNNING"]]
        assert running == self.jobs[:2]
        assert [self.shown(job, "Restarts") for job in self.jobs[:2]] == ["0", "0"]
        drained = self.cluster.exec("root", ("sinfo", "--noheader", "--list-reasons", "--format=%N %E")).stdout
        assert drained.strip() == ""


@pytest.fixture(scope="module")
def site(slurm: str) -> Iterator[UpgradeSite]:
    name = f"upgrade-{secrets.token_hex(3)}"
    cluster = ContainerCluster.up(name, nodes=1, gpus=4, slurm=slurm, systemd=True, progress=print)
    try:
        yield UpgradeSite(cluster)
    finally:
        cluster.down()


def test_upgrade_and_downgrade_with_jobs_running(lab: PackageLab, site: UpgradeSite) -> None:
    archives, later = lab.build("ONLY='common login controller agent spank'"), newer(lab)
    site.start(ENFORCE)
    site.jobs = [site.submit(2, JOB_S), site.submit(2, JOB_S), site.submit(1, 1), site.submit(4, 1)]
    site.wait_running(site.jobs[:2])
    changes = "select count(*) as found from action"
    before = site.store(changes)[0]["found"]

    site.install(archives)  # over make install
    site.check(SCHEMA_VERSION)
    assert site.box("ctl").run("ls /etc/systemd/system/sodad.service").status != 0
    assert site.box("ctl").said("cat /etc/slurm-soda/soda.toml") == ENFORCE
    assert "backed up to" in site.install(later)
    site.check("9000")
    assert f"taken back from revision 9000 to {SCHEMA_VERSION}" in site.install(archives)
    site.check(SCHEMA_VERSION)

    assert site.store(changes)[0]["found"] >= before
    assert not site.store("select * from action where state in ('intended', 'sent')")
    site.wait_completed(site.jobs, within_s=JOB_S + 120)
    told = {row["job_id"] for row in site.store(ENDED_RUNS)}
    assert set(site.jobs) <= told

    refused = site.box("n1").run(f"{APT} remove 'slurm-soda-*' 2>&1")
    assert refused.status != 0
    assert "Slurm still uses /opt/slurm-soda" in refused.stdout
    assert site.box("n1").run("systemctl is-active soda-agent").status == 0
    for node in ("ctl", "n1"):
        site.box(node).said(LEAVE)
    site.cluster.restart_slurmctld()
    site.cluster.exec("root", ("scontrol", "reconfigure")).check()  # slurmd would run the old prolog
    for node in ("n1", "ctl"):
        site.box(node).said(f"{APT} remove 'slurm-soda-*'")
        assert site.box(node).run("ls /opt/slurm-soda").status != 0
    assert "--soda" not in site.box("ctl").said("sbatch --help")
    job = site.submit(1, 1)
    site.wait_completed([job])
    assert "soda.db" in site.box("ctl").said("ls /var/lib/slurm-soda").split()
