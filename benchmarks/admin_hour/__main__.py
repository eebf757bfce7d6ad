"""An administrator's hour, by what docs/install.md says: ``python -m benchmarks.admin_hour --out FILE``.

A controller and a node with Debian's Slurm under systemd and nothing of slurm-soda; packages come in a folder, without a
network. Each command is timed; ends with status 1 if something does not hold.
"""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path

import click

from benchmarks.admin_hour.transcript import Terminal
from benchmarks.faults import show
from benchmarks.lifted_jobs import find_lifted_jobs
from benchmarks.package_lab import Archives, Box, clean, make_lab, role_of
from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import DEFAULT_SLURM
from slurm_soda.containers.docker_engine import connect_docker

FOLDER = "/srv/slurm-soda"
OURS = (
    "find / -xdev -path '*soda*' ! -path '/proc/*' ! -path '/tmp/*' ! -path '/srv/*' ! -path '/home/*'"
    " ! -path '/var/lib/mysql/*' ! -path '*soda-train*' ! -path '*soda-emulation*' ! -path '/run/soda-gpus*' | sort"
)
"""What is there of slurm-soda; the emulated GPUs and their trainer are not of it."""
APT_GET = "apt-get -qq --no-install-recommends"
DOCTOR = "sodactl doctor | grep -v ^ok"
CONF = "cat /etc/slurm/*.conf /etc/slurm/*.d/* 2>/dev/null; true"
ON_CONTROLLER = ("common", "login", "controller", "spank")
ON_NODE = ("common", "agent", "spank")
SET = "sed -i '/^.{}.$/,/^.[a-z]*.$/ s|^#{} = .*|{}|' /etc/slurm-soda/soda.toml && systemctl restart sodad"
LINK = "ln -s /opt/slurm-soda/share/slurm-soda/plugstack.conf.d/slurm-soda.conf /etc/slurm/plugstack.conf.d/"
HOOKS = """cat >>/etc/slurm/slurm.conf <<'END'
Prolog=/opt/slurm-soda/libexec/prolog
Epilog=/opt/slurm-soda/libexec/epilog
PrologFlags=Alloc
PrologEpilogTimeout=90
EpilogSlurmctld=/opt/slurm-soda/libexec/epilogctld
END"""
MEMORY = "grep VmRSS /proc/$(systemctl show --property=MainPID --value soda-agent)/status"
METRICS = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:6831/metrics\").read().decode())'"
TAKE_OUT = (
    "sed -i -E '/opt\\/slurm-soda|^PrologFlags=|^PrologEpilogTimeout=|^JobSubmitPlugins=lua/d' /etc/slurm/slurm.conf"
)
MOST_NODE_BYTES = 40_000_000
MOST_AGENT_KIB = 50 * 1024
REPORTED_AFTER_S = 75.0
"""A GPU counts as never used after a minute."""


def install(site: Terminal) -> None:
    site.part = "Install packages from a folder, without a network"
    for host, roles in (("ctl", ON_CONTROLLER), ("n1", ON_NODE)):
        files = " ".join(f"./slurm-soda-{role}*.deb" for role in roles)
        would = f"cd {FOLDER}; apt-get install --print-uris --no-install-recommends -y {files}"
        urls = site.look(f'{would} | grep -c "\'http"', host)
        site.finds(f"{host}: addresses that apt would fetch from", urls, urls == "0")
        site.type(f"cd {FOLDER} && {APT_GET} install {files}", host)
    size = int(site.look("du -sb /opt/slurm-soda | cut -f1", "n1"))
    site.finds("a node's files, at most 40 MB", f"{size / 1e6:.1f} MB", size <= MOST_NODE_BYTES)
    running = site.look("systemctl is-active sodad soda-agent; systemctl is-enabled sodad soda-agent")
    site.finds("nothing is started or enabled", running.split(), not {"active", "enabled"} & set(running.split()))


def observe(site: Terminal) -> None:
    site.part = "Observe"
    site.type("systemctl enable --now sodad")
    site.cluster.wait_until(lambda: "mode" in site.look("sodactl status"), "sodad answers")
    site.type(DOCTOR)
    site.type("sodactl status")


