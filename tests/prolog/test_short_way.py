"""The hooks with soda-deliver-event beside them: it is enough where the agent is there, and Python steps in where not."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_soda.agent.job_events.hook_variables import event_line_from_variables
from slurm_soda.agent.job_events.run_event import parse_run_event
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.run_records import RunRecords
from slurm_soda.wire.errors import SpoolError
from slurm_soda.wire.spool import Spool
from tests.prolog.conftest import EPILOG_ENV, PROLOG_ENV, Desk, make_installed, python_s_event

KINDS = {"prolog": "open", "epilog": "close"}


@pytest.mark.parametrize("hook", KINDS)
def test_with_the_agent_there_python_is_not_needed(
    deliver_event_program: Path, desk: Desk, tmp_path: Path, hook: str
) -> None:
    site = replace(make_installed(tmp_path), socket=desk.path)
    shutil.copy(deliver_event_program, site.program)
    (site.environment / "bin" / "python").unlink()
    done = site.run(hook, PROLOG_ENV)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert json.loads(event_line_from_variables(desk.heard() or b""))["kind"] == KINDS[hook]


@pytest.mark.parametrize("hook", KINDS)
@pytest.mark.parametrize("damage", ["not executable", "no program", "fails", "crashes"])
def test_a_broken_program_leaves_it_to_python(desk: Desk, tmp_path: Path, hook: str, damage: str) -> None:
    site = replace(make_installed(tmp_path), socket=desk.path)
    texts = {
        "no program": "\x7fELF",
        "fails": "#!/bin/sh\necho evil >&2; exit 9\n",
        "crashes": "#!/bin/sh\nkill -9 $$\n",
    }
    site.program.write_text(texts.get(damage, "nonsense"))
    site.program.chmod(0o644 if damage == "not executable" else 0o755)
    done = site.run(hook, PROLOG_ENV)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"evil" not in done.stderr
    event = json.loads(desk.heard() or b"")
    assert event == python_s_event(KINDS[hook], PROLOG_ENV, event["at_s"])


def test_a_second_copy_by_python_changes_nothing(deliver_event_program: Path, desk: Desk, tmp_path: Path) -> None:
    """The agent took the event, its ``ok`` came too late, and Python handed it over again."""
    python = replace(make_installed(tmp_path), socket=desk.path)
    spool = Spool(str(tmp_path / "ledger"))
    ledger = RunRecords(spool, RecentFaults(), 100)

    def take() -> tuple[object, ...]:
        line = event_line_from_variables(desk.heard() or b"")
        ledger.take(parse_run_event(line), line, time.time())
        [kept] = ledger.runs.values()
        content = {name: spool.read(name) for name in spool.names()}
        return kept.key, kept.revision, kept.opened, kept.closed, kept.over, content

    for hook, kind in KINDS.items():
        subprocess.run([deliver_event_program, kind, desk.path], env=EPILOG_ENV, check=True, timeout=30)
        first = take()
        assert python.run(hook, EPILOG_ENV).returncode == 0
        assert take() == first
    assert set(spool.names()) == {"10.1795214838.open", "10.1795214838.close"}
    spool.close()


def test_what_the_agent_could_not_keep_prolog_and_epilog_keep_themselves(
    deliver_event_program: Path, desk: Desk, tmp_path: Path
) -> None:
    """The agent's first no makes Python hand the event over: the second answer must not be an ``ok`` for nothing."""
    site = replace(make_installed(tmp_path), socket=desk.path)
    shutil.copy(deliver_event_program, site.program)
    spool = Spool(str(tmp_path / "ledger"))
    ledger = RunRecords(spool, RecentFaults(), 100)

    def take(line: bytes) -> str:
        line = event_line_from_variables(line)
        try:
            ledger.take(parse_run_event(line), line, time.time())
        except SpoolError as error:
            return str(error)
        return ""

    for hook, kind in KINDS.items():
        (tmp_path / "ledger" / f"10.1795214838.{kind}").mkdir()  # no file can take its place
        desk.answer = take
        try:
            done = site.run(hook, EPILOG_ENV)
        finally:
            desk.answer = None
        assert b"did not take the event: no spool" in done.stderr
        assert len(desk.lines) == 2
        desk.lines.clear()
        assert f"10.1795214838.{kind}" in site.records()
    [run] = ledger.runs.values()
    assert (run.opened is None, run.closed is None) == (False, False)
    spool.close()
