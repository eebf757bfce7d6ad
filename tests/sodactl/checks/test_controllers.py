"""``sodactl doctor`` on several controllers and their store."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from sqlalchemy.orm import Session

from slurm_soda.daemon.api import views
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.tables.scheduling import Epoch
from slurm_soda.sodactl.checks import controllers
from tests.sodactl.checks.conftest import CONFIG, RecordedSlurm, finding
from tests.sodactl.conftest import Bench


def two_controllers(recorded: RecordedSlurm) -> None:
    config = recorded.replies[CONFIG].stdout.decode()
    line = next(line for line in config.splitlines() if line.startswith("SlurmctldHost"))
    recorded.change(CONFIG, line, "SlurmctldHost[0]        = ctl\nSlurmctldHost[1]        = 127.0.0.1")


def test_two_controllers_with_a_store_each_are_warned(soda: Bench, recorded: RecordedSlurm) -> None:
    two_controllers(recorded)
    state, found, remedy = finding(soda("doctor", "--json"), "controllers")
    assert (state, found) == ("warn", "2 controllers, and a store that only this one has")
    assert "PostgreSQL" in remedy


def test_another_sodad_with_another_store_is_found(
    soda: Bench, recorded: RecordedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_controllers(recorded)
    with soda.store.read() as session:
        own = views.status_view(session, read_view_header_of(session), cycles=0, since_s=0.0)
    monkeypatch.setattr(controllers, "status_at", lambda _site, _url: own)
    assert finding_states(soda) == ["warn"], "the same store"
    epoch = Epoch(
        id=1, host="ctl2", pid=9, version="1", started_s=1.0, heartbeat_s=1.0, state_dir="", take_over_after_s=1.0
    )
    monkeypatch.setattr(controllers, "status_at", lambda _site, _url: replace(own, head=replace(own.head, epoch=epoch)))
    states = finding_states(soda, status=1)
    assert states == ["fail", "warn"]


def finding_states(soda: Bench, status: int = 0) -> list[str]:
    document = soda("doctor", "--json", status=status).document
    return [f["state"] for f in document["findings"] if f["check"] == "controllers"]


def read_view_header_of(session: Session) -> views.ViewHeader:
    return views.view_header(queries.latest_epoch(session), {}, Settings(), daemon_alive=True)


def test_a_password_that_everybody_may_read_is_told(soda: Bench, recorded: RecordedSlurm) -> None:
    text = soda.config.read_text()
    soda.config.write_text(re.sub(r'url = "[^"]*"', 'url = "postgresql+psycopg://soda:hunter2@127.0.0.1:9/soda"', text))
    soda.config.chmod(0o644)
    result = soda("doctor", "--json", status=1)
    state, found, remedy = finding(result, "password")
    assert (state, "hunter2" in result.out) == ("fail", False)
    assert "everybody may read it" in found
    assert "chmod 600" in remedy
    soda.config.chmod(0o600)
    assert "password" not in [f["check"] for f in soda("doctor", "--json", status=1).document["findings"]]
