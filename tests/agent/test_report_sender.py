"""When the agent's reports go out."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from slurm_soda.agent.reporting import report_sender
from slurm_soda.agent.reporting.report_sender import ReportSender
from slurm_soda.agent.reporting.upload import Backoff
from slurm_soda.agent.settings.agent_config import AgentConfig


def test_without_news_a_report_goes_out_at_every_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    async def waited(_event: asyncio.Event, timeout_s: float) -> bool:
        pauses.append(timeout_s)
        if len(pauses) >= 4:
            raise asyncio.CancelledError
        return False

    async def nothing_more() -> bool:
        return False

    monkeypatch.setattr(report_sender.asyncio, "sleep", slept)
    monkeypatch.setattr(report_sender, "within", waited)
    absent = cast("Any", None)
    sender = ReportSender(
        AgentConfig(upload_interval_s=3.0, heartbeat_s=20.0), lambda: 0.0, run_records=absent, core_messages=absent,
        mps=absent, faults=absent, gpus=absent, uploader=absent, backoff=Backoff(1.0, random.Random(1)),
    )  # fmt: skip
    monkeypatch.setattr(sender, "send", nothing_more)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(sender.send_forever())
    assert pauses == [3.0, 17.0] * 2, "20 s from one report to the next"
