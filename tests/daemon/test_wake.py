"""What wakes the loop, and what does not."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_soda.daemon.cycle.wake import FILE_CHECK_INTERVAL_S, WakeEvent

EPILOGCTLD = Path(__file__).parents[2] / "epilog" / "epilogctld"


@contextmanager
def waker_on(path: Path) -> Iterator[WakeEvent]:
    waker = WakeEvent(path)
    try:
        yield waker
    finally:
        waker.close()


def by_slurmctld(path: Path) -> None:
    """As job_submit.lua does."""
    with path.open("r+b", buffering=0) as file:
        file.write(b"\n")


def by_epilogctld(path: Path) -> None:
    subprocess.run([EPILOGCTLD, path.parent], check=True)


def by_replacing(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("\n")
    other.rename(path)


TOUCHES = (by_slurmctld, by_epilogctld, os.utime, by_replacing)


def test_a_touched_file_wakes(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    with waker_on(path) as waker:
        path.write_text("job 1")
        assert waker.wait(5.0, 0.0)
        assert not waker.wait(0.1, 0.0), "the same touch wakes once"


@pytest.mark.parametrize("touch", TOUCHES)
def test_whoever_touches_wakes_before_and_in_a_wait(tmp_path: Path, touch: Callable[[Path], None]) -> None:
    path = tmp_path / "wake"
    path.write_text("\n")
    with waker_on(path) as waker:
        touch(path)
        assert waker.wait(5.0, 0.1)
        assert not waker.wait(0.1, 0.0)
        late = threading.Timer(0.2, touch, (path,))
        late.start()
        assert waker.wait(30.0, 0.1)
        late.join()


def test_a_touch_between_two_waits_that_leaves_time_and_size_alike_wakes(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    path.write_text("\n")
    with waker_on(path) as waker:
        os.utime(path, (1, 1))
        assert waker.wait(5.0, 0.0)
        os.utime(path, (1, 1))
        assert waker.wait(5.0, 0.0), "two touches in one tick of the file system's clock"


def test_a_wait_in_which_nothing_happens_hardly_runs(tmp_path: Path) -> None:
    with waker_on(tmp_path / "wake") as waker:
        (tmp_path / "beside").write_text("another file of the directory")
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        assert not waker.wait(20 * FILE_CHECK_INTERVAL_S, 0.0)
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 10


def test_a_directory_that_comes_goes_and_comes_back_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "run" / "wake"
    with waker_on(path) as waker:
        for _ in range(2):
            path.parent.mkdir()
            path.touch()
            assert waker.wait(5.0, 0.0)
            assert not waker.wait(0.1, 0.0)
            path.touch()
            assert waker.wait(5.0, 0.0)
            shutil.rmtree(path.parent)
            assert waker.wait(5.0, 0.0), "nobody knows what happened there"
            assert not waker.wait(0.1, 0.0)
        path.parent.mkdir()
        path.parent.rename(tmp_path / "old")
        path.parent.mkdir()
        waker.wait(0.1, 0.0)
        path.touch()
        assert waker.wait(5.0, 0.0)


def test_without_inotify_the_file_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    free = os.dup(0)
    os.close(free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))  # one more file, and that is not inotify's
    try:
        waker = WakeEvent(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        assert not waker.wait(0.1, 0.0)
        threading.Timer(0.05, path.touch).start()
        assert waker.wait(30.0, 0.0)
        assert not waker.wait(0.1, 0.0)
    finally:
        waker.close()


def test_a_call_from_another_thread_wakes(tmp_path: Path) -> None:
    with waker_on(tmp_path / "wake") as waker:
        threading.Timer(0.05, waker.call).start()
        assert waker.wait(5.0, 0.0)


def test_a_call_from_a_signal_handler_wakes_once(tmp_path: Path) -> None:
    with waker_on(tmp_path / "wake") as waker:
        before = signal.signal(signal.SIGALRM, lambda *_: waker.call())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            assert waker.wait(30.0, 0.0)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert not waker.wait(0.1, 0.0)


def test_a_watchdog_hears_while_nothing_happens(tmp_path: Path) -> None:
    heard: list[None] = []
    with waker_on(tmp_path / "wake") as waker:
        assert not waker.wait(1.2, 0.0, alive=lambda: heard.append(None))
    assert len(heard) == 1


def test_nothing_wakes_nobody(tmp_path: Path) -> None:
    with waker_on(tmp_path / "wake") as waker:
        assert not waker.wait(0.1, 0.0)
