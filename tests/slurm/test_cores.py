"""Cores of running jobs on real Slurm: eight emulated models with their curves, and the kernel's own cpusets.

The nodes claim more CPUs than the machine has. So where cores are counted, a mounted stand-in (emulation/cpuset) holds the
cores that Slurm's books say a job has, in the tree of the real jobs, with the kernel's rules; the agent finds it by its
``cgroup_root``. The last tests use the kernel's own tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.wire.core_tuning import CoreFit, CoreMeasurement
from slurm_soda.wire.records import JobUsage, NodeReport

pytestmark = pytest.mark.slurm

PYTHON = "/opt/slurm-soda/bin/python"
KEPT = "/tmp/core-reports.jsonl"
CURVES = "/usr/local/share/soda-train/soda.tsv"
SODA_TSV = Path(__file__).parents[2] / "emulation" / "trainer" / "soda.tsv"
STAND_IN = "/run/soda-cgroup"
LIMIT = 20
SETTINGS = "[cores]\nenabled = true\nstep_s = 2.0\nsettle_s = 1.5\nsample_s = 0.1\nwarm_up_s = 1.0\n"
"""Steps of two seconds: emulated trainings feel their cores within 0.3 s."""


@dataclass(frozen=True)
class Model:
    """A line of soda.tsv: what the trainer does with so many cores."""

    best_ratio: float
    knee: float
    serial: float
    bend: float

    def ratio(self, cores: float) -> float:
        """Utilisation with so many cores for each GPU."""
        if cores >= self.knee:
            return self.best_ratio
        sped_up = [n / (1 + self.serial * (n - 1)) for n in (cores, self.knee)]
        return self.best_ratio * float(1 - (1 - sped_up[0] / sped_up[1]) ** self.bend)

    def best_fit(self, gpus: int = 1) -> int:
        return next(n for n in range(1, 100) if self.ratio(n / gpus) >= 0.98 * self.best_ratio)


def models() -> dict[str, Model]:
    found = {}
    for line in SODA_TSV.read_text().splitlines():
        if line and not line.startswith("#"):
            words = line.split()
            found[words[0]] = Model(float(words[6]) / 100, float(words[9]), float(words[15]), float(words[16]))
    return found


MODELS = models()
STEADY = "steady"
"""A model that does with one core what it does with twenty."""


@dataclass
class Heard:
    """What the nodes told of cores."""

    measured: dict[int, list[CoreMeasurement]] = field(default_factory=dict)
    fits: dict[int, CoreFit] = field(default_factory=dict)
    usage: dict[int, JobUsage] = field(default_factory=dict)
    faults: set[str] = field(default_factory=set)


@dataclass
class Site:
    """The cluster, its nodes' agents told to tune, and what they report."""

    cluster: ContainerCluster

    def heard(self) -> Heard:
        heard = Heard()
        for line in self.cluster.exec("root", ("cat", KEPT)).stdout.splitlines():
            report = NodeReport.from_json(line.encode())
            heard.faults |= set(report.faults)
            for one in report.core_measurements:
                mine = heard.measured.setdefault(one.job_id, [])
                mine += [one] if one not in mine else []
            heard.fits |= {fit.job_id: fit for fit in report.core_fits if fit.search == 0}
            heard.usage |= {usage.job_id: usage for usage in report.usage}
        return heard

    def configure(self, text: str) -> None:
        """Another agent.toml on both nodes, and agents that have read it."""
        for node in self.cluster.spec.node_names:
            self.cluster.stop("soda-agent", node=node)
            self.cluster.copy_in(text.encode(), "/etc/slurm-soda/agent.toml", node=node)
            self.cluster.start("soda-agent", node=node)

    def train(self, model: str, *options: str, cores: int = LIMIT, gpus: int = 1, launch: str = "exec") -> int:
        script = f"#!/bin/bash\n{launch} soda-train --profiles {CURVES} --model {model} --duration-s 1e6\n"
        asked = (f"--gres=gpu:{gpus}", f"--cpus-per-task={cores}", "--nodes=1", "--mem=1G", *options)
        argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *asked)
        return int(self.cluster.exec("alice", argv, input=script).check().stdout)

    def cancel(self, *jobs: int) -> None:
        self.cluster.exec("root", ("scancel", *map(str, jobs))).check()
        argv = ("squeue", "--noheader", f"--jobs={','.join(map(str, jobs))}")
        self.until(lambda: not self.cluster.exec("root", argv).stdout.strip(), "cancelled jobs are gone")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.cluster.wait_until(condition, what, 120)

    def cpus(self, job: int, node: str, root: str = STAND_IN) -> str:
        path = f"{root}/cpuset/slurm_{node}/uid_2001/job_{job}/cpuset.cpus"
        return self.cluster.exec("root", ("cat", path), node=node).stdout.strip()

    def allowed(self, job: int) -> set[str]:
        """What the kernel lets the processes of a job's batch step run on."""
        # Groups of tasks are below those of steps only since Slurm 23.02.
        steps = f"/sys/fs/cgroup/cpuset/slurm_n1/uid_2001/job_{job}/step_[b0-9]*"
        procs = f"{steps}/cgroup.procs {steps}/task_0/cgroup.procs"
        user = "grep -q '^Name:.slurmstepd' /proc/$p/status || grep Cpus_allowed_list /proc/$p/status"
        script = f"for p in $(cat {procs} 2>/dev/null); do {user}; done"
        return set(self.cluster.exec("root", ("sh", "-c", script), node="n1").stdout.split()[1::2])

    def emulates(self, node: str) -> bool:
        return self.cluster.exec("root", ("cat", f"{STAND_IN}/cpuset/cpuset.cpus"), node=node).stdout == "0-27\n"

    def state(self, node: str, name: str) -> list[dict[str, object]]:
        reply = self.cluster.exec("root", ("cat", f"/var/lib/slurm-soda-agent/{name}.json"), node=node)
        jobs: list[dict[str, object]] = json.loads(reply.stdout)["jobs"] if reply.stdout else []
        return jobs


