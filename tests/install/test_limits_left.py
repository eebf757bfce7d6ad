"""What a killed agent has left limited, by the records that the agent's own code writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from slurm_soda.agent.contention.limit_record import LimitRecord, write_limit_record
from slurm_soda.agent.cpusets.core_records import JobCoreRecord, write_core_records
from slurm_soda.agent.state_file import write_state

SCRIPT = Path(__file__).parents[2] / "install" / "limits_left.sh"
HELD = JobCoreRecord(7, 1, "cgroup/v2", "/job_7", (0, 1), 1, 2, "", {"": "0-1"}, {"tuning": 1})


def left(state: Path) -> tuple[int, str]:
    done = subprocess.run([SCRIPT, state], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


@pytest.mark.parametrize(
    ("held", "groups", "cores", "network", "said"),
    [
        ([], [], [], False, ""),
        ([HELD], [], [], False, "cores of jobs"),
        ([], ["soda-7"], [], False, "memory bandwidth of jobs"),
        ([], [], [7], False, "memory bandwidth of jobs"),
        ([], [], [], True, "the network of jobs"),
        ([HELD], ["soda-7"], [7], True, "cores of jobs, memory bandwidth of jobs, the network of jobs"),
    ],
)
def test_what_is_on_record(
    tmp_path: Path, held: list[JobCoreRecord], groups: list[str], cores: list[int], network: bool, said: str
) -> None:
    state = tmp_path / "state"
    assert left(state) == (1, "")
    write_core_records(state / "cores.json", held)
    write_limit_record(state / "memory.json", LimitRecord(frozenset(groups), frozenset(cores), 1e9))
    if network:
        write_state(state / "network.json", 1, {"net_cls": ""})
    assert left(state) == (0 if said else 1, said)
