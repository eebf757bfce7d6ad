"""Signals that end a command: at once, but never between a lock and the one who takes it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_NOW = """
import os, signal, time
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals
raise_interrupt_on_signals()
try:
    os.kill(os.getpid(), signal.{name})
    time.sleep(30)
except KeyboardInterrupt:
    print("heard")
"""

_IN_A_LOCK = """
import os, queue, signal, time
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals

class Lock:
    def __init__(self, real): self.real, self.acquire, self.release = real, real.acquire, real.release
    def __exit__(self, *problem): self.real.release()
    def __enter__(self):
        self.real.acquire()
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000): pass  # here Python runs the handler

raise_interrupt_on_signals()
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
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals

class Pool: pass

raise_interrupt_on_signals()
pool = Pool()
weakref.finalize(pool, os.kill, os.getpid(), signal.SIGTERM)
try:
    del pool
    time.sleep(30)
except KeyboardInterrupt:
    print("heard")
"""

_IN_ANOTHER_FINALISER = """
import io, os, signal, time
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals

def end():
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000): pass

class Answer(io.RawIOBase):
    def close(self): end()

class Connection:
    def __del__(self): end()

def events():
    try: yield
    finally: end()

raise_interrupt_on_signals()
thing = {thing}
hasattr(thing, "send") and next(thing)
try:
    del thing
    time.sleep(30)
except KeyboardInterrupt:
    print("heard")
"""

_WHILE_CLEANING_UP = """
import os, signal, time
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals
raise_interrupt_on_signals()
try:
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(30)
except KeyboardInterrupt:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    time.sleep(0.1)
    print("clean")
"""

_UNDER_NOHUP = """
import os, signal, time
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals
signal.signal(signal.SIGHUP, signal.SIG_IGN)
raise_interrupt_on_signals()
try:
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(0.1)
    print("goes on")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
except KeyboardInterrupt:
    print("heard")
"""

_WHILE_WAITING = """
import queue, signal, threading
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals
raise_interrupt_on_signals()
threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGHUP)).start()
try:
    queue.Queue().get(timeout=30)
except KeyboardInterrupt:
    print("heard")
"""


_IN_AN_IMPORT = """
import os, pathlib, signal, sys, tempfile, time
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals
raise_interrupt_on_signals()
with tempfile.TemporaryDirectory() as folder:
    sys.path.insert(0, folder)
    pathlib.Path(folder, "optional.py").write_text(
        "import os, signal\\nos.kill(os.getpid(), signal.SIGTERM)\\nfor _ in range(1000): pass\\n")
    try:
        try:
            import optional
        except BaseException:
            optional = None  # as libraries do with a module that they can do without
        time.sleep(30)
    except KeyboardInterrupt:
        print("heard", optional.__name__)
"""

_COMMAND = """
import os, signal, sys, threading, types
import click
from slurm_soda.sodactl import main
from slurm_soda.sodactl.containers.interrupts import raise_interrupt_on_signals

@click.command()
def wait():
    raise_interrupt_on_signals()
    threading.Thread(target=threading.Event().wait).start()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()
    finally:
        print("clean")

sys.modules["waiting"] = types.SimpleNamespace(wait=wait)
main.COMMANDS = {"wait": main.LazyCommand("waiting:wait", "")}
main.main(["wait"])
"""


def said_by(program: str) -> str:
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, timeout=20, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_interrupts(number: signal.Signals) -> None:
    assert said_by(_NOW.format(name=number.name)) == "heard"


def test_a_lock_that_is_being_taken_is_given_back() -> None:
    assert said_by(_IN_A_LOCK) == "a connection"


def test_a_signal_inside_a_finaliser_is_heard_after_it() -> None:
    assert said_by(_IN_A_FINALISER) == "heard"


@pytest.mark.parametrize("thing", ["Answer()", "Connection()", "events()"])
def test_a_signal_inside_a_finaliser_of_another_kind_is_heard_too(thing: str) -> None:
    assert said_by(_IN_ANOTHER_FINALISER.format(thing=thing)) == "heard"


def test_a_signal_inside_an_import_is_heard_after_it() -> None:
    assert said_by(_IN_AN_IMPORT) == "heard optional"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_command_is_imported_is_heard(number: signal.Signals) -> None:
    program = f"""
import os, sys
from slurm_soda.sodactl import main
def load(self): os.kill(os.getpid(), {number:d})
main.LazyCommand.load = load
main.main(["demo"])
"""
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


def test_a_second_signal_leaves_the_clean_up_alone() -> None:
    assert said_by(_WHILE_CLEANING_UP) == "clean"


def test_nohup_holds() -> None:
    assert said_by(_UNDER_NOHUP).split("\n") == ["goes on", "heard"]


def test_who_waits_for_a_queue_hears_at_once() -> None:
    assert said_by(_WHILE_WAITING) == "heard"


def test_an_interrupted_command_ends_whatever_its_threads_wait_for() -> None:
    argv = (sys.executable, "-c", _COMMAND)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "clean\n", "interrupted")