@pytest.fixture(scope="module")
def site(cluster: ContainerCluster) -> Iterator[Site]:
    usable = "test -d /sys/fs/cgroup/cpuset && exec 3<>/dev/fuse"
    if cluster.exec("root", ("sh", "-c", usable), node="n1").status != 0:
        pytest.skip("the stand-in for cpusets needs a host with cgroup v1 and /dev/fuse")
    sink = Path(__file__).with_name("report_sink.py").read_bytes()
    cluster.copy_in(sink, "/tmp/report_sink.py")
    start = f"rm -f {KEPT}; setsid {PYTHON} /tmp/report_sink.py {KEPT} </dev/null >/dev/null 2>&1 & echo $!"
    pid = cluster.exec("slurm", ("sh", "-c", start)).check().stdout.strip()
    site = Site(cluster)
    # Eight jobs of 20 cores on two nodes of 28: what freed cores are for.
    cluster.exec("root", ("scontrol", "update", "partitionname=gpu", "OverSubscribe=FORCE:8")).check()
    for node in cluster.spec.node_names:
        cluster.exec("root", ("mkdir", "-p", "/etc/slurm-soda"), node=node).check()
        cluster.start("soda-cpusets", node=node)
        site.until(lambda node=node: site.emulates(node), f"{node} has emulated cpusets")  # type: ignore[misc]
    try:
        site.configure(f'cgroup_root = "{STAND_IN}"\n{SETTINGS}')
        yield site
    finally:
        cluster.exec("root", ("scancel", "--user=alice"))
        for node in cluster.spec.node_names:
            cluster.stop("soda-agent", node=node)
            cluster.stop("soda-cpusets", node=node)
            cluster.exec("root", ("umount", "-l", f"{STAND_IN}/cpuset"), node=node)
            cluster.exec("root", ("rm", "-f", "/etc/slurm-soda/agent.toml"), node=node)
            cluster.start("soda-agent", node=node)
        cluster.exec("root", ("scontrol", "update", "partitionname=gpu", "OverSubscribe=NO"))
        cluster.exec("root", ("kill", pid))


def table(heard: Heard, jobs: dict[str, int], asked: Callable[[str], int]) -> None:
    """For the report: pytest -s."""
    print(
        "\n| model | cores asked | steps | found | best | utilisation | best possible |\n|---|---|---|---|---|---|---|"
    )
    for name, job in jobs.items():
        fit, best = heard.fits[job], MODELS[name]
        row = (
            name,
            asked(name),
            fit.steps,
            fit.cores,
            best.best_fit(),
            f"{fit.utilisation_ratio:.2f}",
            best.best_ratio,
        )
        print("| " + " | ".join(map(str, row)) + " |")


