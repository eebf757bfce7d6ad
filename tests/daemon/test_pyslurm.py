"""A daemon whose list of jobs comes from pyslurm, which ends its process, hangs or tells nonsense: cycles go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.slurm_access import (
    KeepingRunner,
    close_slurm_client,
    make_slurm_client,
    reading_problems,
)
from slurm_soda.daemon.settings.settings import SlurmSettings
from slurm_soda.slurm_ext.bindings.pyslurm_client import PyslurmClient
from slurm_soda.slurm_ext.cli_client import CliSlurmClient, CommandTimeouts
from slurm_soda.slurm_ext.command_runner import CompletedCommand, LocalCommandRunner
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader
from tests.daemon.test_odd_text import FRAMING, OneDaemon, Replayed
from tests.slurm_ext.pyslurm_site import CONFIG, PyslurmSite, told

PYSLURM_TELLS = {1, 2}
"""Job ids; squeue, as recorded, tells others."""


@dataclass
class ReplayedWithConfig(Replayed):
    """It tells its configuration as well."""

    squeues: int = 0

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        self.squeues += "squeue" in argv
        if "config" in argv:
            lines = "".join(f"{key} = {value}\n" for key, value in CONFIG.items())
            return CompletedCommand(tuple(argv), 0, f"{lines}{FRAMING.end}".encode(), b"")
        return super().__call__(argv, stdin=stdin, timeout_s=timeout_s, env=env)


class PyslurmDaemon(OneDaemon):
    """The daemon over the recorded cluster, whose pyslurm tells of other jobs than squeue."""

    def __init__(self, path: Path, site: PyslurmSite, timeout_s: float = 30.0) -> None:
        self.site, self.limits, self.keeps = site, CommandTimeouts(read_s=timeout_s), 0
        super().__init__(path)
        self.replayed = ReplayedWithConfig({})

    def _make_client(self, runner: KeepingRunner) -> CliSlurmClient:
        self.client = PyslurmClient(
            runner,
            self.limits,
            nonce=lambda: FRAMING.nonce,
            reader=SqueueReader(self.unreadable.append),
            child=self.site.child(self.limits.read_s),
            keep=runner.keep,
        )
        return self.client

    def cycle(self) -> set[int]:
        """Run one; which jobs it saw."""
        self.clock.at_s += 60.0
        self.client.pyslurm_jobs.elapsed_s = lambda: self.clock.at_s
        report = self.cycles.run()
        assert report.error == ""
        return set(self.stored())


@pytest.fixture
def site(tmp_path: Path) -> PyslurmSite:
    site = PyslurmSite(tmp_path)
    site.tell(*map(told, PYSLURM_TELLS))
    return site


@pytest.fixture
def daemon(fresh_store: Path, site: PyslurmSite) -> Iterator[Callable[[float], PyslurmDaemon]]:
    made: list[PyslurmDaemon] = []

    def make(timeout_s: float) -> PyslurmDaemon:
        made.append(PyslurmDaemon(fresh_store, site, timeout_s))
        return made[-1]

    yield make
    for one in made:
        close_slurm_client(one.client)


@pytest.mark.parametrize("act", ["segv", "hang", "garbage", "half", "error"])
def test_the_daemon_outlives_its_reader(daemon: Callable[[float], PyslurmDaemon], site: PyslurmSite, act: str) -> None:
    soda = daemon(1.0 if act == "hang" else 30.0)
    assert soda.cycle() == PYSLURM_TELLS
    assert soda.replayed.squeues == 0  # type: ignore[attr-defined]  # a ReplayedWithConfig
    site.tell(*map(told, PYSLURM_TELLS), act=act)
    seen = soda.cycle()
    assert len(seen - PYSLURM_TELLS) >= 10, "squeue reads in the same cycle"
    (problem,) = reading_problems(soda.client)
    assert problem.startswith("squeue reads the jobs instead of pyslurm: ")
    site.tell(*map(told, PYSLURM_TELLS))
    assert soda.cycle() == PYSLURM_TELLS
    assert reading_problems(soda.client) == ()


def test_changes_stay_with_the_commands(daemon: Callable[[float], PyslurmDaemon], site: PyslurmSite) -> None:
    soda = daemon(30.0)
    site.tell(told(7, array_job_id=5, array_task_id=3), told(5, array_job_id=5, array_task_str="4-9"))
    soda.client.jobs()
    assert (soda.client._address(7), soda.client._address(5)) == ("5_3", "5_[4-9]")


def test_the_configuration_chooses(site: PyslurmSite, caplog: pytest.LogCaptureFixture) -> None:
    commands = make_slurm_client(SlurmSettings(), LocalCommandRunner(), "sharedgpu")
    assert type(commands) is CliSlurmClient
    assert reading_problems(commands) == ()
    chosen = SlurmSettings(reader="pyslurm", pyslurm_python=str(site.python))
    client = make_slurm_client(chosen, LocalCommandRunner(), "cog")
    assert isinstance(client, PyslurmClient)
    assert client.reader.shared_gres == "cog"
    assert client.child.argv[0] == str(site.python)
    with caplog.at_level(logging.WARNING, "slurm_soda.sodad"):
        client.on_failure("because")
    assert "pyslurm-does-not-read" in caplog.text


@pytest.mark.parametrize("path", ["python3", "bin/python", "/bin/py\nthon"])
def test_the_interpreter_is_a_whole_path(path: str) -> None:
    with pytest.raises(ValueError, match="pyslurm_python"):
        SlurmSettings(pyslurm_python=path)
