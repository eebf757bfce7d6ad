"""A cluster that systemd runs, with jobs: packages take the place of make install, are upgraded, taken back and removed."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from benchmarks.lifted_jobs import find_lifted_jobs
from benchmarks.package_lab import APT, TOP, Archives, Box, PackageLab, clean, make_lab
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.docker_engine import connect_docker
from slurm_soda.daemon.store.engine import SCHEMA_VERSION
from tests.slurm.daemon_site import ENFORCE, PAST_THRESHOLD_S, PYTHON, DaemonSite
from tests.slurm.test_packages import FUTURE
from tests.slurm.test_sharing import TRAINS, know_the_kind, share_of

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, pytest.mark.timeout(1800)]

JOB_S = 420
CONTROLLER = ("common", "login", "controller", "spank")
NODE = ("common", "agent", "spank")
SHARING = f'{ENFORCE}[sharing]\npartitions = ["gpu"]\n'
ENDED_RUNS = "select job.job_id from job_run join job on job.id = job_run.job_pk where job_run.end_s is not null"
GAPS = "select max(id) - min(id) + 1 - count(*) as gaps from action"
KEPT = {
    "action": "id, epoch_id, cycle_id, preemption_id, job_id, submit_s, kind, new, old, reason, created_s",
    "admin_setting": "*",
    "cycle": "*",
    "job": "id, job_id, submit_s, user, name, gpus, hints",
    "job_run": "id, job_pk, restart, start_s, node_names, gpus",
    "node_event": "*",
    "preemption": "id, job_id, submit_s, restart, created_s, for_jobs, reason",
    "profile_edit": "*",
    "profile_value": "*",
    "share": "id, guest, submit_s, restart, hosts, gpus, record, cycle_id, created_s",
}
"""What of each table nothing changes any more, once it is written."""
LOST = """
import json, sqlite3, sys
from pathlib import Path
folder, kept = Path("/var/lib/slurm-soda"), json.loads(sys.argv[1])
store = sqlite3.connect(f"file:{folder}/soda.db?mode=ro", uri=True)
lost, rows = [], {}
for number, backup in enumerate(sorted(folder.glob("*.backup"))):
    store.execute(f"attach 'file:{backup}?mode=ro' as before{number}")
    for table, columns in kept.items():
        query = f"select {columns} from before{number}.{table}"
        rows[table] = max(rows.get(table, 0), len(store.execute(query).fetchall()))
        lost += [(table, *row) for row in store.execute(f"{query} except select {columns} from main.{table}")]
