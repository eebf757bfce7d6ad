"""Recorded replies of Slurm 24.11, of a site where all is well, for ``sodactl doctor``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from tests.sodactl.conftest import NOW_S, Bench, Result

REPLIES = Path(__file__).parents[1] / "replies"
LUA_DIR = Path(__file__).parents[3] / "slurm_ext" / "lua"
GOOD_LUA = f'local soda_found, soda = pcall(dofile, "{LUA_DIR}/soda.lua")\n'


@dataclass
class RecordedSlurm:
    """Answers commands from recorded replies; what it does not know is a program that is not there."""

    replies: dict[tuple[str, ...], CompletedCommand] = field(default_factory=dict)

    def say(self, *argv: str, stdout: str = "", status: int | None = 0, stderr: str = "") -> None:
        self.replies[argv] = CompletedCommand(argv, status, stdout.encode("utf-8", "surrogateescape"), stderr.encode())

    def change(self, argv: tuple[str, ...], old: str, new: str) -> None:
        text = self.replies[argv].stdout.decode()
        assert old in text
        self.say(*argv, stdout=text.replace(old, new))

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        if tuple(argv) == ("unmunge",):
            return CompletedCommand(
                tuple(argv), 0 if stdin == b"MUNGE:credential:" else 2, b"", b"unmunge: Error: Invalid credential"
            )
        return self.replies.get(tuple(argv), CompletedCommand(tuple(argv), 127, b"", b"No such file or directory"))


SLURM_USER_ID = 64030 if os.geteuid() == 0 else os.geteuid()
"""As recorded, where files can be given to that user."""
CONFIG = ("scontrol", "show", "config")
NODES = ("scontrol", "-o", "show", "nodes")
HELP = ("sbatch", "--help")
JSON_PROBE = ("scontrol", "--json", "show", "hostnames", "soda")
SACCT_PROBE = ("sacct", "--helpformat")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter: pytest closes the one over all of its own whenever a worker starts."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def recorded(soda: Bench, tmp_path: Path, public: Path) -> RecordedSlurm:
    """A site where all is well."""
    soda.config = Path(shutil.copy(soda.config, public))
    slurm = soda.commands = RecordedSlurm()
    plugin = tmp_path / "soda_spank.so"
    plugin.touch()
    (tmp_path / "plugstack.conf").write_text(f"# Optional\noptional {plugin}\n")
    (tmp_path / "job_submit.lua").write_text(GOOD_LUA)
    slurm.say("scontrol", "ping", stdout="Slurmctld(primary) at ctl is UP\n")
    slurm.say("scontrol", "--version", stdout="slurm-wlm 24.11.5\n")
    slurm.say(*JSON_PROBE, stdout='{"hostnames": ["soda"]}')
    slurm.say(*SACCT_PROBE, stdout="JobIDRaw       Restarts       State\n")
    slurm.say(*CONFIG, stdout=(REPLIES / "config-24.11.txt").read_text().replace("/etc/slurm/", f"{tmp_path}/"))
    for file in tmp_path.glob("soda.db*"):
        if os.geteuid() == 0:
            os.chown(file, SLURM_USER_ID, -1)
    if os.geteuid() == 0:
        os.chown(tmp_path, SLURM_USER_ID, -1)
        for directory in tmp_path.parents:  # root opens the store with the rights of its directory's owner
            directory.chmod(directory.stat().st_mode | 0o111)
    else:
        slurm.change(CONFIG, "(64030)", f"({SLURM_USER_ID})")
    slurm.change(CONFIG, "KillWait                = 10 sec", "KillWait                = 60 sec")
    slurm.say(*NODES, stdout=(REPLIES / "nodes-24.11.txt").read_text())
    slurm.say(*HELP, stdout=(REPLIES / "sbatch-help-24.11.txt").read_text())
    slurm.say("munge", "-n", stdout="MUNGE:credential:")
    slurm.say("sacctmgr", "-n", "-P", "show", "assoc", "cluster=soda", "format=user", stdout="\nroot\nalice\nbob\n")
    slurm.say("squeue", "-h", "-a", "-o", "%u", stdout="alice\nalice\nbob\n")
    soda.daemon()
    soda.cycle()
    soda.add(AgentHeartbeat(node="n1", agent_id="a", seq=1, seen_s=NOW_S - 3, gpu_count=4, faults=[]))
    return slurm


def finding(result: Result, check: str) -> tuple[str, str, str]:
    (found,) = [f for f in result.document["findings"] if f["check"] == check]
    return found["state"], found["found"], found["remedy"]
