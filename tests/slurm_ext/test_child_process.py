"""A child that answers out of turn: what it said before is no answer to what it is asked now."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.bindings.child_process import ChildError, ChildProcess

ANSWERS_TWICE = """
import os, pathlib, sys, time
def say(text):
    os.write(1, b"%d\\n%s" % (len(text), text))
say(b"first")
for number, _ in enumerate(sys.stdin.buffer):
    say(b"answer %d" % number)
    if number == 1:
        time.sleep(0.1)
        say(b"answer to nobody")
        pathlib.Path(sys.argv[1]).touch()
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ChildProcess]:
    made = ChildProcess([sys.executable, "-c", ANSWERS_TWICE, str(tmp_path / "said")], {})
    yield made
    made.stop()


def test_what_it_said_before_it_was_asked_is_no_answer(child: ChildProcess, tmp_path: Path) -> None:
    assert child.start(20) == b"first"
    assert [child.ask(20), child.ask(20)] == [b"answer 0", b"answer 1"]
    while not (tmp_path / "said").exists():
        time.sleep(0.01)
    with pytest.raises(ChildError, match="spoke before it was asked"):
        child.ask(20)
    assert not child.runs, "the next one begins anew"

    assert child.start(20) == b"first"
