"""The same on the kernel's own resctrl, where it has one: a group of ours made, limited, given a thread, and removed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from slurm_soda.agent.contention.bandwidth import BandwidthMeter
from slurm_soda.agent.contention.resctrl import MOUNT, Resctrl, ResctrlGroup
from slurm_soda.agent.contention.resctrl_features import ResctrlFeatures

JOB = 4_000_000_000
"""No job of any site has this number."""


@pytest.fixture
def port() -> Iterator[Resctrl]:
    if not (MOUNT / "info").is_dir():
        pytest.skip(f"no resctrl at {MOUNT}: the kernel or the processor has none, or it is not mounted")
    if os.geteuid() != 0:
        pytest.skip("resctrl groups are root's to make")
    found = Resctrl()
    yield found
    for group in (ResctrlGroup(JOB, control=True), ResctrlGroup(JOB, control=False)):
        found.remove(group)


@pytest.fixture
def features(port: Resctrl) -> ResctrlFeatures:
    return port.features()


def test_a_monitoring_group_counts(port: Resctrl, features: ResctrlFeatures) -> None:
    if not features.event:
        pytest.skip(f"this node cannot be measured: {features.missing}")
    group = ResctrlGroup(JOB, control=False)
    port.create(group)
    busy = "while True: b = bytearray(1 << 26)"
    with subprocess.Popen([sys.executable, "-c", busy]) as process:
        try:
            assert port.add_tasks(group, [process.pid]) == 1
            meter = BandwidthMeter()
            meter.read(0.0, port.counters(features.event))
            time.sleep(3)
            rates = meter.read(3.0, port.counters(features.event))
        finally:
            process.kill()
    assert rates is not None
    assert rates.jobs[JOB] > 0
    assert rates.node >= rates.jobs[JOB] * 0.98


def test_a_control_group_holds_its_limit_and_is_removed(port: Resctrl, features: ResctrlFeatures) -> None:
    if features.throttle is None:
        pytest.skip(f"this node cannot be throttled: {features.missing}")
    group = ResctrlGroup(JOB, control=True)
    port.create(group)
    wanted = features.throttle.round(35)
    port.inherit(group)
    port.limit(group, dict.fromkeys(features.throttle.domains, wanted))
    assert port.limits(group) == dict.fromkeys(features.throttle.domains, wanted)
    port.remove(group)
    assert group not in port.ours()
