"""sodactl on a real Slurm with a real sodad: what admins and users see, and the ways back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import CONTROLLER
from slurm_soda.containers.container_commands import ContainerCommandResult

pytestmark = pytest.mark.slurm

USER = "bob"
PYTHON = "/opt/slurm-soda/bin/python"
CONFIG = """\
mode = "observe"
[cycle]
interval_s = 1.0
[policy]
name = "smallest"
[change_limits]
min_change_interval_s = 0.0
"""
SODA_TOML = "/etc/slurm-soda/soda.toml"
ACCOUNTED_S = 60.0
"""slurmdbd takes a job's end when slurmctld has sent it; sodad then asks every few seconds."""


class Site:
    """Commands on the controller, and waiting for what they shall show."""

    def __init__(self, cluster: ContainerCluster) -> None:
        self.cluster = cluster

    def run(
        self, *argv: str, user: str = "root", node: str = CONTROLLER, status: int | None = 0
    ) -> ContainerCommandResult:
        done = self.cluster.exec(user, ["sodactl", *argv], node=node)
        assert status is None or done.status == status, (argv, done)
        return done

    def json(self, *argv: str, user: str = "root", node: str = CONTROLLER, status: int | None = 0) -> Any:
        return json.loads(self.run(*argv, "--json", user=user, node=node, status=status).stdout)

    def submit(self, *options: str, script: str = "sleep 300", name: str = "job") -> int:
        # Through a shell's input: a container's command line cannot carry every byte.
        words = ["sbatch", "--parsable", "--output=/dev/null", f"--job-name={name}", *options]
        shell = f"{shlex.join(words)} <<'EOF'\n#!/bin/bash\n{script}\nEOF\n"
        return int(self.cluster.exec(USER, ["bash"], input=shell).check().stdout)

    def job(self, job_id: int) -> Any:
        return next((job for job in self.json("jobs")["jobs"] if job["job_id"] == job_id), None)

    def finished(self, job_id: int) -> Any:
        return next(iter(self.json("history", "--job", str(job_id))["jobs"]), None)

    def factor(self, job_id: int) -> int:
        said = self.cluster.exec("root", ["sprio", "-h", "-j", str(job_id), "-o", "%i %S"]).stdout.split()
        return int(said[1]) if said else 0

    def wait(self, condition: Any, what: str, within_s: float = 30.0) -> None:
        self.cluster.wait_until(condition, what, within_s)

    def fill(self) -> None:
        """One job on every GPU, so that later ones wait."""
        blocker = self.submit("--nodes=2", "--gres=gpu:4", "--mem-per-cpu=16")
        argv = ("squeue", "--noheader", "--format=%T", f"--jobs={blocker}")
        self.wait(lambda: self.cluster.exec("root", argv).stdout.strip() == "RUNNING", "the first job runs")


def without_clocks(story: Any) -> Any:
    """A job's story without what may differ between two looks: the present, and Slurm's reason and priority."""
    same = {key: story[key] for key in ("note", "before", "runs", "used", "changes", "mode", "policy", "daemon_alive")}
    return same | {key: value for key, value in story["job"].items() if key != "reason"}


@pytest.fixture(scope="module")
def running(cluster: ContainerCluster) -> Iterator[Site]:
    """sodad of this module's configuration."""
    cluster.start_daemon(CONFIG)
    yield Site(cluster)
    cluster.stop_daemon()


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    """A running sodad that observes, and an empty queue."""
    running.cluster.start("sodad")
    running.wait(lambda: running.run("status", status=None).status == 0, "sodad runs")
    running.run("mode", "observe")
    yield running
    running.cluster.exec("root", ["scancel", "--user", USER])
    running.wait(lambda: not running.cluster.exec("root", ["squeue", "-h", "-u", USER]).stdout, "no job is left")


def test_the_doctor_finds_the_cluster_well(site: Site, slurm: str) -> None:
    site.wait(lambda: site.run("doctor", status=None).status == 0, "agents of both nodes have reported")
    document = site.json("doctor")
    wrong = {finding["check"]: finding["found"] for finding in document["findings"] if finding["state"] != "ok"}
    # The shipped cluster lets a job 10 s to save its state; agents report, and prologs run, from the first minute on.
    expected = {"checkpoint time", "agents", "prolog on nodes", "clocks"}
    if slurm == "22.05":  # whose sacct has no Restarts
        assert "Restarts" in wrong["Slurm tells"]
        expected.add("Slurm tells")
    assert set(wrong) <= expected, wrong


def test_a_hint_in_a_script_is_shown(site: Site) -> None:
    job_id = site.submit("--hold", script="#SBATCH --soda-model=resnet50\nsleep 1")
    assert site.job(job_id)["hints"] == {"model": "resnet50"}
    assert "model=resnet50" in site.run("jobs").stdout


