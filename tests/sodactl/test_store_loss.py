"""What the commands say of a store that was removed, is damaged or cannot be written, with and without a living sodad."""

from __future__ import annotations

import os
import pwd
import sqlite3
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy.exc import DatabaseError

from slurm_soda.daemon.api.view_json import encode_view
from slurm_soda.daemon.api.views import StatusView, ViewHeader
from slurm_soda.daemon.store import store_file
from slurm_soda.daemon.store.store_failures import explain_failure, restore_command, rights_remedy
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat
from slurm_soda.sodactl.checks import daemon_and_agents
from slurm_soda.sodactl.live import view_source
from slurm_soda.sodactl.site_access import CommandContext

from .checks.conftest import CONFIG, RecordedSlurm
from .conftest import NOW_S, Bench, record


@pytest.fixture
def removed(soda: Bench, tmp_path: Path) -> Bench:
    """A site whose store was removed under a running sodad."""
    soda.daemon()
    soda.store.close()
    for file in tmp_path.glob("soda.db*"):
        file.unlink()
    config = soda.config.read_text()
    soda.config.write_text(f'state_dir = "{tmp_path}"\n{config}[api]\nurl = "http://127.0.0.1:1"\n')
    (tmp_path / "sodad.lock").write_text(f"4242\nstore {tmp_path}/soda.db\n")
    return soda


@pytest.mark.parametrize("argv", [("mode", "observe"), ("mode",), ("undo", "--last", "1"), ("status",)], ids=" ".join)
def test_commands_name_the_restore_while_sodad_runs(removed: Bench, argv: tuple[str, ...]) -> None:
    said = removed(*argv, status=1).err
    assert "does not exist, but sodad (pid 4242) runs" in said
    assert "--restore FILE" in said
    assert "first start" not in said


def test_release_all_names_the_restore_while_sodad_runs(removed: Bench) -> None:
    assert "--restore FILE" in removed("release-all").err


def test_doctor_names_the_restore_while_sodad_runs(removed: Bench) -> None:
    found = {one["check"]: one for one in removed("doctor", "--json", status=1).document["findings"]}
    assert found["store"]["state"] == "fail"
    assert "--restore FILE" in found["store"]["remedy"]


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("argv", [("status",), ("mode", "observe"), ("doctor",), ("release-all",)], ids=" ".join)
def test_a_store_that_sodad_is_making_is_not_called_lost(
    removed: Bench, tmp_path: Path, argv: tuple[str, ...], empty: bool
) -> None:
    """Its first start takes seconds; somebody who believed that the store was lost would stop it, or look for a backup."""
    (tmp_path / "sodad.lock").write_text("4242\n\n")
    if empty:
        (tmp_path / "soda.db").touch()
    shown = removed(*argv, status=None)
    said = shown.out + shown.err
    assert ": sodad (pid 4242) is making it" in said
    assert "ask again in a few seconds" in said
    assert not {"removed", "--new-store", "--restore"} & set(said.split())


def test_without_sodad_it_is_made_at_the_first_start(removed: Bench, tmp_path: Path) -> None:
    removed.pids.clear()
    (tmp_path / "sodad.lock").write_text("4242\n")
    assert "sodad makes it at its first start" in removed("mode", "observe", status=1).err


def test_without_sodad_a_store_that_was_here_is_lost(removed: Bench, tmp_path: Path) -> None:
    removed.pids.clear()
    (tmp_path / "sodad.lock").write_text("4242\nstore\n")
    said = removed("mode", "observe", status=1).err
    for part in (
        "does not exist, but sodad has had a store here",
        f"as root: systemctl stop sodad; {sys.prefix}/bin/sodad --restore FILE; systemctl start sodad",
        "--new-store",
    ):
        assert part in said
    found = findings(removed)
    assert "--new-store" in found["store"]["remedy"]
    assert "not running" in found["sodad"]["found"]


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ("/opt/slurm-soda/lib/slurm-soda/environment.nIx30k", "/opt/slurm-soda/bin/sodad --restore FILE"),
        ("/home/alice/slurm-soda/.venv", "/home/alice/slurm-soda/.venv/bin/sodad --restore FILE"),
    ],
)
def test_the_remedy_names_the_command_as_people_know_it(
    monkeypatch: pytest.MonkeyPatch, environment: str, command: str
) -> None:
    monkeypatch.setattr("sys.prefix", environment)
    assert restore_command() == command


