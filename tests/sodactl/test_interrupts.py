"""Signals that end a command: at once, but never between a lock and the one who takes it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_NOW = """
import os, signal, time
from slurm_soda.sodactl.interrupts import interruptible
caught = interruptible()
try:
    os.kill(os.getpid(), signal.{name})
    time.sleep(30)
except KeyboardInterrupt:
    print(caught == [signal.{name}])
"""

_IN_A_LOCK = """
import os, queue, signal, time
from slurm_soda.sodactl.interrupts import interruptible

class Lock:
    def __init__(self, real): self.real, self.acquire, self.release = real, real.acquire, real.release
    def __exit__(self, *problem): self.real.release()
    def __enter__(self):
        self.real.acquire()
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000): pass  # here Python runs the handler

interruptible()
pool = queue.LifoQueue()
pool.not_full._lock = Lock(pool.mutex)
try:
    pool.put("a connection")
    time.sleep(30)
except KeyboardInterrupt:
    print(pool.get(timeout=5))
"""

_IN_A_FINALISER = """
import os, signal, time, weakref
from slurm_soda.sodactl.interrupts import interruptible

class Pool: pass

interruptible()
pool = Pool()
weakref.finalize(pool, os.kill, os.getpid(), signal.SIGTERM)
try:
    del pool
    time.sleep(30)
except KeyboardInterrupt:
    print("heard")
"""

_WHILE_WAITING = """
import queue, signal, threading
from slurm_soda.sodactl.interrupts import interruptible
interruptible()
threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGHUP)).start()
try:
    queue.Queue().get(timeout=30)
except KeyboardInterrupt:
    print("heard")
"""


def said_by(program: str) -> str:
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, timeout=20, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_interrupts(number: signal.Signals) -> None:
    assert said_by(_NOW.format(name=number.name)) == "True"


def test_a_lock_that_is_being_taken_is_given_back() -> None:
    assert said_by(_IN_A_LOCK) == "a connection"


def test_a_signal_inside_a_finaliser_is_heard_after_it() -> None:
    assert said_by(_IN_A_FINALISER) == "heard"


def test_who_waits_for_a_queue_hears_at_once() -> None:
    assert said_by(_WHILE_WAITING) == "heard"
