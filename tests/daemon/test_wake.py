"""What wakes the loop, and what does not."""

from __future__ import annotations

import threading
from pathlib import Path

from slurm_soda.daemon.cycle.wake import WakeEvent


def test_a_touched_file_wakes(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    waker = WakeEvent(path)
    path.write_text("job 1")
    assert waker.wait(5.0, 0.0)
    assert not waker.wait(0.1, 0.0), "the same touch wakes once"


def test_a_call_from_another_thread_wakes(tmp_path: Path) -> None:
    waker = WakeEvent(tmp_path / "wake")
    threading.Timer(0.05, waker.call).start()
    assert waker.wait(5.0, 0.0)


def test_a_call_from_a_signal_handler_wakes_once(tmp_path: Path) -> None:
    waker = WakeEvent(tmp_path / "wake")
    waker.wake_from_signal()
    assert waker.wait(5.0, 0.0)
    assert not waker.wait(0.1, 0.0)


def test_nothing_wakes_nobody(tmp_path: Path) -> None:
    assert not WakeEvent(tmp_path / "wake").wait(0.1, 0.0)
