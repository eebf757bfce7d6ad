"""A cluster prepared for pairs of jobs, and what its repeats say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_soda.containers.cluster import ContainerCluster

CASES = (
    "exits", "cancelled", "requeued", "preempted", "ignores TERM", "same instant", "pieces killed", "hook killed",
    "node lost", "slurmctld killed",
)  # fmt: skip
_HOME = "/home/walls"
_PREPARE = """
mkdir -p /run/walls /etc/slurm-soda; chmod 1777 /run/walls
for gpu in 0 1 2 3; do for kind in gpu guest; do : >>/run/walls/$gpu.$kind; chmod 666 /run/walls/$gpu.$kind; done; done
echo kill_wait_s=10 >/etc/slurm-soda/sharing.conf
setsid sh /home/walls/helper.sh </dev/null >/dev/null 2>&1 &
"""
_HELPER = """
while [ -e /home/walls/helper.sh ]; do
    for script in /home/walls/do.$(hostname).*; do
        case $script in *'*' | *.new) ;; *) sh "$script"; rm -f "$script" ;; esac
    done
    sleep 0.1
done
"""


@dataclass(frozen=True, slots=True)
class WallsRepeat:
    """One pair of jobs, whose host ended."""

    case: str
    after_s: float
    """From the end of the host to the next start on a GPU of its guest; below 0: there was none in five minutes."""
    overlaps: int
    error: str = ""
    """Why there was no pair."""


@contextmanager
def prepared(cluster: ContainerCluster) -> Iterator[None]:
    """Programs and helpers of the benchmark; its jobs and its partition are gone afterwards."""
    folder = Path(__file__).parent
    cluster.exec("root", ("sh", "-c", f"mkdir -p {_HOME}; : >{_HOME}/log; chmod 666 {_HOME}/log")).check()
    cluster.copy_in((folder / "hold.sh").read_bytes(), f"{_HOME}/hold.sh", mode=0o755)
    cluster.copy_in((folder / "inside.py").read_bytes(), f"{_HOME}/inside.py")
    cluster.copy_in(_HELPER.encode(), f"{_HOME}/helper.sh")
    for node in ("n1", "n2"):
        cluster.exec("root", ("sh", "-c", _PREPARE), node=node).check()
    try:
        yield
    finally:
        cluster.exec("root", ("sh", "-c", "scancel --user=alice; sleep 2; scontrol delete PartitionName=urgent"))
        cluster.exec("root", ("rm", "-rf", _HOME))


def run(
    cluster: ContainerCluster, cases: Sequence[str], repeats: int, seed: int, waiting: int
) -> Iterator[WallsRepeat]:
    """The repeats as they end; the nodes are used at the same time."""
    words = ("+".join(cases), str(repeats), str(seed), str(waiting))
    said = b""
    for _, piece in cluster.run("root", ("python3", f"{_HOME}/inside.py", *words)):
        *lines, said = (said + piece).split(b"\n")
        yield from (_repeat(json.loads(line)) for line in lines if line.startswith(b"{"))


def _repeat(told: dict[str, Any]) -> WallsRepeat:
    return WallsRepeat(told["case"], told.get("after_s", -1.0), len(told.get("overlaps", ())), told.get("error", ""))
