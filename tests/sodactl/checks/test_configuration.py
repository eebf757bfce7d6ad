"""``sodactl doctor`` on what ends sodad at every start: its configuration, who may read that, and its port."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from slurm_soda.sodactl.checks.file_rights import first_closed
from tests.sodactl.checks.conftest import CONFIG, RecordedSlurm, finding
from tests.sodactl.conftest import Bench


def test_a_policy_that_does_not_exist(soda: Bench, recorded: RecordedSlurm) -> None:
    soda.config.write_text(soda.config.read_text() + '[policy]\nname = "tiresias"\n')
    state, found, remedy = finding(soda("doctor", "--json", status=1), "configuration")
    assert (state, f"{soda.config}: policy: " in found, "tiresias" in found) == ("fail", True, True)
    assert "journalctl -u sodad -o cat | grep '^sodad:'" in remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's rights are looked at by root")
def test_a_file_that_slurm_user_may_not_read(soda: Bench, recorded: RecordedSlurm) -> None:
    soda.config.chmod(0o600)
    state, found, remedy = finding(soda("doctor", "--json", status=1), "configuration")
    assert (state, str(soda.config) in found) == ("fail", True)
    assert f"chown slurm {soda.config}" in remedy
    soda.config.chmod(0o644)
    assert "configuration" not in [f["check"] for f in soda("doctor", "--json").document["findings"]]


def test_a_port_that_another_program_has(soda: Bench, recorded: RecordedSlurm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        soda.config.write_text(f"{soda.config.read_text()}[api]\nport = {port}\n")
        state, found, _ = finding(soda("doctor", "--json", status=1), "configuration")
        assert (state, f"another program has api.port {port}" in found) == ("fail", True)
        recorded.change(CONFIG, "SlurmctldHost[0]        = ctl", "SlurmctldHost[0]        = other")
        assert "configuration" not in [f["check"] for f in soda("doctor", "--json").document["findings"]]


def test_whom_a_file_is_closed_to(tmp_path: Path) -> None:
    """By owner, group and others, in this order, and every folder on the way counts."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner():
            folder.chmod(folder.stat().st_mode | 0o011)
    file = tmp_path / "inner" / "file"
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
