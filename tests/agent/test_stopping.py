"""An agent that is told to stop does, whatever else happens at that moment."""

from __future__ import annotations

import asyncio

from slurm_soda.agent.reporting.report_sender import within


def test_a_loop_that_is_cancelled_in_the_moment_of_its_news_ends() -> None:
    """asyncio.wait_for forgets the cancellation then (Python 3.11), and the loop would go on for ever."""
    news, rounds = asyncio.Event(), 0

    async def loop() -> None:
        nonlocal rounds
        while rounds < 3:
            await within(news, 60.0)
            news.clear()
            rounds += 1

    async def scene() -> None:
        working = asyncio.create_task(loop())
        await asyncio.sleep(0)
        news.set()
        working.cancel()
        await asyncio.wait([working], timeout=1.0)
        assert working.cancelled()
        assert rounds == 0

    asyncio.run(scene())


def test_news_and_time() -> None:
    async def scene() -> None:
        news = asyncio.Event()
        assert not await within(news, 0.01)
        assert not await within(news, -1.0)
        news.set()
        assert await within(news, 60.0)

    asyncio.run(scene())
