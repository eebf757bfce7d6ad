"""A short campaign: less than a minute of random load and random faults, and nothing may be violated."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.campaign.__main__ import run_round
from benchmarks.campaign.round import RoundRunner
from benchmarks.campaign.schedule import round_events
from benchmarks.campaign.site import CampaignSite

pytestmark = pytest.mark.slurm


@pytest.fixture
def site() -> Iterator[CampaignSite]:
    """A cluster of its own: its hooks, its agents and sodad's clock are not as others want them."""
    site = CampaignSite.up(f"test-{secrets.token_hex(3)}", print)
    try:
        yield site
    finally:
        site.cluster.down()


@pytest.mark.parametrize("faults_s", [20.0, pytest.param(40.0, marks=pytest.mark.thorough)])
def test_nothing_is_violated(site: CampaignSite, tmp_path: Path, faults_s: float) -> None:
    events = round_events(11, 0, faults_s, pace=1.5)
    record = run_round(RoundRunner(site, 11, 0, print), site, events, tmp_path, print)
    assert record.violations == []
    assert record.kills["sodad"] >= 3
    assert record.ends["COMPLETED"] >= 5
