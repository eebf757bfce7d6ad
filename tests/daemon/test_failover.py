"""Two sodads with one store on PostgreSQL: the leader is killed or paused at work, and the other one takes over."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.failover.controllers import Controllers
from benchmarks.postgresql import PASSWORD, new_store_url
from slurm_soda.daemon.cycle.epoch import begin_epoch
from slurm_soda.daemon.main import EXIT_REFUSED, main
from slurm_soda.daemon.store.engine import open_store
from tests.postgresql import postgresql_server
from tests.sampling import thorough


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[Controllers]:
    postgresql_server()
    made = Controllers(tmp_path, new_store_url(), seed=7)
    yield made
    made.close()


def test_the_backup_takes_over_and_no_update_of_the_old_leader_begins_after_that(controllers: Controllers) -> None:
    for fault in ("kill", "pause") * (50 if thorough() else 1):
        found = controllers.fail_over(fault)  # type: ignore[arg-type]
        assert found.violations() == [], found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a controller that finds another one's daemon in the store."""
    postgresql_server()
    url = new_store_url()
    store = open_store(url)
    begin_epoch(store, host="other", pid=1, version="0", now_s=0.0)
    store.close()
    (tmp_path / "soda.toml").write_text(
        f'state_dir = "{tmp_path}"\nwake_path = "{tmp_path}/wake"\n[store]\nurl = "{url}"\n'
        '[api]\nhost = "127.0.0.1"\nport = 0\n'
    )
    return tmp_path / "soda.toml"


def test_one_that_waits_says_so_and_stops_when_told(config: Path) -> None:
    argv = [sys.executable, "-m", "slurm_soda.daemon.main", "--config", str(config)]
    sodad = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert sodad.stderr is not None
    line = sodad.stderr.readline()
    assert "waiting" in line
    assert "pid 1 on other" in line
    sodad.send_signal(signal.SIGTERM)
    _, said = sodad.communicate(timeout=60)
    assert (sodad.returncode, PASSWORD in line + said) == (0, False)


def test_a_single_cycle_does_not_wait(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(config), "--once"]) == EXIT_REFUSED
    assert "this one refuses to act" in capsys.readouterr().err
