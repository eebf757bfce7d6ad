"""pyslurm tells the same of every kind of job as squeue, on a real Slurm; skips where no pyslurm fits it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.pyslurm_install import NoPyslurmError, find_pyslurm, run_inside
from slurm_soda.containers.cluster import ContainerCluster
from tests.slurm.test_client import HOSTILE

pytestmark = pytest.mark.slurm

OCTAL = "".join(f"\\{byte:03o}" for byte in HOSTILE.encode("utf-8", "surrogateescape"))
SUBMIT = r"""
set -u
job() { sbatch --parsable --output=/dev/null --time=10 "$@"; }
evil="$(printf "$1")"
long() { job "$@" --wrap 'sleep 300'; }
# What runs, ends, or is stopped in one way or the other
first=$(long --gres=gpu:a100:1 --cpus-per-task=2 --mem=200M)
long --nodes=2 --ntasks=2 --gpus-per-node=1 --mem=100M --comment='a b soda:1:model=resnet50,batch=64'
long --nodes=1 --time=UNLIMITED --mem=50M --job-name=unlimited
stopped=$(long --mem=50M --job-name=suspended)
again=$(long --mem=50M --job-name=again)
held=$(long --mem=50M --job-name=requeuehold)
cancelled=$(long --mem=50M --job-name=cancelled)
job --mem=50M --job-name=fails --wrap 'exit 3'
job --mem=50M --job-name=fails-high --wrap 'exit 200'
job --mem=50M --job-name=dies --wrap 'kill -9 $$'
job --mem=50M --job-name=ends --wrap true
job --mem=50M --job-name=fails-again --wrap 'srun sh -c "exit 4"; exit 5'
running=$(sbatch --parsable --output=/dev/null --mem=50M --array=1-3%2 --wrap 'sleep 300')
salloc --no-shell --mem=50M --time=5 --quiet 2>/dev/null
# What waits
hold() { job --hold "$@" --wrap true; }
hold --gpus=3
hold --gres=gpu:2 --nodes=2-3
hold --gpus-per-task=1 --ntasks=2 --cpus-per-task=3 --nice=7
hold --gpus-per-socket=1 --sockets-per-node=1
hold --exclusive
hold --exclusive=user
hold --oversubscribe
hold --nodelist=n1 --no-requeue
hold --nodes=2 --nodelist='n[1-2]'
hold --exclude=n2 --mincpus=3
hold --begin=now+1hour
hold --dependency=afterok:$first,afterany:$again
hold --ntasks=2048
hold --account=research --qos=normal
hold "--job-name=$evil" "--comment=$evil"
for name in None '(null)' N/A 'a b' 'ünïcödé 漢字' "$(printf '\357\277\275')"; do hold "--job-name=$name"; done
hold --comment='(null)'
hold --comment=''
hold --array=1-3,7
hold --array=0-30:10
hold --array=0-999%5
hold --array=0-98 --dependency=afterok:$first
sbatch --parsable --hold --output=/dev/null --gpus=1 : --gpus=2 --wrap true
array=$(hold --array=0-9)
job --begin=now+2hours --wrap true
job --nodelist=n2 --exclusive --wrap true
job --nodes=2 --gpus-per-node=4 --wrap true
echo "stopped=$stopped again=$again held=$held cancelled=$cancelled array=$array running=$running" >&2
"""
AFTERWARDS = r"""
for one in $1; do export "$one"; done
sleep 2
scontrol suspend $stopped
scontrol requeue $again
scontrol requeuehold $held
scancel $cancelled
scontrol update jobid=${array}_4 nice=5
scancel ${array}_7
scancel ${running}_1
"""
CLEAR = r"""
for one in $1; do export "$one"; done
scontrol resume $stopped  # a container with frozen processes cannot be removed
scancel --user=alice
"""


@pytest.fixture(scope="module")
def python(cluster: ContainerCluster) -> str:
    try:
        return find_pyslurm(cluster)
    except NoPyslurmError as error:
        pytest.skip(str(error))


@pytest.fixture
def jobs(cluster: ContainerCluster, python: str) -> Iterator[str]:
    said = cluster.exec("alice", ("bash", "-c", SUBMIT, "sh", OCTAL), timeout_s=300).check()
    names = said.stderr.strip().rpartition("\n")[2]
    yield names
    cluster.exec("root", ("bash", "-c", CLEAR, "sh", names))


def assert_equal(found: dict[str, Any], at_least: int) -> None:
    assert found["differences"] == {}
    assert found["problem"] == ""
    assert found["jobs"] >= at_least
    assert found["same_addresses"]


def test_it_tells_the_same_as_squeue(cluster: ContainerCluster, python: str, jobs: str) -> None:
    assert_equal(run_inside(cluster, "compare", python), 40)
    cluster.exec("root", ("bash", "-c", AFTERWARDS, "sh", jobs), timeout_s=120).check()
    assert_equal(run_inside(cluster, "compare", python), 40)
    cluster.exec("root", ("scontrol", "update", "nodename=n2", "state=drain", "reason=a b")).check()
    try:
        cluster.restart_slurmctld()
        assert_equal(run_inside(cluster, "compare", python), 40)
    finally:
        cluster.exec("root", ("scontrol", "update", "nodename=n2", "state=resume")).check()
    cluster.exec("root", ("scancel", "--user=alice")).check()
    assert_equal(run_inside(cluster, "compare", python), 40)


def test_all_tasks_of_an_array_with_a_step_are_told(cluster: ContainerCluster, python: str) -> None:
    """Of such an array squeue --array of 24.11 leaves out the last task."""
    words = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--array=0-98:2", "--wrap=true")
    job_id = cluster.exec("alice", words).check().stdout.strip()
    try:
        found = run_inside(cluster, "tasks", python, job_id)
        assert found == {"tasks": ",".join(map(str, range(0, 99, 2)))}
    finally:
        cluster.exec("root", ("scancel", job_id))


def test_a_child_that_is_killed_costs_nothing_but_a_squeue(cluster: ContainerCluster, python: str, jobs: str) -> None:
    found = run_inside(cluster, "crash", python)
    assert found["jobs"][0] >= 40
    assert found["jobs"][0] == found["jobs"][1] == found["jobs"][2]
    assert "SIGSEGV" in found["problem"]
    assert found["left"] == ""