def expect_best_fits(site: Site, jobs: dict[str, int], asked: Callable[[str], int]) -> None:
    site.until(lambda: set(jobs.values()) <= set(site.heard().fits), "all searches end")

    def as_good_as_possible() -> bool:
        usage = site.heard().usage
        return all(usage[job].gpu_util_last_ratio >= 0.98 * MODELS[name].best_ratio for name, job in jobs.items())

    site.until(as_good_as_possible, "every GPU is used within 2 % of the best possible")
    heard = site.heard()
    table(heard, jobs, asked)
    for name, job in jobs.items():
        fit = heard.fits[job]
        assert abs(fit.cores - MODELS[name].best_fit()) <= 1, (name, fit)
        assert fit.steps <= 4
        assert (fit.start_cores, fit.limit, fit.gpus) == (asked(name), LIMIT, 1)
        assert fit.utilisation_ratio >= 0.98 * MODELS[name].best_ratio
        assert {one.step for one in heard.measured[job]} == set(range(fit.steps + 1))
    assert not [fault for fault in heard.faults if "cores" in fault]


EIGHT = [name for name in MODELS if name != STEADY]


def test_eight_models_end_with_their_best_fit_wherever_they_start(site: Site) -> None:
    """In turn on twenty cores and on one; the next two tests do both with all eight."""

    def asked(name: str) -> int:
        return 1 if EIGHT.index(name) % 2 else LIMIT

    few = "exec srun --ntasks=1 --cpus-per-task=1"
    jobs = {name: site.train(name, launch=few if asked(name) == 1 else "exec") for name in EIGHT}
    try:
        expect_best_fits(site, jobs, asked)
    finally:
        site.cancel(*jobs.values())


@pytest.mark.thorough
def test_eight_models_that_asked_for_twenty_cores_end_with_their_best_fit(site: Site) -> None:
    jobs = {name: site.train(name) for name in EIGHT}
    try:
        expect_best_fits(site, jobs, lambda _: LIMIT)
    finally:
        site.cancel(*jobs.values())


@pytest.mark.thorough
def test_eight_models_that_start_on_one_or_two_cores_end_with_their_best_fit(site: Site) -> None:
    """srun does not take over sbatch's --cpus-per-task: the step gets what srun asks for, and the rest lies idle."""

    def asked(name: str) -> int:
        return 1 + EIGHT.index(name) % 2

    jobs = {name: site.train(name, launch=f"exec srun --ntasks=1 --cpus-per-task={asked(name)}") for name in EIGHT}
    try:
        expect_best_fits(site, jobs, asked)
    finally:
        site.cancel(*jobs.values())


def test_what_is_left_alone_what_is_one_and_an_agent_that_is_killed(site: Site) -> None:
    """A job that needs no cores, a CPU job, and one of two GPUs whose agent is killed while it has too few cores."""
    steady = site.train(STEADY, "--nodelist=n2")
    cpu = int(
        site.cluster.exec(
            "alice",
            ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--nodelist=n2", "--cpus-per-task=4"),
            input="#!/bin/bash\nsleep 600\n",
        )
        .check()
        .stdout
    )
    pair = site.train("resnet50", "--nodelist=n1", gpus=2)
    try:
        site.until(lambda: 0 < len(site.heard().measured.get(pair, [])) < 5, "a first measurement is told")
        site.until(lambda: site.cpus(pair, "n1") not in ("", "0-19"), "the pair has other cores")
        site.cluster.kill("soda-agent", node="n1")
        site.until(lambda: {steady, pair} <= set(site.heard().fits), "both searches end")
        heard = site.heard()
        assert heard.fits[pair].gpus == 2
        assert abs(heard.fits[pair].cores - MODELS["resnet50"].best_fit(gpus=2)) <= 1
        site.until(lambda: site.cpus(pair, "n1") == f"0-{heard.fits[pair].cores - 1}", "the pair has its best fit")
        assert (heard.fits[steady].reason, heard.fits[steady].cores) == ("independent", LIMIT)
        site.until(lambda: site.cpus(steady, "n2") == "0-19", "the steady job has what it had")
        assert site.cpus(cpu, "n2") == "0-3" or site.cpus(cpu, "n2") == "20-23"
        assert cpu not in heard.measured
    finally:
        site.cancel(steady, cpu, pair)
    for node in site.cluster.spec.node_names:
        site.until(lambda node=node: not site.state(node, "cores"), f"{node} holds no cores any more")  # type: ignore[misc]


