"""The agent's reports to the controller: what is in one, when they are sent, and what follows from an answer."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import replace

from slurm_soda.agent.mps.mps_news import MpsNews
from slurm_soda.agent.reporting.core_messages import CoreMessages
from slurm_soda.agent.reporting.node_use import NodeUseReader
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.report_batch import ReportBatch
from slurm_soda.agent.reporting.run_records import RunRecords
from slurm_soda.agent.reporting.upload import Backoff, Uploader, UploadError
from slurm_soda.agent.sampling.gpus import Gpus
from slurm_soda.agent.settings.agent_config import AgentConfig
from slurm_soda.wire.hook_settings import HOOK_SETTINGS_FILE, read_hook_settings
from slurm_soda.wire.memory_bandwidth import NodeBandwidth
from slurm_soda.wire.records import JobClosed, JobOpened, NodeReport
from slurm_soda.wire.walls import NodeWalls

log = logging.getLogger("soda-agent")


class ReportSender:
    """Reports of one agent, which are numbered from its start on.

    Attributes:
        node: Slurm's name of this node, as far as it is known.
        news: set by whoever has something to report.
    """

    def __init__(
        self,
        config: AgentConfig,
        clock: Callable[[], float],
        *,
        run_records: RunRecords,
        core_messages: CoreMessages,
        mps: MpsNews,
        walls: Callable[[], NodeWalls] | None = None,
        bandwidth: Callable[[], NodeBandwidth | None] = lambda: None,
        use: NodeUseReader | None = None,
        faults: RecentFaults,
        gpus: Gpus,
        uploader: Uploader,
        backoff: Backoff,
    ) -> None:
        self._config, self._clock = config, clock
        self._run_records, self._core_messages, self._faults, self._gpus = run_records, core_messages, faults, gpus
        self._mps, self._walls, self._bandwidth, self._use = mps, walls, bandwidth, use
        self._uploader, self._backoff = uploader, backoff
        self.node = config.node or os.uname().nodename.partition(".")[0]
        self.news = asyncio.Event()
        self._agent_id = secrets.token_hex(8)
        self._seq = 0
        self._unanswered: NodeReport | None = None
        """Sent, and perhaps taken."""

    async def send(self) -> bool:
        """Send one report; says whether more news waits.

        Raises:
            UploadError: the controller did not take it.
        """
        batch = self._run_records.news()
        report = self._unanswered = self._make_report(batch)
        answer = await self._uploader.send(report)
        self._unanswered = None
        self._run_records.reported(batch)
        self._core_messages.mark_sent(report.core_measurements, report.core_fits)
        self._mps.mark_sent(report.mps_faults)
        if answer is not None:
            self._core_messages.take(answer.cores)
            self._run_records.take_guests(answer.guests)
            self._run_records.take_left_out(answer.left_out)
        return self._run_records.has_unreported()

    def _make_report(self, batch: ReportBatch) -> NodeReport:
        """The next report. One that says what the unanswered one said has its number too: the controller may have it."""
        now_s, bandwidth = self._clock(), self._bandwidth()
        report = NodeReport(
            node=self._reported_node(batch.opened, batch.closed),
            agent_id=self._agent_id,
            seq=self._seq + 1,
            sent_s=now_s,
            opened=batch.opened,
            closed=batch.closed,
            usage=batch.usage,
            progress=batch.progress,
            gpu_uses=batch.gpu_uses,
            gpu_count=self._gpus.count,
            faults=self._faults.recent(now_s),
            core_measurements=tuple(self._core_messages.measurements),
            core_fits=tuple(self._core_messages.fits),
            mps_jobs=self._mps.jobs,
            mps_faults=tuple(self._mps.faults),
            walls=() if self._walls is None else (self._walls(),),
            bandwidth=() if bandwidth is None else (bandwidth,),
            hooks=(read_hook_settings(HOOK_SETTINGS_FILE),),
            use=() if self._use is None else (self._use.read(),),
        )
        before = self._unanswered
        if before is not None and replace(report, seq=before.seq, sent_s=before.sent_s, use=before.use) == before:
            return before
        self._seq += 1
        return report

    def _reported_node(self, opened: tuple[JobOpened, ...], closed: tuple[JobClosed, ...]) -> str:
        """Slurm's name of this node: as configured, else as slurmd gave it to prolog and epilog, else the host name."""
        if not self._config.node:
            names = [record.node for record in opened] + [record.node for record in closed]
            self.node = names[-1] if names else self.node
        return self.node

    async def send_forever(self) -> None:
        """Whenever there is news, but not too often; and now and then without any."""
        while True:
            self.news.clear()
            try:
                while await self.send():
                    pass
            except UploadError as error:
                if not self._backoff.failing:  # once an outage; no fault: it could not be reported anyway
                    log.warning("%s", error)
                await asyncio.sleep(self._backoff.failed())
                continue
            if self._backoff.succeeded():
                log.info("controller answers again")
            await asyncio.sleep(self._config.upload_interval_s)
            await within(self.news, self._config.heartbeat_s - self._config.upload_interval_s)

    async def send_last(self) -> None:
        """Try once more, for a short time."""
        try:
            await asyncio.wait_for(self.send(), min(2.0, self._config.upload_timeout_s))
        except (UploadError, TimeoutError) as error:
            log.warning("last report not delivered, it waits in the spool: %s", error)


async def within(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait for an event, at most so long; says whether it came.

    Not by asyncio.wait_for: in Python 3.11 it forgets a cancellation that comes together with the event.
    """
    try:
        async with asyncio.timeout(max(timeout_s, 0.0)):
            await event.wait()
    except TimeoutError:
        return False
    return True
