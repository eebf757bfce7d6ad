"""An owner's service files, and Slurm's commands that submit and cancel."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from tests.sodactl.conftest import Bench

CHAT = """\
name = "chat"
command = "python model.py --port {port} --batch {batch} --name 'it is'"
target_ms = 200
window_ms = 50
[replicas]
least = 1
most = 3
[cpu]
sbatch = ["--partition=cpu"]
[gpu]
sbatch = ["--partition", "gpu"]
"""


@dataclass
class SlurmCommands:
    """sbatch and scancel, as Slurm 24.11 answers them; each call is kept."""

    refuse: dict[str, tuple[int | None, str]] = field(default_factory=dict)
    """Exit status and message by a word of the call."""
    calls: list[tuple[str, ...]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    environments: list[Mapping[str, str]] = field(default_factory=list)
    answer: str = ""
    """What sbatch prints instead of a job id."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        words = tuple(argv)
        if words[0] not in ("sbatch", "scancel"):
            return CompletedCommand(words, 1, b"", b"slurm_load_ctl_conf error: Unable to contact slurm controller")
        self.calls.append(words)
        self.scripts.append(stdin.decode())
        self.environments.append(env)
        for word, (status, said) in self.refuse.items():
            if any(word in one for one in words):
                return CompletedCommand(words, status, b"", said.encode())
        out = self.answer or f"{700 + len(self.calls)}\n" if words[0] == "sbatch" else ""
        return CompletedCommand(words, 0, out.encode(), b"")


@pytest.fixture
def slurm(soda: Bench) -> SlurmCommands:
    """The commands; alice types."""
    soda.commands, soda.uid = SlurmCommands(), 1000
    return soda.commands


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """A service file in a folder of its owner's."""
    place = tmp_path / "of alice"
    place.mkdir()
    (place / "chat.toml").write_text(CHAT)
    return place / "chat.toml"


def put_profile(chat: Path, *devices: dict[str, Any], target_ms: float = 200.0, window_ms: float = 50.0) -> Path:
    """A profile where `sodactl service profile` puts it; gives its path."""
    path = chat.parent / "services" / "chat" / "profile.json"
    path.parent.mkdir(parents=True, mode=0o700)
    rows = [{"batch": 8, "batch_ms": 40.0, "error_ratio": 0.1, "cores": 4, **device} for device in devices]
    path.write_text(
        json.dumps({"target_ms": target_ms, "window_ms": window_ms, "measured_at_s": 1.7e9, "devices": rows})
    )
    return path
