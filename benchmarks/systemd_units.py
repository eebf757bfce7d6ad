"""sodad, its expiry and the agent under systemd, by their units as they are shipped: ``python -m benchmarks.systemd_units``.

A cluster in containers that systemd runs: Slurm by Debian's units, slurm-soda as ``make install`` leaves it. sodad reads and
changes jobs and is killed; agents limit jobs, and give back what they took. Ends with status 1 if something does not hold.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from benchmarks.dead_daemon import RELEASED_WITHIN_S
from benchmarks.faults import FaultFinding, first_rows, show
from benchmarks.lifted_jobs import find_lifted_jobs
from slurm_soda.containers.cluster import ContainerCluster

NODES = ("n1", "n2")
SOURCE = "/usr/local/src/slurm-soda"
UNITS = {
    "sodad.service": ("daemon", 3.0),
    "sodad-expiry.service": ("daemon", 3.0),
    "soda-agent.service": ("agent", 5.0),
}
"""Where each is in the source, and what its exposure must stay below."""
SODA_TOML = """mode = "enforce"
[policy]
name = "smallest"
[cycle]
interval_s = 1
"""
AGENT_TOML = """[cores]
enabled = true
step_s = 2.0
settle_s = 1.5
sample_s = 0.1
warm_up_s = 1.0
[network]
gpu_interface = "eth0"
link_mbit = 200
"""
DROP_IN = "/run/systemd/system/sodad.service.d/without.conf"
NO_RESTART = "Restart=no\n"
ALONE = f"{NO_RESTART}ExecStopPost=\nKillMode=process\n"
"""systemd does nothing when sodad is dead: only the timer ends lifts, and only setpriv ends commands."""

HOLD = "/run/hold-changes"
ENDED_WITHIN_MS = 5000
"""A change under way, which would last for ever. It ends at once; two busy cores take their time."""
SLOW_SCONTROL = f"""#!/bin/sh
# While {HOLD} exists a change takes for ever. sodad's changes come by standard input.
[ $# != 0 ] || [ ! -e {HOLD} ] || exec sleep 6543
exec /usr/bin/scontrol.real "$@"
"""
UNDER_WAY = ("pgrep", "-fx", "sleep 6543")
KILL_AND_WATCH = f"""kill -KILL $(systemctl show --property=MainPID --value sodad); rm {HOLD}; began=$(date +%s%N)
while pgrep -fx 'sleep 6543' >/dev/null; do
    [ $(($(date +%s%N) - began)) -lt 9000000000 ] || break
    sleep 0.02
done
echo $((($(date +%s%N) - began) / 1000000))"""
SHARED_OUT = (
    "tc qdisc show dev eth0 | grep 50da:; nft list tables | grep slurm-soda; cat /proc/[0-9]*/cgroup 2>/dev/null"
    " | grep -o 'slurm-soda-n./.*' | sort -u; ls /var/lib/slurm-soda-agent/network.json; true"
)
REFUSED = "journalctl --quiet --output=cat --unit={unit} | grep -ciE 'not permitted|permission denied|read-only'; true"


@dataclass(frozen=True, slots=True)
class UnitsSite:
    """The cluster, and what systemd does on it."""

    cluster: ContainerCluster

    def shell(self, script: str, node: str = "ctl") -> str:
        return self.cluster.exec("root", ("sh", "-c", script), node=node).check().stdout.strip()

    def submit(self, *options: str, script: str = "exec sleep 900") -> int:
        argv = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--time=60", *options)
        return int(self.cluster.exec("alice", argv, input=f"#!/bin/bash\n{script}\n").check().stdout)

    def cancel_all(self) -> None:
        self.shell("scancel --user=alice")
        self.cluster.wait_until(lambda: not self.shell("squeue --noheader"), "the queue is empty")

    def took_s(self, condition: Callable[[], bool], what: str, within_s: float = 90.0) -> float:
        """Seconds until it holds."""
        began_s = time.monotonic()
        self.cluster.wait_until(condition, what, within_s)
        return time.monotonic() - began_s

    def lifted(self) -> bool:
        return bool(find_lifted_jobs(self.cluster))

    def cpus(self, job: int) -> int:
        found = re.search(r"NumCPUs=(\d+)", self.shell(f"scontrol -o show job {job}"))
        return int(found[1]) if found else 0

    def main_pid(self) -> int:
        return int(self.shell("systemctl show --property=MainPID --value sodad"))

    def kill(self) -> None:
        self.shell("systemctl kill --kill-whom=main --signal=KILL sodad")

    @contextmanager
    def changed(self, settings: str) -> Iterator[None]:
        """sodad's unit with other settings; afterwards sodad runs as shipped and has lifted again."""
        # /run is a file system of the container's own, into which the engine copies nothing.
        write = "mkdir -p ${0%/*}; cat >$0; systemctl daemon-reload"
        self.cluster.exec("root", ("sh", "-c", write, DROP_IN), input=f"[Service]\n{settings}").check()
        yield
        self.shell(f"rm {DROP_IN}; systemctl daemon-reload; systemctl start sodad")
        self.took_s(self.lifted, "sodad has lifted jobs")


def installed(site: UnitsSite) -> Iterator[FaultFinding]:
    """The units are those of the source, and how exposed systemd calls them."""
    for unit, (folder, below) in UNITS.items():
        node = "n1" if folder == "agent" else "ctl"
        site.shell(f"cmp {SOURCE}/{folder}/{unit} /etc/systemd/system/{unit}", node)
        said = site.shell(f"systemd-analyze security --no-pager {unit}", node)
        level = float(said.rpartition(f"level for {unit}: ")[2].split()[0])
        yield FaultFinding(f"exposure of {unit}, below {below:g}", f"{level:g}", level < below)


def changes(site: UnitsSite) -> Iterator[FaultFinding]:
    """sodad reads the queue, lifts jobs and changes a request."""
    for _ in NODES:
        site.submit("--gres=gpu:4")
    for gpus in (4, 4, 1, 2, 1):
        site.submit(f"--gres=gpu:{gpus}")
    site.shell("systemctl enable --now sodad")
    took_s = site.took_s(site.lifted, "sodad has lifted jobs")
    yield FaultFinding("jobs lifted, after", f"{len(find_lifted_jobs(site.cluster))}, {took_s:.1f} s", True)
    job = site.submit("--hold", "--gres=gpu:1", "--cpus-per-task=20", "--soda-category=cv")
    took_s = site.took_s(lambda: site.cpus(job) == 3, "sodad has changed a request")
    yield FaultFinding("cores of a waiting job from 20 to 3, after", f"{took_s:.1f} s", True)
    [cycles, known], [failed] = first_rows(
        site.cluster,
        "select count(*), (select count(*) from job) from cycle where length(error) = 0",
        "select count(*) from action where state = 'failed'",
    )
    yield FaultFinding("cycles without error, jobs that sodad knows", f"{cycles}, {known}", min(cycles, known) > 0)
    yield FaultFinding("changes that failed", str(failed), failed == 0)


def kills(site: UnitsSite) -> Iterator[FaultFinding]:
    """sodad is killed: with systemd doing nothing about it, with ExecStopPost alone, and as shipped."""
    with site.changed(ALONE):
        site.shell(f"mv /usr/bin/scontrol /usr/bin/scontrol.real; touch {HOLD}")
        site.cluster.copy_in(SLOW_SCONTROL.encode(), "/usr/bin/scontrol", mode=0o755)
        site.submit("--hold", "--gres=gpu:1", "--cpus-per-task=20", "--soda-category=cv")
        site.took_s(lambda: site.cluster.exec("root", UNDER_WAY).status == 0, "a change is under way")
        took_ms = int(site.shell(KILL_AND_WATCH))
        yield FaultFinding("a change under way is over after its sodad", f"{took_ms} ms", took_ms < ENDED_WITHIN_MS)
        lifts = len(find_lifted_jobs(site.cluster))
        took_s = took_ms / 1000 + site.took_s(lambda: not site.lifted(), "the timer has ended the lifts")
        holds = lifts > 0 and took_s < RELEASED_WITHIN_S
        yield FaultFinding(f"{lifts} lifts of a dead sodad, by sodad-expiry over after", f"{took_s:.0f} s", holds)
    with site.changed(NO_RESTART):
        site.kill()
        took_s = site.took_s(lambda: not site.lifted(), "ExecStopPost has ended the lifts")
        yield FaultFinding("the same by ExecStopPost", f"{took_s:.1f} s", took_s < RELEASED_WITHIN_S)
    old = site.main_pid()
    site.kill()
    took_s = site.took_s(lambda: site.main_pid() not in (0, old), "sodad is started again")
    took_s += site.took_s(site.lifted, "the next sodad lifts")
    yield FaultFinding("as shipped: the next sodad runs and lifts after", f"{took_s:.1f} s", True)
    site.cancel_all()


def limits(site: UnitsSite) -> Iterator[FaultFinding]:
    """The agent moves a job between cores, shares the link out, and gives it back when it ends."""
    site.cluster.create_net_cls()
    for node in NODES:
        site.cluster.copy_in(AGENT_TOML.encode(), "/etc/slurm-soda/agent.toml", node=node)
        site.shell("systemctl restart soda-agent", node)
    train = "soda-train --profiles /usr/local/share/soda-train/soda.tsv --model resnet50 --duration-s 1e6"
    train = f"exec srun --ntasks=1 --cpus-per-task=1 {train}"
    site.submit("--gres=gpu:1", "--cpus-per-task=2", "--nodelist=n1", script=train)

    def cores() -> str:
        script = "grep -h Cpus_allowed_list /proc/$(pgrep -x soda-train)/status | cut -f 2; true"
        return site.shell(script, "n1")

    site.took_s(lambda: cores() in ("0", "1"), "a training runs on one of its job's two cores")
    took_s = site.took_s(lambda: cores() == "0-1", "the agent has given it the other one")
    yield FaultFinding("agent: a training that needs a second core has it after", f"{took_s:.1f} s", True)
    site.submit("--gres=gpu:1", "--nodes=2", "--ntasks-per-node=1")
    site.submit("--nodelist=n1")
    wanted = ("htb 50da:", "inet slurm-soda-network", "slurm-soda-n1/gpu", "slurm-soda-n1/cpu", "network.json")

    def shared_out() -> bool:
        found = site.shell(SHARED_OUT, "n1")
        return all(part in found for part in wanted)

    took_s = site.took_s(shared_out, "the link is shared out")
    yield FaultFinding("agent: the link is shared out after", f"{took_s:.1f} s", True)
    site.shell("systemctl kill --kill-whom=main --signal=KILL soda-agent", "n1")
    restarted = (
        "[ $(systemctl show --property=NRestarts --value soda-agent) = 1 ] && systemctl is-active soda-agent || true"
    )
    site.took_s(lambda: site.shell(restarted, "n1") == "active", "systemd has started another agent")
    site.took_s(shared_out, "that one shares the link out")
    site.shell("systemctl stop soda-agent", "n1")
    took_s = site.took_s(lambda: not site.shell(SHARED_OUT, "n1"), "all is given back")
    yield FaultFinding("agent: killed, started again, stopped: the link is as before after", f"{took_s:.1f} s", True)
    site.shell("systemctl start soda-agent", "n1")
    site.cancel_all()
    runs = first_rows(site.cluster, "select count(*) from job_run")[0][0]
    yield FaultFinding("runs that agents have reported", str(runs), runs > 0)


def refusals(site: UnitsSite) -> Iterator[FaultFinding]:
    """Lines of the journal about something that a unit's limits refused."""
    for unit in UNITS:
        nodes = NODES if unit == "soda-agent.service" else ("ctl",)
        lines = sum(int(site.shell(REFUSED.format(unit=unit), node)) for node in nodes)
        yield FaultFinding(f"lines of {unit} about something that it may not do", str(lines), lines == 0)


@click.command()
@click.option("--name", default="units", show_default=True, help="Name of the cluster.")
def main(name: str) -> None:
    """The units under systemd: what they let sodad and the agent do, and what follows when sodad is killed."""
    cluster = ContainerCluster.up(name, systemd=True, progress=lambda line: click.echo(line, err=True))
    findings: list[FaultFinding] = []
    try:
        site = UnitsSite(cluster)
        cluster.copy_in(SODA_TOML.encode(), "/etc/slurm-soda/soda.toml")
        for part in (installed, changes, kills, limits, refusals):
            for finding in part(site):
                findings.append(finding)
                click.echo(f"{finding.what}: {finding.found}", err=True)
    finally:
        cluster.down()
    show(findings)
    raise SystemExit(0 if all(finding.holds for finding in findings) else 1)


if __name__ == "__main__":
    main()