HALVE = """
import sys
from pathlib import Path
from slurm_soda.agent.cpusets.core_limits import JobCoreLimits
from slurm_soda.agent.job_events.run_event import RunKey
from slurm_soda.agent.reporting.run_records import NodeRun
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.wire.records import JobOpened
job, root = int(sys.argv[1]), sys.argv[2]
start_s = int(next(Path("/var/spool/slurm-soda").glob(f"{job}.*.usage")).name.split(".")[1])
members = JobProcesses(root)
record = Path("/var/lib/slurm-soda-agent/cores.json")
sets = JobCoreLimits(root, record, lambda opened: members.processes([opened])[job], lambda gpus: frozenset())
sets.observe([NodeRun(RunKey(job, start_s), JobOpened(job, 0, "n1", 2001, "alice", "gpu", 1.0, (), 2))])
print(sets.core_range(job).limit, sets.limit(job, 1, "test"))
"""


def test_the_kernels_own_cpusets(site: Site) -> None:
    """Two real cores, then one, a step that starts meanwhile, then two again by an agent that finds what was left behind."""
    cluster = site.cluster
    site.configure("")
    script = "#!/bin/bash\nuntil [ -e /tmp/second-step ]; do sleep 0.1; done\nexec srun --overlap sleep 600\n"
    argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--nodelist=n1", "--cpus-per-task=2")
    job = int(cluster.exec("alice", argv, input=script).check().stdout)

    def groups() -> dict[str, str]:
        path = f"/sys/fs/cgroup/cpuset/slurm_n1/uid_2001/job_{job}"
        lines = cluster.exec("root", ("grep", "-r", "--include=cpuset.cpus", "", path), node="n1").stdout.splitlines()
        return {line.removeprefix(path).partition("/cpuset.cpus:")[0]: line.rpartition(":")[2] for line in lines}

    def of_step(step: str) -> set[str]:
        return {cores for path, cores in groups().items() if path.startswith(f"/step_{step}")}

    try:
        site.until(lambda: of_step("batch") == {"0-1"}, "the job has its two cores")
        seen = ("sh", "-c", f"ls /var/spool/slurm-soda/{job}.*.usage")
        site.until(lambda: cluster.exec("root", seen, node="n1").status == 0, "the agent has seen it")
        cluster.stop("soda-agent", node="n1")
        done = cluster.exec("root", (PYTHON, "-c", HALVE, str(job), "/sys/fs/cgroup"), node="n1").check()
        assert done.stdout.split() == ["2", "1"]
        assert set(groups().values()) == {"0"}
        assert site.allowed(job) == {"0"}
        cluster.exec("alice", ("touch", "/tmp/second-step"), node="n1").check()
        site.until(lambda: of_step("0"), "a second step runs")
        assert of_step("batch") == {"0"}  # slurmd leaves older steps as they are
        cluster.start("soda-agent", node="n1")
        site.until(lambda: set(groups().values()) == {"0-1"}, "all groups have both cores again")
        site.until(lambda: site.allowed(job) == {"0-1"}, "so have the processes")
        site.until(lambda: not site.state("n1", "cores"), "nothing is on record")
    finally:
        cluster.start("soda-agent", node="n1")
        cluster.exec("root", ("rm", "-f", "/tmp/second-step"), node="n1")
        site.cancel(job)


def test_without_cgroups_by_affinity(site: Site) -> None:
    """An agent that is told of no cgroups finds a job's processes below slurmstepd and binds their threads."""
    cluster = site.cluster
    site.configure('cgroup_root = "/nonexistent"\n')
    argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--nodelist=n1", "--cpus-per-task=2")
    job = int(cluster.exec("alice", argv, input="#!/bin/bash\nsleep 600\n").check().stdout)
    try:
        site.until(lambda: site.allowed(job) == {"0-1"}, "the job has its two cores")
        seen = ("sh", "-c", f"ls /var/spool/slurm-soda/{job}.*.usage")
        site.until(lambda: cluster.exec("root", seen, node="n1").status == 0, "the agent has seen it")
        cluster.stop("soda-agent", node="n1")
        done = cluster.exec("root", (PYTHON, "-c", HALVE, str(job), "/nonexistent"), node="n1").check()
        assert done.stdout.split() == ["2", "1"]
        assert site.allowed(job) == {"0"}
        cluster.start("soda-agent", node="n1")
        site.until(lambda: site.allowed(job) == {"0-1"}, "its processes have both cores again")
        site.until(lambda: not site.state("n1", "cores"), "nothing is on record")
    finally:
        cluster.start("soda-agent", node="n1")
        site.cancel(job)