def test_hostile_names_pass_through(site: Site) -> None:
    names = ("[red]x[/]|\"'; rm -rf /", "tab\there", "nonutf\udcff8")
    for job_id, name in {site.submit(name=name, script="true"): name for name in names}.items():
        site.wait(lambda job_id=job_id: site.finished(job_id) is not None, "the job is in the history")
        assert site.finished(job_id)["name"] == name
        text = site.run("history", "--job", str(job_id)).stdout
        assert all(char.isprintable() or char == "\n" for char in text)


def test_a_finished_job_has_all_figures_and_they_agree_with_sacct(site: Site) -> None:
    train = "soda-train --model resnet50 --duration-s 5 --cpu-load 0.5 --memory-mib 200"
    job_id = site.submit("--gres=gpu:2", "--mem-per-cpu=2000", script=train)
    site.wait(
        lambda: (job := site.finished(job_id)) is not None and job["sources"]["cpu_s"] == "accounting",
        "the job is in the history with Slurm's own figures",
        ACCOUNTED_S,
    )
    job = site.finished(job_id)
    assert job["state"] == "COMPLETED"
    assert 0.05 < job["gpu_util_ratio"] <= 1
    # The model's weights and activations on each of two GPUs, as the profile has them.
    assert job["gpu_memory_peak_mib"] > 1000
    fields = "ElapsedRaw,Submit,Start,End"
    argv = ["env", "SLURM_TIME_FORMAT=%s", "sacct", "-nPX", "-j", str(job_id), "-o", fields]
    elapsed, submit, start, end = site.cluster.exec("root", argv).check().stdout.strip().split("|")
    assert job["run_s"] == pytest.approx(float(elapsed), abs=2)
    assert job["queue_s"] == pytest.approx(float(start) - float(submit), abs=2)
    assert job["end_s"] == pytest.approx(float(end), abs=2)
    argv = ["sacct", "-nP", "--noconvert", "-j", f"{job_id}.batch", "-o", "TotalCPU,MaxRSS"]
    cpu, rss = site.cluster.exec("root", argv).check().stdout.strip().split("|")
    minutes, seconds = cpu.rsplit(":", 1)
    assert job["cpu_s"] == pytest.approx(int(minutes.rpartition(":")[2]) * 60 + float(seconds), rel=0.05, abs=0.5)
    if rss:
        known_mib = int(rss.rstrip("K")) / (1024 if "K" in rss else 1024**2)
        assert job["memory_peak_mib"] == pytest.approx(known_mib, rel=0.05)
    else:
        assert job["sources"]["memory_peak_mib"] == "agent"
        assert job["memory_peak_mib"] > 200


def test_an_order_is_explained_undone_and_released(site: Site) -> None:
    site.fill()
    large = site.submit("--nodes=2", "--gres=gpu:4", "--mem-per-cpu=16")
    small = site.submit("--gres=gpu:1", "--mem-per-cpu=16")
    site.run("mode", "enforce")
    site.wait(lambda: site.factor(small) > site.factor(large), "the smaller job has the larger SiteFactor")
    site.wait(lambda: site.json("explain", str(small))["changes"][-1:] != [], "the change is recorded")
    story = site.json("explain", str(small))
    change = story["changes"][-1]
    assert (change["kind"], change["state"], change["epoch"] is not None) == ("order", "done", True)
    assert change["new"] == {"SiteFactor": str(site.factor(small))}
    assert any("smallest" in sentence for sentence in story["reasons"])

    site.run("mode", "advise")
    site.wait(lambda: site.json("status")["last_cycle"]["mode"] == "advise", "sodad advises")
    outcome = site.json("undo", str(change["action_id"]))["actions"]
    assert [row["outcome"] for row in outcome] == ["undone"]
    assert site.factor(small) == 0
    assert [c["state"] for c in site.json("explain", str(small))["changes"]] == ["undone", "done"]

    site.run("mode", "enforce")
    site.wait(lambda: site.factor(small) > site.factor(large), "sodad orders again")
    held = site.submit("--hold", "--gres=gpu:1")
    site.cluster.stop_daemon()
    assert site.json("status", status=3)["daemon"]["state"] == "stopped"
    released = site.json("release-all")
    assert released["mode_set"] == "observe"
    assert [row["job_id"] for row in released["changes"]] == [held], "the lifts ended with sodad"
    assert site.factor(small) == site.factor(large) == 0
    assert [row["job_id"] for row in site.json("release-all")["changes"]] == [held]
    assert site.job(held)["reason"] == "JobHeldUser"


