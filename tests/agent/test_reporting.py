"""The agent as a whole reports to a controller, which may refuse, be away, or be another program."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.agent.reporting import report_sender
from slurm_soda.agent.reporting.upload import Backoff, UploadError
from slurm_soda.wire.core_tuning import CoreFit
from slurm_soda.wire.hook_settings import HookSettings
from tests.agent.bench import CLOSE, JOB, OPEN, Bench, Controller, until


def test_what_may_have_been_taken_is_sent_again_under_its_number_unless_there_is_more_to_say(
    tmp_path: Path, controller: Controller
) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> list[tuple[int, float]]:
        agent, sent = bench.agent(), []
        for number, controller.status in enumerate((200, 503, 503, 200, 503, 200)):
            if number == 5:
                bench.core_messages.fits.append(CoreFit(JOB, 0, "n1", 1002.0, 0, 8, 8, 4, 2, 3, 0.5, 0.5, "best_fit"))
            with suppress(UploadError):
                await agent.upload()
            bench.now_s += 1
            sent.append(controller.last)
        return [(report.seq, report.sent_s) for report in sent]

    assert asyncio.run(scene()) == [(1, 1001.0), (2, 1002.0), (2, 1002.0), (2, 1002.0), (3, 1005.0), (4, 1006.0)]


def test_each_report_has_the_hooks_settings_as_they_are_now(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, file = Bench(tmp_path, controller.port), tmp_path / "sharing.conf"
    monkeypatch.setattr(report_sender, "HOOK_SETTINGS_FILE", file)

    async def scene() -> None:
        agent = bench.agent()
        await agent.upload()
        file.mkdir()
        await agent.upload()

    asyncio.run(scene())
    assert [report.hooks for report in controller.reports] == [
        (HookSettings(),), (HookSettings(problem="it is no file"),),
    ]  # fmt: skip


def test_while_the_controller_is_away_nothing_is_lost(tmp_path: Path, controller: Controller) -> None:
    controller.status = 503
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        async with bench.running():
            await until((tmp_path / "sock").exists)
            await bench.deliver(OPEN)
            await bench.deliver(CLOSE)
            await asyncio.sleep(0.3)
            assert {path.name for path in (tmp_path / "spool").iterdir()} == {
                f"{JOB}.1000.{k}" for k in ("open", "close", "usage")
            }
            controller.status = 200
            await until(lambda: not list((tmp_path / "spool").iterdir()))

    asyncio.run(scene())
    assert [len(controller.reports[0].opened), len(controller.reports[0].closed)] == [1, 1]


def test_an_impostor_empties_no_spool_and_gives_no_order(tmp_path: Path, controller: Controller) -> None:
    order = {"job_id": JOB, "restart": 0, "search": 0, "step": 1, "cores": 1}
    controller.is_impostor, controller.status = True, 200
    controller.answer = json.dumps({"node": "n1", "seq": 1, "cores": [order]}).encode()
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        agent = bench.agent()
        for event in (OPEN, CLOSE):
            agent.receive_event(json.dumps(event).encode())
        with pytest.raises(UploadError, match="answer refused"):
            await agent.upload()
        assert {path.suffix for path in (tmp_path / "spool").iterdir()} >= {".open", ".close"}
        assert not bench.core_messages.orders
        controller.is_impostor = False
        await agent.upload()
        assert [report.closed for report in controller.reports][1] == controller.reports[0].closed
        assert bench.core_messages.orders

    asyncio.run(scene())


def test_an_end_without_a_beginning_is_reported_at_once(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)
    bench.config = replace(bench.config, heartbeat_s=3600.0)

    async def scene() -> None:
        async with bench.running():
            await until(lambda: controller.reports)
            await bench.deliver(CLOSE)
            await until(lambda: any(report.closed for report in controller.reports))

    asyncio.run(scene())


def test_an_idle_node_sends_heartbeats(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)

    async def scene() -> None:
        async with bench.running():
            await until(lambda: len(controller.reports) >= 3)

    asyncio.run(scene())
    assert all(not (r.opened or r.closed or r.usage) for r in controller.reports)


def test_a_controller_that_refuses_is_said_in_one_line(tmp_path: Path, controller: Controller) -> None:
    controller.status = 403
    with pytest.raises(UploadError, match="/v1/reports answered 403"):
        asyncio.run(Bench(tmp_path, controller.port).agent().upload())


def test_a_controller_that_is_not_there_is_said_in_one_line(tmp_path: Path, controller: Controller) -> None:
    controller.stop()
    bench = Bench(tmp_path, controller.port)
    with pytest.raises(UploadError, match=r"/v1/reports: ConnectionRefusedError") as caught:
        asyncio.run(bench.agent().upload())
    assert "\n" not in str(caught.value)


def test_the_nodes_name_is_slurms_where_none_is_configured(tmp_path: Path, controller: Controller) -> None:
    bench = Bench(tmp_path, controller.port)
    bench.config = replace(bench.config, node="")

    async def scene() -> None:
        agent = bench.agent()
        agent.receive_event(json.dumps({**OPEN, "node": "gpu-node-7"}).encode())
        await agent.upload()
        await agent.upload()

    asyncio.run(scene())
    assert [report.node for report in controller.reports] == ["gpu-node-7"] * 2


def test_pauses_double_up_to_a_limit_and_start_over() -> None:
    backoff = Backoff(60.0, random.Random(7))
    pauses = [backoff.failed() for _ in range(2000)]
    for number, pause_s in enumerate(pauses[:8]):
        assert 0.5 <= pause_s / min(60.0, 2.0**number) <= 1.5
    assert max(pauses) <= 90.0
    assert backoff.succeeded()
    assert not backoff.succeeded()
    assert backoff.failed() <= 1.5
