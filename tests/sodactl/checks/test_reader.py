"""``sodactl doctor`` on pyslurm, where it is to read the list of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from tests.slurm_ext.pyslurm_site import PyslurmSite, told
from tests.sodactl.checks.conftest import CONFIG, RecordedSlurm, finding
from tests.sodactl.conftest import Bench


class FramedConfig(RecordedSlurm):
    """Answers the question for the configuration with its end mark, too."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        own = tuple(argv)[4:] if tuple(argv)[:2] == ("sh", "-c") else tuple(argv)
        said = super().__call__(own, stdin=stdin, timeout_s=timeout_s, env=env, most_bytes=most_bytes)
        if own == tuple(argv) or said.status != 0:
            return said
        return CompletedCommand(own, 0, said.stdout + env["SODA_END_MARK"].encode(), b"")


@pytest.fixture
def pyslurm(soda: Bench, recorded: RecordedSlurm, tmp_path: Path) -> PyslurmSite:
    soda.commands = FramedConfig(recorded.replies)
    site = PyslurmSite(tmp_path)
    with soda.config.open("a") as file:
        file.write(f'[slurm]\nreader = "pyslurm"\npyslurm_python = "{site.python}"\n')
    return site


def test_it_reads(soda: Bench, pyslurm: PyslurmSite) -> None:
    pyslurm.tell(told(1), told(2))
    state, found, _ = finding(soda("doctor", "--json", status=None), "pyslurm")
    assert (state, found) == (
        "ok",
        "pyslurm 24.11.0, built for Slurm 24.11; slurmctld 24.11.5: 2 jobs, 0 of them by squeue",
    )


def test_it_is_of_another_release(soda: Bench, recorded: RecordedSlurm, pyslurm: PyslurmSite) -> None:
    recorded.change(CONFIG, "= 24.11.5", "= 25.11.1")
    state, found, remedy = finding(soda("doctor", "--json", status=None), "pyslurm")
    assert state == "warn"
    assert "does not fit slurmctld 25.11.1" in found
    assert "slurm.pyslurm_python" in remedy


def test_it_ends_the_process(soda: Bench, pyslurm: PyslurmSite) -> None:
    pyslurm.tell(told(1), act="segv")
    state, found, _ = finding(soda("doctor", "--json", status=None), "pyslurm")
    assert state == "warn"
    assert "was ended by SIGSEGV" in found


def test_commands_read(soda: Bench, recorded: RecordedSlurm) -> None:
    findings = soda("doctor", "--json", status=None).document["findings"]
    assert findings
    assert "pyslurm" not in {one["check"] for one in findings}
