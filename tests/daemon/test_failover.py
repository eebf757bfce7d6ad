"""Two sodads with one store on PostgreSQL: the leader is killed or paused at work, and the other one takes over."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.failover.controllers import Controllers, Fault, TakeOver
from benchmarks.postgresql import PASSWORD, new_store_url
from slurm_soda.daemon.cycle.epoch import begin_epoch
from slurm_soda.daemon.main import EXIT_REFUSED, main
from slurm_soda.daemon.store.engine import open_store
from tests.postgresql import postgresql_server
from tests.sampling import thorough

FAULTS: tuple[Fault, Fault] = ("kill", "pause")


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[list[Controllers]]:
    """Two sites of two controllers each: failing over is mostly waiting, so both do it at once."""
    postgresql_server()
    with ExitStack() as stack:
        made = []
        for seed, fault in enumerate(FAULTS, 7):
            (tmp_path / fault).mkdir()
            made.append(Controllers(tmp_path / fault, new_store_url(), seed))
            stack.callback(made[-1].close)
        yield made


def test_the_backup_takes_over_and_no_update_of_the_old_leader_begins_after_that(sites: list[Controllers]) -> None:
    in_turn = {"kill": FAULTS, "pause": FAULTS[::-1]}

    def fail_over(site: Controllers, first: Fault) -> list[TakeOver]:
        return [site.fail_over(fault) for fault in (in_turn[first] * 25 if thorough() else (first,))]

    with ThreadPoolExecutor() as pool:
        for found in itertools.chain.from_iterable(pool.map(fail_over, sites, FAULTS)):
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
