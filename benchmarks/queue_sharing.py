"""A queue whose jobs may share GPUs: what a site sets up for that, and the jobs. For :mod:`benchmarks.queue`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.demo.cluster_runs import PYTHON, SODACTL

MODELS, BATCH, SIZES = 100, 64, (1, 2, 4)
"""300 kinds of jobs: each model on each number of GPUs."""
ITERATION_S, SLOWDOWNS = 0.5, (1.05, 1.45)
"""Of a kind alone, and the range of what pairs of kinds are known to lose; jobs bear 1.5."""
CONFIGURATION = '[sharing]\npartitions = ["gpu"]\nmax_slowdown = 1.5\n'
HOSTS = 30
"""The first rounds, of 7 GPUs each: their jobs run long, consent and cannot be preempted. Half of the others consent."""
SUBMIT = f"""
for i in $(seq $(($1 / 6))); do
  for g in 4 2 1; do
    may="--soda-share=$([ $((i % 2)) = 0 ] && echo yes || echo no) --soda-checkpoint=TERM"; n=$((400 + i * 7919 % 40000))
    [ $i -gt {HOSTS} ] || {{ may=--soda-share=yes; n=60000; }}
    sbatch --quiet --output=/dev/null --gres=gpu:$g --time=600 $may --soda-model=m$((i * 37 % {MODELS})) \\
      --soda-batch-size={BATCH} --soda-iterations=$n --wrap='sleep 36000'
  done
done
"""
FEW = f"sbatch --quiet --output=/dev/null --gres=gpu:1 --time=600 --soda-share=yes --soda-model=m1 \
--soda-batch-size={BATCH} --soda-iterations=500 --wrap='sleep 36000'"
_CONFIG, _TABLE, _AGENTS = "/etc/slurm/slurm.conf", "/root/speeds.json", "/root/queue_agents.py"
_HOOKS = "/opt/slurm-soda/libexec"


def speed_table() -> str:
    """Iterations in a second, alone and in pairs, in Gavel's format."""
    low, high = SLOWDOWNS
    table: dict[str, dict[str, object]] = {}
    for gpus in SIZES:
        names = [f"('m{model} (batch size {BATCH})', {gpus})" for model in range(MODELS)]
        for one, name in enumerate(names):
            slowed = (low + (high - low) * (one * 31 + other * 17) % MODELS / MODELS for other in range(MODELS))
            speeds = ([1 / (ITERATION_S * slowdown)] * 2 for slowdown in slowed)
            table[name] = {"null": 1 / ITERATION_S, **dict(zip(names, speeds, strict=True))}
    return json.dumps({"a100": table})


def set_up(cluster: ContainerCluster) -> None:
    """Slurm names our prolog and epilog, without which nobody is sent to others. The nodes, which share a container and
    would share the hooks' records, have empty ones: no job of this queue ends while it is measured.
    """
    (nodes,) = cluster.spec.compute_hosts
    for hook in ("prolog", "epilog"):
        cluster.copy_in(b"#!/bin/sh\nexit 0\n", f"{_HOOKS}/{hook}", node=nodes, mode=0o755)
    text = cluster.copy_out(_CONFIG).decode()
    lines = "".join(f"{hook.title()}={_HOOKS}/{hook}\n" for hook in ("prolog", "epilog"))
    for host in cluster.spec.hosts:
        cluster.copy_in(re.sub(r"^(?=EpilogSlurmctld=)", lines, text, flags=re.M).encode(), _CONFIG, node=host)
    cluster.exec("root", ("scontrol", "reconfigure")).check()
    cluster.wait_until(lambda: set(cluster.node_states().values()) == {"idle"}, "all nodes are idle")


def begin_reports(cluster: ContainerCluster, minutes: int = 60) -> None:
    """From now on agents report."""
    cluster.copy_in(Path(__file__).with_name("queue_agents.py").read_bytes(), _AGENTS)
    begin = f"setsid {PYTHON} {_AGENTS} {2 * minutes} > {_AGENTS}.log 2>&1 &"
    cluster.exec("root", ("sh", "-c", begin)).check()


def learn_kinds(cluster: ContainerCluster) -> None:
    """sodad, whose store is there, knows all kinds and their pairs."""
    cluster.copy_in(speed_table().encode(), _TABLE)
    cluster.exec("root", (SODACTL, "profiles", "import", _TABLE, "--gpu", "a100"), timeout_s=600).check()


def guests(cluster: ContainerCluster) -> list[str]:
    """Jobs that run on GPUs of others."""
    said = cluster.exec("root", ("squeue", "--noheader", "--states=running", "--format=%A %b")).check().stdout
    return [line.split()[0] for line in said.splitlines() if "sharedgpu" in line]