def flags(site: Terminal) -> None:
    site.part = "Flags for users"
    for host in ("ctl", "n1"):
        site.type(LINK, host)
    site.type("cp -n /opt/slurm-soda/share/slurm-soda/job_submit.lua /etc/slurm/ && ls /etc/slurm/job_submit.lua")
    for host in ("ctl", "n1"):
        site.type("echo JobSubmitPlugins=lua >>/etc/slurm/slurm.conf", host)
    site.type("scontrol reconfigure")
    said = site.type("sbatch --help | grep -A 1 soda- | head -n 6", user="alice")
    site.finds("sbatch knows the flags", said.count("--soda-"), "--soda-" in said)


def agents(site: Terminal) -> None:
    site.part = "What jobs really use"
    site.type("sed -i 's|^#controller = .*|controller = \"http://ctl:6830\"|' /etc/slurm-soda/agent.toml", "n1")
    site.type("/opt/slurm-soda/bin/soda-agent --once; echo $?", "n1")
    site.type("systemctl enable --now soda-agent", "n1")
    site.type("test -x /opt/slurm-soda/libexec/prolog && test -x /opt/slurm-soda/libexec/epilog && echo ready", "n1")
    for host in ("ctl", "n1"):
        site.type(HOOKS, host)
    site.type("scontrol reconfigure")
    time.sleep(5)
    said = site.type(DOCTOR)
    failed = re.findall("^fail .*", said, re.M)
    site.finds("what doctor still has to be mended", failed, not failed)
    kib = int(site.type(MEMORY, "n1").split()[1])
    site.finds("soda-agent's memory, at most 50 MB", f"{kib / 1024:.0f} MB", kib <= MOST_AGENT_KIB)


def submit(site: Terminal, user: str, options: str, command: str) -> int:
    said = site.type(f"sbatch --parsable --output=/dev/null {options} --wrap='{command}'", user=user)
    return int(re.findall(r"\d+", said)[-1])


def report(site: Terminal) -> int:
    """The job that the report was about still runs."""
    site.part = "Report and metrics"
    train = "exec env CUDA_VISIBLE_DEVICES=0 soda-train --model resnet50 --duration-s 3600"
    job = submit(site, "alice", "--gres=gpu:2 --cpus-per-task=4 --time=60", train)
    site.cluster.wait_until(lambda: site.look(f"squeue -h -j {job} -o %T") == "RUNNING", "the job runs")
    time.sleep(REPORTED_AFTER_S)
    said = site.type(f"sodactl report {job}", user="alice")
    site.finds("the report names the GPU that was never used", "never used" in said, "never used" in said)
    site.type(SET.format("metrics", "listen", 'listen = "127.0.0.1:6831"'))
    site.cluster.wait_until(lambda: "soda_partition_jobs" in site.look(METRICS), "metrics of a first cycle are shown")
    said = site.type(f"{METRICS} | grep -E '^soda_(up|build_info|partition_jobs|partition_gpus)' | head -n 12")
    site.finds("metrics of partitions", len(said.splitlines()), "soda_partition_jobs_running" in said)
    return job


def advise(site: Terminal) -> list[int]:
    """Jobs that wait: two of the partition trial, then two that came later, of the partition gpu."""
    site.part = "Advise"
    site.type("sodactl mode advise")
    submit(site, "bob", "--partition=gpu --gres=gpu:2 --time=60", "sleep 900")
    waiting = []
    for partition in ("trial", "gpu"):
        for gpus, minutes in ((4, 300), (1, 5)):
            options = f"--partition={partition} --gres=gpu:{gpus} --time={minutes}"
            waiting.append(submit(site, "carol", options, f"sleep {minutes}"))
    time.sleep(15)
    site.type("sodactl jobs")
    site.type(f"sodactl explain {waiting[1]}")
    lifted = find_lifted_jobs(site.cluster)
    site.finds("changes that advising has made", len(lifted), not lifted)
    return waiting