@pytest.mark.thorough
def test_release_all_needs_no_store(site: Site) -> None:
    site.fill()
    job_id = site.submit("--gres=gpu:1", "--mem-per-cpu=16")
    site.cluster.exec("root", ["scontrol", "update", f"jobid={job_id}", "sitefactor=4711"]).check()
    site.cluster.stop_daemon()
    site.cluster.exec("root", ["mv", "/var/lib/slurm-soda", "/var/lib/slurm-soda.away"]).check()
    try:
        document = site.json("release-all")
    finally:
        site.cluster.exec("root", ["mv", "/var/lib/slurm-soda.away", "/var/lib/slurm-soda"]).check()
    assert document["mode_set"] is None
    # Neither the mode nor the old requests for cores, both of which only the store knows.
    assert len(document["warnings"]) == 2
    assert site.factor(job_id) == 0


def test_alice_is_told_by_sodad_what_the_store_holds(site: Site) -> None:
    name = "nonutf\udcff8 [red]"
    site.fill()
    large = site.submit("--nodes=2", "--gres=gpu:4", "--mem-per-cpu=16")
    small = site.submit("--gres=gpu:1", "--mem-per-cpu=16", name=name)
    site.run("mode", "enforce")
    site.wait(lambda: len(site.json("explain", str(small))["changes"]) > 0, "the change is recorded")
    # Advising, sodad changes nothing more, so that two looks see the same.
    site.run("mode", "advise")
    site.wait(lambda: site.json("status")["last_cycle"]["mode"] == "advise", "sodad advises")

    stored = {job_id: without_clocks(site.json("explain", str(job_id))) for job_id in (small, large)}
    verdicts = [job["verdict"] for job in site.json("jobs")["jobs"]]
    for node in (CONTROLLER, "n1"):
        for job_id in (small, large):
            told = site.json("explain", str(job_id), user="alice", node=node)
            assert told["warnings"] == []
            assert without_clocks(told) == stored[job_id]
        assert told["policy"] == "smallest"
        assert "smallest" in site.run("explain", str(small), user="alice", node=node).stdout
        queue = site.json("jobs", user="alice", node=node)
        assert queue["warnings"] == []
        assert [job["verdict"] for job in queue["jobs"]] == verdicts
        assert name in [job["name"] for job in queue["jobs"]]
        status = site.json("status", "--timings", user="alice", node=node)
        assert (status["daemon"]["alive"], status["mode"], status["warnings"]) == (True, "advise", [])
        assert status["jobs"]["states"] == {"PENDING": 2, "RUNNING": 1}
        assert status["timings"]["total"]["cycles"] >= 2


def test_what_two_jobs_would_do_to_each_other(site: Site) -> None:
    ours = ("--gres=gpu:1", "--mem-per-cpu=16", "--time=10")
    first = site.submit(*ours, "--soda-model=resnet50", "--soda-batch-size=64")
    second = site.submit(*ours, "--hold", "--soda-model=vgg16", "--soda-share=no")
    site.wait(lambda: (job := site.job(first)) is not None and job["state"] == "RUNNING", "the first job runs")
    gres = site.cluster.exec("root", ["sinfo", "-h", "-o", "%G"]).check().stdout.split(",")[0].split("(")[0].split(":")
    where = ["--gpu-type", gres[1]] if len(gres) == 3 else []
    site.run("profiles", "set", "resnet50", "xi", "1.25", "--with", "vgg16", *where)
    try:
        by_store, by_sodad = (
            site.json("explain", str(first), "--with", str(second), user=user, node=node)
            for user, node in (("root", CONTROLLER), ("alice", "n1"))
        )
    finally:
        site.run("profiles", "undo")
    for told in (by_store, by_sodad):
        assert (told["new"], told["running"], told["warnings"]) == (second, first, [])
        running, waiting = told["jobs"]
        assert (running["model"], running["batch"], running["runs"]) == ("resnet50", 64, True)
        assert running["xi"] == {"value": 1.25, "error": 0.0, "source": "set"}
        assert waiting["xi"] == {"value": 2.0, "error": 4.0, "source": "prior"}
        for job in told["jobs"]:  # its time limit, or less if jobs of other tests taught how long such jobs run
            assert 0 <= job["left_s"]["value"] <= 600.0
            assert job["left_s"]["source"]
        assert [(one["job_id"], one["flag"]) for one in told["objections"]] == [(second, "--soda-share")]
        assert told["decision"]["share"] is False
    assert by_sodad["gpu_type"] == by_store["gpu_type"]


def test_alice_is_told_in_one_line_when_sodad_is_away(site: Site) -> None:
    job_id = site.submit("--hold")
    site.cluster.stop_daemon()
    for node in (CONTROLLER, "n1"):
        document = site.json("jobs", user="alice", node=node)
        assert job_id in [job["job_id"] for job in document["jobs"]]
        assert len(document["warnings"]) == 1
        refused = site.run("status", user="alice", node=node, status=1)
        assert refused.stderr.count("\n") == 1
        assert "http://ctl:6830" in refused.stderr


