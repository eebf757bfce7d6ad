"""A site whose users have no services: sodad does the same, to the bit, whether services are enabled or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_soda.daemon.store.tables.services import ServiceDrainRow, ServiceMinuteRow, ServiceRow
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon, settings
from tests.daemon.test_crash import scenario


def play(path: Path, *, enabled: bool) -> tuple[FakeSlurm, Daemon]:
    slurm = scenario()
    daemon = Daemon(slurm, path, settings(services={"enabled": enabled}))
    daemon.complete(400)
    return slurm, daemon


def sent(daemon: Daemon) -> list[tuple[Any, ...]]:
    return [(one.job_id, one.kind, one.old, one.new, one.created_s, one.state, one.reason) for one in daemon.actions()]


def test_sodad_does_the_same_with_services_enabled_and_stores_nothing_of_them(
    fresh_store: Path, tmp_path: Path, made_store: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "soda.db").write_bytes(made_store.read_bytes())
    slurm, daemon = play(fresh_store, enabled=True)
    plain_slurm, plain = play(other, enabled=False)
    assert sent(daemon) == sent(plain) != []
    assert slurm.updates == plain_slurm.updates > 0
    assert [job.runs for job in slurm.all.values()] == [job.runs for job in plain_slurm.all.values()]
    assert [row for table in (ServiceRow, ServiceMinuteRow, ServiceDrainRow) for row in daemon.rows(table)] == []