def test_the_remedy_runs_as_it_is_written(removed: Bench, tmp_path: Path) -> None:
    """sodad is on no PATH, and a store that root makes belongs to the owner of its directory."""
    removed.pids.clear()
    (tmp_path / "sodad.lock").write_text("4242\nstore\n")
    user = pwd.getpwuid(os.geteuid()).pw_name
    command = f"runuser -u {user} -- {sys.prefix}/bin/sodad --new-store"
    assert f"as root: systemctl stop sodad; {command}; systemctl start sodad" in findings(removed)["store"]["remedy"]
    assert f"aside and run `{command}`, and start" in explain_failure(damage(), tmp_path / "soda.db")[1]


@pytest.mark.parametrize("spoil", ["newer", "foreign"])
def test_doctor_says_why_a_store_is_none_of_ours(soda: Bench, tmp_path: Path, spoil: str) -> None:
    soda.store.close()
    with sqlite3.connect(tmp_path / "soda.db") as connection:
        connection.execute(
            "UPDATE alembic_version SET version_num = '0009'" if spoil == "newer" else "DROP TABLE alembic_version"
        )
    found = findings(soda)["store"]
    assert ("newer than" if spoil == "newer" else "a database of another program") in found["found"]
    assert ("upgrade slurm-soda" if spoil == "newer" else "point store.url") in found["remedy"]
    assert "restart sodad" not in found["found"] + found["remedy"]


@pytest.mark.parametrize("content", ["", "x\n", "-1\n", "9" * 40])
def test_a_lock_file_with_anything_in_it(removed: Bench, tmp_path: Path, content: str) -> None:
    (tmp_path / "sodad.lock").write_text(content)
    assert "sodad makes it at its first start" in removed("mode", "observe", status=1).err


def test_a_process_of_somebody_else_is_no_sodad() -> None:
    assert not CommandContext().pid_lives(1)


def damage() -> DatabaseError:
    cause = sqlite3.DatabaseError("database disk image is malformed")
    cause.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return DatabaseError("SELECT 1", None, cause)


CAUSE = "store sqlite:////var/soda.db cannot be used: disk I/O error on the disk of /var (mounted at /, 0 MiB free)"


