"""A short campaign: less than a minute of random load and random faults, and nothing may be violated."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.campaign.__main__ import run_round
from benchmarks.campaign.round import RoundRunner
from benchmarks.campaign.schedule import Event, round_events
from benchmarks.campaign.site import CampaignSite

pytestmark = pytest.mark.slurm


@pytest.fixture
def events(seed: int, faults_s: float) -> Sequence[Event]:
    return round_events(seed, 0, faults_s, pace=1.5)


@pytest.fixture
def site(events: Sequence[Event]) -> Iterator[CampaignSite]:
    """A cluster of its own: its hooks, its agents and sodad's clock are not as others want them."""
    clock = any(event.kind == "clock" for event in events)
    site = CampaignSite.up(f"test-{secrets.token_hex(3)}", print, clock=clock)
    try:
        yield site
    finally:
        site.cluster.down()


@pytest.mark.parametrize(
    ("seed", "faults_s"),
    [
        (150, 20.0),  # all its jobs are short, so that the queue drains soon
        pytest.param(11, 40.0, marks=pytest.mark.thorough),
    ],
)
def test_nothing_is_violated(site: CampaignSite, events: Sequence[Event], tmp_path: Path, seed: int) -> None:
    record = run_round(RoundRunner(site, seed, 0, print), site, events, tmp_path, print)
    assert record.violations == []
    assert record.kills["sodad"] >= 3
    assert record.ends["COMPLETED"] >= 5