ASK_WITHOUT_CREDENTIAL = """
import urllib.error, urllib.request
for path in ("alive", "status", "jobs"):
    try:
        print(urllib.request.urlopen("http://ctl:6830/v1/" + path).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
"""


@contextmanager
def private_jobs(site: Site) -> Iterator[None]:
    """PrivateData=jobs in slurm.conf, and carol an operator, as a sodad knows that has just begun."""

    def configure(command: str, level: str) -> None:
        site.cluster.stop_daemon()
        site.cluster.exec("root", ["sh", "-c", f"{command} && scontrol reconfigure"]).check()
        site.cluster.exec("root", ["sacctmgr", "-i", "modify", "user", "carol", "set", f"adminlevel={level}"]).check()
        site.cluster.start_daemon(CONFIG)
        site.wait(lambda: site.run("status", status=None).status == 0, "sodad runs")

    configure("echo PrivateData=jobs >> /etc/slurm/slurm.conf", "operator")
    try:
        yield
    finally:
        configure("sed -i /^PrivateData=jobs/d /etc/slurm/slurm.conf", "none")


def test_jobs_that_slurm_keeps_private(site: Site) -> None:
    bobs = site.submit("--hold")
    sbatch = ["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"]
    alices = int(site.cluster.exec("alice", sbatch).check().stdout)
    try:
        with private_jobs(site):
            for user, seen in (
                ("alice", {alices}),
                ("bob", {bobs}),
                ("carol", {alices, bobs}),
                ("root", {alices, bobs}),
            ):
                queue = site.json("jobs", user=user, node="n1")
                assert ({job["job_id"] for job in queue["jobs"]}, queue["warnings"]) == (seen, [])
                assert site.json("explain", str(max(seen)), user=user, node="n1")["warnings"] == []
            refused = site.run("explain", str(bobs), user="alice", node="n1", status=1)
            assert f"sodad knows no job {bobs} of alice; Slurm's PrivateData" in refused.stderr
            told = site.cluster.exec("alice", [PYTHON, "-c", ASK_WITHOUT_CREDENTIAL], node="n1").check().stdout
            alive, *others = told.splitlines()
            assert alive == '{"alive":true}'
            assert [line[:3] for line in others] == ["403", "403"]
    finally:
        site.cluster.exec("root", ["scancel", str(alices)])


@pytest.mark.thorough
def test_alice_elsewhere_is_refused_on_a_site_of_private_jobs(site: Site) -> None:
    site.cluster.stop_daemon()
    site.cluster.start_daemon(f"{CONFIG}[api]\npublic = false\n")
    try:
        # A file that users may not read, because of a password in it, is no reason to fail.
        site.cluster.exec("root", ["chown", "slurm", SODA_TOML]).check()
        site.cluster.exec("root", ["chmod", "600", SODA_TOML]).check()
        site.wait(lambda: site.run("status", user="alice", status=None).status == 0, "sodad answers on its own host")
        refused = site.run("status", user="alice", node="n1", status=1)
        assert refused.stderr.count("\n") == 1
        assert "api.public is false" in refused.stderr
    finally:
        site.cluster.stop_daemon()
        site.cluster.start_daemon(CONFIG)


def test_alice_changes_nothing(site: Site) -> None:
    refused = site.run("mode", "enforce", user="alice", status=1)
    assert refused.stderr.count("\n") == 1
    assert "root or SlurmUser" in refused.stderr


def test_timings_of_cycles(site: Site) -> None:
    site.wait(
        lambda: site.json("status", "--timings")["timings"].get("total", {}).get("cycles", 0) >= 2, "two cycles ran"
    )
    parts = site.json("status", "--timings")["timings"]
    assert {"observe", "decide", "act", "record", "total"} <= set(parts)
    assert all(part["min_s"] <= part["median_s"] <= part["max_s"] for part in parts.values())


def test_a_waiting_job_is_told_when_it_may_start(site: Site) -> None:
    site.fill()
    job_id = site.submit("--gres=gpu:2", "--mem-per-cpu=16")
    # A forecast begins once a minute.
    site.wait(lambda: site.json("explain", str(job_id))["expected_start"] is not None, "its start is forecast", 150.0)
    expected = site.json("explain", str(job_id), user=USER)["expected_start"]
    assert expected["low_s"] <= expected["median_s"]
    assert "expected to start" in site.run("explain", str(job_id), user=USER).stdout
    site.cluster.exec("root", ["scancel", "--user", USER])