print(json.dumps([lost, rows]))
"""
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
    """One controller and one node, with jobs in every state while packages come and go."""

    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    restarts: dict[int, int] = field(default_factory=dict)

    def box(self, node: str) -> Box:
        return Box(connect_docker(print), self.cluster.container_of(node))

    def load(self) -> None:
        """A job that was preempted and waits, one that runs, a host with its guest, and one that waits."""
        preempted = self.train("bob", 4, 30)
        self.wait_running([preempted])
        time.sleep(PAST_THRESHOLD_S)
        argv = (
            "sbatch",
            "--parsable",
            "--output=/dev/null",
            "--gres=gpu:2",
            "--cpus-per-task=1",
            f"--wrap=sleep {JOB_S}",
        )
        plain = int(self.cluster.exec("carol", argv).check().stdout)
        shares = ("--soda-share=yes", *TRAINS)
        host = self.train("alice", 2, 7200, consents=False, asks=("--time=240", "--soda-iterations=14400", *shares))
        self.wait_running([plain, host])
        self.wait(lambda: self.shown(preempted, "Restarts") == "1", "a job was preempted")
        waits = self.train("bob", 4, 1, consents=False)
        self.cluster.exec("root", ("sodactl", "policy", "sjf-bsbf")).check()
        know_the_kind(self)
        guest = self.train("alice", 2, 900, asks=("--soda-iterations=1800", *shares))
        self.wait_running([guest])
        self.wait(lambda: share_of(self, guest) == [("started", "")], "the store knows that a guest started")
        self.running, self.waiting = [plain, host, guest], [preempted, waits]
        self.restarts = {plain: 0, host: 0, guest: 0, preempted: 1, waits: 0}

    def install(self, archives: Archives) -> str:
        return self.box("ctl").install(archives, *CONTROLLER) + self.box("n1").install(archives, *NODE)

    def check(self, revision: str) -> None:
        """Daemons run by their units, sodad has had a cycle since, and jobs are where they were."""
        cycle = "select 1 from cycle where epoch_id = (select max(id) from epoch) and length(error) = 0"
        self.wait(lambda: bool(self.store(cycle)), "a cycle")
        for node, unit in (("ctl", "sodad"), ("n1", "soda-agent")):
            self.wait(lambda n=node, u=unit: self.box(n).run(f"systemctl is-active {u}").status == 0, f"{unit} runs")
        assert self.store("select version_num from alembic_version") == [{"version_num": revision}]
        found = {job: self.states([job]) for job in self.restarts}
        assert found == {job: ["RUNNING" if job in self.running else "PENDING"] for job in self.restarts}
        assert {job: int(self.shown(job, "Restarts")) for job in self.restarts} == self.restarts
        assert share_of(self, self.running[2]) == [("started", "")]
        drained = self.cluster.exec("root", ("sinfo", "--noheader", "--list-reasons", "--format=%N %E")).stdout
        assert drained.strip() == ""
        self.check_records([*self.running, *self.waiting])

    def check_records(self, jobs: list[int]) -> None:
        """What Slurm has of sodad, all of these jobs, is in the store, which has no gap and all that others wrote."""
        ordered = {row["job_id"] for row in self.store("select job_id from action where kind = 'order'")}
        assert set(find_lifted_jobs(self.cluster)) <= ordered
        self.check_trail(jobs)
        assert self.store(GAPS) == [{"gaps": 0}]
        argv = (PYTHON, "-c", LOST, json.dumps(KEPT))
        lost, rows = json.loads(self.cluster.exec("root", argv).check().stdout)
        assert lost == []
        assert not rows or min(rows[table] for table in KEPT if table != "node_event") > 0


@pytest.fixture(scope="module")
def site(slurm: str) -> Iterator[UpgradeSite]:
    name = f"upgrade-{secrets.token_hex(3)}"
    cluster = ContainerCluster.up(name, nodes=1, gpus=4, slurm=slurm, systemd=True, progress=print)
    try:
        yield UpgradeSite(cluster)
    finally:
        cluster.down()


def test_upgrade_and_downgrade_under_load(lab: PackageLab, site: UpgradeSite) -> None:
    archives, later = lab.build("ONLY='common login controller agent spank'"), newer(lab)
    site.start(SHARING)
    site.load()

    assert "backed up to" in site.install(archives)  # over make install
    site.check(SCHEMA_VERSION)
    assert site.box("ctl").run("ls /etc/systemd/system/sodad.service").status != 0
    assert site.box("ctl").said("cat /etc/slurm-soda/soda.toml") == SHARING
    assert "backed up to" in site.install(later)
    site.check("9000")
    assert f"taken back from revision 9000 to {SCHEMA_VERSION}" in site.install(archives)
    site.check(SCHEMA_VERSION)

    plain, host, guest = site.running
    for job in (guest, host):  # the guest first: it would be sent back to wait
        site.cluster.exec("root", ("scancel", str(job))).check()
        site.wait(lambda job=job: site.states([job]) == ["CANCELLED"], f"job {job} is cancelled")  # type: ignore[misc]
    left = [plain, *site.waiting]
    site.wait_completed(left, within_s=JOB_S + 180)
    told = {row["job_id"] for row in site.store(ENDED_RUNS)}
    assert set(left) <= told
    site.check_records(left)  # Slurm has forgotten the others


def test_removal_leaves_slurm_as_it_was(site: UpgradeSite) -> None:
    refused = site.box("n1").run(f"{APT} remove 'slurm-soda-*' 2>&1")
    assert refused.status != 0
    assert "Slurm still uses /opt/slurm-soda" in refused.stdout
    assert site.box("n1").run("systemctl is-active soda-agent").status == 0
    for node in ("ctl", "n1"):
        site.box(node).said(LEAVE)
    site.cluster.restart_slurmctld()
    site.cluster.exec("root", ("scontrol", "reconfigure")).check()  # slurmd would run the old prolog
    for node, ours in (("n1", ("bin/soda-agent", "libexec/prolog")), ("ctl", ("bin/sodad", "bin/sodactl"))):
        removed = site.box(node).run(f"{APT} remove 'slurm-soda-*' 2>&1")
        assert removed.status == 0, removed.stdout
        for path in ours:
            assert site.box(node).run(f"ls /opt/slurm-soda/{path}").status != 0
        # make install had every role on every host, these packages have not.
        assert "what make install put there for roles that no package had" in removed.stdout
    assert "--soda" not in site.box("ctl").said("sbatch --help")
    job = site.train("alice", 1, 1, consents=False)
    site.wait_completed([job])
    assert "soda.db" in site.box("ctl").said("ls /var/lib/slurm-soda").split()