@pytest.fixture
def stalled(soda: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A sodad that lives and cannot write its store."""
    soda.daemon(heartbeat_s=NOW_S - 300)
    soda.slurm.queue = [record(7)]
    head = ViewHeader(None, daemon_alive=False, stall=CAUSE, mode="observe", policy="fifo", parameters={})
    view = StatusView(head, cycles=(), failed=None, states={}, queues={}, preemptions=(), changes={}, nodes=())
    monkeypatch.setattr(view_source, "request_sodad", lambda url, path, query, munge: encode_view(view))
    return soda


def test_status_of_a_stalled_sodad_says_the_cause(stalled: Bench) -> None:
    shown = stalled("status", status=3).out
    assert "alive (epoch 1, pid 4242 on ctl" in shown
    assert f"but no cycle for 5 min 00 s: {CAUSE}" in shown
    assert "Slurm schedules alone" not in shown
    daemon = stalled("status", "--json", status=3).document["daemon"]
    assert (daemon["state"], daemon["stall"]) == ("stalled", CAUSE)


@pytest.mark.parametrize("argv", [("explain", "7"), ("jobs",), ("mode",), ("mode", "observe")], ids=" ".join)
def test_commands_name_the_cause_of_a_stall(stalled: Bench, argv: tuple[str, ...]) -> None:
    said = stalled(*argv).err
    assert f"sodad is alive, but no cycle for 5 min 00 s: {CAUSE}" in said
    assert "not running" not in said


def test_a_snapshot_of_a_stalled_sodad_is_refused_with_the_cause(stalled: Bench, tmp_path: Path) -> None:
    assert CAUSE in stalled("snapshot", "dump", str(tmp_path / "dump"), status=1).err


def findings(soda: Bench) -> dict[str, Any]:
    return {one["check"]: one for one in soda("doctor", "--json", status=None).document["findings"]}


def test_doctor_does_not_start_a_sodad_that_lives(stalled: Bench) -> None:
    found = findings(stalled)["sodad"]
    assert CAUSE in found["found"]
    assert "systemctl start" not in found["remedy"]


def test_a_stalled_sodad_that_does_not_answer(soda: Bench) -> None:
    soda.config.write_text(f"{soda.config.read_text()}[api]\nport = 1\n")
    soda.daemon(heartbeat_s=NOW_S - 300)
    assert "no cycle for 5 min 00 s: it does not answer over HTTP either" in soda("status", status=3).out


@pytest.mark.parametrize("runs", [True, False])
def test_doctor_on_a_damaged_store(soda: Bench, tmp_path: Path, runs: bool) -> None:
    soda.store.close()
    raw = bytearray((tmp_path / "soda.db").read_bytes())
    raw[100:] = b"\xff" * (len(raw) - 100)
    (tmp_path / "soda.db").write_bytes(raw)
    soda.config.write_text(f'state_dir = "{tmp_path}"\n{soda.config.read_text()}')
    (tmp_path / "sodad.lock").write_text("4242\n" if runs else "1\n")
    found = findings(soda)
    assert "malformed" in found["store"]["found"]
    for part in ("stop sodad", f"move {tmp_path}/soda.db* aside", "lost without a backup: mode and policy"):
        assert part in found["store"]["remedy"]
    assert ("runs (pid 4242)" if runs else "not running") in found["sodad"]["found"]


def recorded_config(soda: Bench, uid: int) -> None:
    soda.commands = slurm = RecordedSlurm()
    slurm.say("scontrol", "ping", stdout="Slurmctld(primary) at ctl is UP\n")
    slurm.say(*CONFIG, stdout=f"SlurmUser               = someone({uid})\n")


def test_doctor_gives_files_back_to_slurm_user(soda: Bench, tmp_path: Path) -> None:
    recorded_config(soda, os.geteuid() + 1)
    store = findings(soda)["store"]
    assert store["state"] == "fail"
    try:
        other = pwd.getpwuid(os.geteuid() + 1).pw_name
    except KeyError:
        other = str(os.geteuid() + 1)
    assert f"chown {other}: {tmp_path}/soda.db*" in store["remedy"]
    recorded_config(soda, os.geteuid())
    assert findings(soda)["store"]["state"] == "ok"
    (tmp_path / "soda.db").chmod(0o440)
    assert f"chmod u+rw {tmp_path}/soda.db*" in findings(soda)["store"]["remedy"]


def test_doctor_really_writes(soda: Bench, tmp_path: Path) -> None:
    before = (tmp_path / "soda.db-wal").stat().st_mtime_ns
    assert findings(soda)["store"]["state"] == "ok"
    assert (tmp_path / "soda.db-wal").stat().st_mtime_ns > before


@pytest.mark.parametrize("alive", [True, False])
def test_doctor_of_a_user_who_may_not_read_the_store(soda: Bench, monkeypatch: pytest.MonkeyPatch, alive: bool) -> None:
    """He is told what sodad tells him, and no remedy that only an admin could follow."""
    denied = PermissionError(13, "Permission denied")
    monkeypatch.setattr(store_file.StoreFile, "at", Mock(side_effect=denied))
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    soda.uid = 4711
    soda.config.write_text(f'{soda.config.read_text()}[api]\nurl = "http://127.0.0.1:1"\n')
    head = ViewHeader(None, daemon_alive=True, stall="", mode="observe", policy="fifo", parameters={})
    view = StatusView(head, cycles=(), failed=None, states={}, queues={}, preemptions=(), changes={}, nodes=())
    if alive:
        monkeypatch.setattr(view_source, "request_sodad", lambda url, path, query, munge: encode_view(view))
    found = findings(soda)
    assert (found["store"]["state"], found["sodad"]["state"]) == ("skip", "ok" if alive else "warn")
    assert "chown" not in str(found["store"])
    assert "systemctl" not in str(found["sodad"])


def test_a_read_only_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: Mock(f_flag=os.ST_RDONLY))
    assert "mounted read-only" in rights_remedy(tmp_path / "soda.db")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_is_not_told_to_become_root(tmp_path: Path) -> None:
    (tmp_path / "soda.db").touch()
    os.chown(tmp_path, 12345, 12345)
    assert rights_remedy(tmp_path / "soda.db") == f"as root: chown 12345: {tmp_path}/soda.db*"


def test_doctor_blames_no_agent_for_a_dead_sodad(soda: Bench) -> None:
    soda.daemon(heartbeat_s=NOW_S - 300)
    with soda.store.write() as session:
        session.add(AgentHeartbeat(node="n1", agent_id="a", seq=1, faults=[], seen_s=NOW_S - 300, gpu_count=4))
    soda.pids.clear()
    agents = findings(soda)["agents"]
    assert agents["state"] == "skip"
    assert "soda-agent" not in agents["found"] + agents["remedy"]


def test_doctor_warns_of_a_disk_that_is_nearly_full(soda: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_and_agents, "free_mib", lambda path: 63)
    assert findings(soda)["store"]["state"] == "warn"
