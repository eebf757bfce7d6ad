"""What the commands say of a store that was removed, is damaged or cannot be written, while sodad runs and while it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.sodactl.site_access import CommandContext

from .conftest import Bench


@pytest.fixture
def removed(soda: Bench, tmp_path: Path) -> Bench:
    """A site whose store was removed under a running sodad."""
    soda.daemon()
    soda.store.close()
    for file in tmp_path.glob("soda.db*"):
        file.unlink()
    config = soda.config.read_text()
    soda.config.write_text(f'state_dir = "{tmp_path}"\n{config}[api]\nurl = "http://127.0.0.1:1"\n')
    (tmp_path / "sodad.lock").write_text("4242\n")
    return soda


@pytest.mark.parametrize("argv", [("mode", "observe"), ("mode",), ("undo", "--last", "1"), ("status",)], ids=" ".join)
def test_commands_say_restart_while_sodad_runs(removed: Bench, argv: tuple[str, ...]) -> None:
    said = removed(*argv, status=1).err
    assert "does not exist, but sodad (pid 4242) runs" in said
    assert "restart sodad" in said
    assert "first start" not in said


def test_release_all_says_restart_while_sodad_runs(removed: Bench) -> None:
    assert "restart sodad" in removed("release-all").err


def test_doctor_says_restart_while_sodad_runs(removed: Bench) -> None:
    found = {one["check"]: one for one in removed("doctor", "--json", status=1).document["findings"]}
    assert found["store"]["state"] == "fail"
    assert "restart sodad" in found["store"]["remedy"]


def test_without_sodad_it_is_made_at_the_first_start(removed: Bench) -> None:
    removed.pids.clear()
    assert "sodad makes it at its first start" in removed("mode", "observe", status=1).err


@pytest.mark.parametrize("content", ["", "x\n", "-1\n", "9" * 40])
def test_a_lock_file_with_anything_in_it(removed: Bench, tmp_path: Path, content: str) -> None:
    (tmp_path / "sodad.lock").write_text(content)
    assert "sodad makes it at its first start" in removed("mode", "observe", status=1).err


def test_a_process_of_somebody_else_is_no_sodad() -> None:
    assert not CommandContext().pid_lives(1)
