"""Reports go to the controller whose sodad leads; the others take none."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from slurm_soda.agent.reporting.upload import FirstThatAnswers, UploadError
from slurm_soda.wire.core_tuning import ReportAnswer
from slurm_soda.wire.records import NodeReport

REPORT = NodeReport("n1", "agent", 1, 1000.0)


@dataclass
class FakeController:
    name: str
    asked: list[str]
    leads: bool = False
    answer: ReportAnswer = field(default_factory=lambda: ReportAnswer("n1", 1, ()))

    async def send(self, report: NodeReport) -> ReportAnswer | None:
        self.asked.append(self.name)
        if not self.leads:
            raise UploadError(f"{self.name}: no answer")
        return self.answer


def test_the_one_that_took_the_last_report_is_asked_first() -> None:
    asked: list[str] = []
    one, two, three = (FakeController(name, asked) for name in ("c1", "c2", "c3"))
    uploader = FirstThatAnswers([one, two, three], "controllers")

    def send() -> list[str]:
        asked.clear()
        asyncio.run(uploader.send(REPORT))
        return list(asked)

    two.leads = True
    assert (send(), send()) == (["c1", "c2"], ["c2"])
    two.leads, one.leads = False, True
    assert (send(), send()) == (["c2", "c3", "c1"], ["c1"])


def test_where_none_takes_it_all_are_named() -> None:
    asked: list[str] = []
    uploader = FirstThatAnswers([FakeController("c1", asked), FakeController("c2", asked)], "controllers")
    with pytest.raises(UploadError, match=r"c1: no answer; c2: no answer \(controllers of /etc/slurm-soda/agent.toml"):
        asyncio.run(uploader.send(REPORT))