def enforce(site: Terminal, waiting: list[int]) -> None:
    scope = site.look("grep -c '^.scope.$' /etc/slurm-soda/soda.toml") == "1"
    site.part = "Enforce, on one partition" if scope else "Enforce"
    if scope:
        site.type(SET.format("scope", "partitions", 'partitions = ["trial"]'))
    site.type("sodactl mode enforce")
    site.cluster.wait_until(lambda: bool(find_lifted_jobs(site.cluster)), "sodad orders jobs", 120)
    site.type("sprio --format='%i %r %Y %S'")
    site.type("sodactl jobs --state pending")
    site.type(f"sodactl explain {waiting[1]}")
    lifted = find_lifted_jobs(site.cluster)
    site.finds("jobs that are lifted", sorted(lifted), lifted <= (set(waiting[:2]) if scope else set(waiting)))


def remove(site: Terminal, before: dict[str, tuple[str, str]]) -> None:
    site.part = "Remove"
    refused = site.type(f"{APT_GET} remove 'slurm-soda-*'", "n1", statuses=(100,))
    counted = refused.count("Slurm still uses")
    site.finds("removals that were refused while Slurm names our prolog", counted, counted > 0)
    site.type("sodactl mode observe && sodactl release-all && systemctl disable --now sodad && sodactl release-all")
    site.type("systemctl stop sodad-expiry.timer")
    for host in ("ctl", "n1"):
        site.type(f"{TAKE_OUT} && rm /etc/slurm/plugstack.conf.d/slurm-soda.conf", host)
    site.type("rm /etc/slurm/job_submit.lua && systemctl restart slurmctld && sleep 2 && scontrol reconfigure")
    site.type("scontrol show config | grep slurm-soda", statuses=(1,))
    site.type("systemctl disable --now soda-agent", "n1")
    for host in ("n1", "ctl"):
        site.type(f"{APT_GET} purge 'slurm-soda-*'", host)
        left = [line for line in site.look(OURS, host).splitlines() if line not in before[host][0].splitlines()]
        site.finds(f"{host}: paths of ours that are left", " ".join(left) or "none", not left)
        same = site.look(CONF, host) == before[host][1]
        site.finds(f"{host}: Slurm's configuration is as before", same, same)


def built(folder: Path | None, slurm: str) -> Archives:
    """The packages of this checkout, or those that the folder has already."""
    if folder is not None and any(folder.glob("*.deb")):
        return {path.name: path.read_bytes() for path in folder.glob("*.deb")}
    lab = make_lab(slurm)
    try:
        archives = lab.build()
    finally:
        clean(lab)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in archives.items():
            (folder / name).write_bytes(content)
    return archives


@click.command()
@click.option("--name", default="admin-hour", show_default=True, help="Name of the cluster.")
@click.option("--slurm", default=DEFAULT_SLURM, show_default=True, help="Release of Slurm.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the transcript, in Markdown.")
@click.option("--packages", type=click.Path(path_type=Path), help="Folder that keeps the packages for a next time.")
def main(name: str, slurm: str, out: Path | None, packages: Path | None) -> None:
    """From a site that has only Slurm to one that enforces, and back."""
    archives = built(packages, slurm)
    cluster = ContainerCluster.up(
        f"{name}-{secrets.token_hex(2)}", nodes=1, slurm=slurm, bare=True, progress=click.echo
    )
    site = Terminal(cluster)
    try:
        for host, roles in (("ctl", ON_CONTROLLER), ("n1", ON_NODE)):
            box = Box(connect_docker(click.echo), cluster.container_of(host))
            box.said(f"mkdir -p {FOLDER}")
            chosen = {
                file: (archives[file], 0o644) for file in archives if file.endswith(".deb") and role_of(file) in roles
            }
            box.put(chosen, FOLDER)
        before = {host: (site.look(OURS, host), site.look(CONF, host)) for host in ("ctl", "n1")}
        install(site)
        observe(site)
        flags(site)
        agents(site)
        job = report(site)
        waiting = advise(site)
        enforce(site, waiting)
        remove(site, before)
        state = site.look(f"squeue -h -j {job} -o %T")
        site.finds("the first job still runs", state, state == "RUNNING")
    finally:
        cluster.down()
        if out is not None:
            out.write_text("\n".join(site.markdown()) + "\n")
    show(site.findings)
    raise SystemExit(0 if all(finding.holds for finding in site.findings) else 1)


if __name__ == "__main__":
    main()
