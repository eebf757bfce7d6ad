"""``sodactl doctor`` on what ends sodad at every start: its configuration, who may read that, and its port."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from slurm_soda.sodactl.checks.file_rights import first_closed
from tests.sodactl.checks.conftest import CONFIG, RecordedSlurm
from tests.sodactl.conftest import Bench


def faults(soda: Bench, words: str) -> list[str]:
    """Remedies of what is found with these words."""
    findings = soda("doctor", "--json", status=None).document["findings"]
    found = [f for f in findings if f["check"] == "configuration" and words in f["found"]]
    assert all(f["state"] == "fail" for f in found)
    return [f["remedy"] for f in found]


def test_a_policy_that_does_not_exist(soda: Bench, recorded: RecordedSlurm) -> None:
    assert faults(soda, "policy") == []
    soda.config.write_text(soda.config.read_text() + '[policy]\nname = "tiresias"\n')
    (remedy,) = faults(soda, f"{soda.config}: policy: ")
    assert "journalctl -u sodad -o cat | grep '^sodad:'" in remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's rights are looked at by root")
def test_a_file_that_slurm_user_may_not_read(soda: Bench, recorded: RecordedSlurm) -> None:
    for mode, count in ((0o600, 1), (0o644, 0)):
        soda.config.chmod(mode)
        remedies = faults(soda, f"may not read {soda.config}: see {soda.config}")
        assert len(remedies) == count
        assert all(f"chown slurm {soda.config}" in remedy for remedy in remedies)


@pytest.mark.parametrize(("read_timeout_s", "state"), [(29, None), (30, "warn")])
def test_a_command_may_not_take_as_long_as_sodad_may_be_silent(
    soda: Bench, recorded: RecordedSlurm, read_timeout_s: int, state: str | None
) -> None:
    soda.config.write_text(f"{soda.config.read_text()}[slurm]\nread_timeout_s = {read_timeout_s}\n")
    findings = soda("doctor", "--json", status=None).document["findings"]
    found = [f["state"] for f in findings if f["check"] == "configuration" and "slurm.read_timeout_s" in f["found"]]
    assert found == ([] if state is None else [state])


def test_a_port_that_another_program_has(soda: Bench, recorded: RecordedSlurm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        soda.config.write_text(f"{soda.config.read_text()}[api]\nport = {port}\n")
        assert len(faults(soda, f"another program has api.port {port}")) == 1
        recorded.change(CONFIG, "SlurmctldHost[0]        = ctl", "SlurmctldHost[0]        = other")
        assert faults(soda, "") == []


def test_whom_a_file_is_closed_to(public: Path) -> None:
    """By owner, group and others, in this order, and every folder on the way counts."""
    file = public / "inner" / "file"
    file.parent.mkdir(mode=0o755)
    file.touch(0o644)
    other = file.stat().st_uid + 12345
    assert first_closed(file, other) is None
    file.chmod(0o640)
    assert first_closed(file, other) == file
    file.chmod(0o204)
    assert first_closed(file, other) is None
    file.parent.chmod(0o711)
    assert first_closed(file, other) is None
    file.parent.chmod(0o700)
    assert first_closed(file, other) == file.parent
    assert first_closed(file.with_name("none"), other) is None
