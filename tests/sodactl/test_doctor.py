"""``sodactl doctor`` over recorded replies of Slurm 24.11, with one thing wrong at a time."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from slurm_soda.daemon.api import views
from slurm_soda.daemon.config import Settings
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat, Epoch, JobRun, NodeEvent
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.read.slurm_config import list_config_values, parse_config
from slurm_soda.sodactl.checks import controllers, slurm_hooks
from slurm_soda.sodactl.checks.slurm_conf import parse_node_gres

from .conftest import NOW_S, SUBMIT_S, Bench, Result, record, stored_job

REPLIES = Path(__file__).parent / "replies"
LUA_DIR = Path(__file__).parents[2] / "slurm_ext" / "lua"
GOOD_LUA = f'local soda_found, soda = pcall(dofile, "{LUA_DIR}/soda.lua")\n'


@dataclass
class RecordedSlurm:
    """Answers commands from recorded replies; what it does not know is a program that is not there."""

    replies: dict[tuple[str, ...], CompletedCommand] = field(default_factory=dict)

    def say(self, *argv: str, stdout: str = "", status: int | None = 0, stderr: str = "") -> None:
        self.replies[argv] = CompletedCommand(argv, status, stdout.encode("utf-8", "surrogateescape"), stderr.encode())

    def change(self, argv: tuple[str, ...], old: str, new: str) -> None:
        text = self.replies[argv].stdout.decode()
        assert old in text
        self.say(*argv, stdout=text.replace(old, new))

    def __call__(
        self, argv: Sequence[str], *, stdin: bytes, timeout_s: float, env: Mapping[str, str]
    ) -> CompletedCommand:
        if tuple(argv) == ("unmunge",):
            return CompletedCommand(
                tuple(argv), 0 if stdin == b"MUNGE:credential:" else 2, b"", b"unmunge: Error: Invalid credential"
            )
        return self.replies.get(tuple(argv), CompletedCommand(tuple(argv), 127, b"", b"No such file or directory"))


SLURM_USER_ID = 64030 if os.geteuid() == 0 else os.geteuid()
"""As recorded, where files can be given to that user."""
CONFIG = ("scontrol", "show", "config")
NODES = ("scontrol", "-o", "show", "nodes")
HELP = ("sbatch", "--help")


@pytest.fixture
def recorded(soda: Bench, tmp_path: Path) -> RecordedSlurm:
    """A site where all is well."""
    slurm = soda.commands = RecordedSlurm()
    plugin = tmp_path / "soda_spank.so"
    plugin.touch()
    (tmp_path / "plugstack.conf").write_text(f"# Optional\noptional {plugin}\n")
    (tmp_path / "job_submit.lua").write_text(GOOD_LUA)
    slurm.say("scontrol", "ping", stdout="Slurmctld(primary) at ctl is UP\n")
    slurm.say("scontrol", "--version", stdout="slurm-wlm 24.11.5\n")
    slurm.say(*CONFIG, stdout=(REPLIES / "config-24.11.txt").read_text().replace("/etc/slurm/", f"{tmp_path}/"))
    for file in tmp_path.glob("soda.db*"):
        if os.geteuid() == 0:
            os.chown(file, SLURM_USER_ID, -1)
    if os.geteuid() == 0:
        os.chown(tmp_path, SLURM_USER_ID, -1)
        for directory in tmp_path.parents:  # root opens the store with the rights of its directory's owner
            directory.chmod(directory.stat().st_mode | 0o111)
    else:
        slurm.change(CONFIG, "(64030)", f"({SLURM_USER_ID})")
    slurm.change(CONFIG, "KillWait                = 10 sec", "KillWait                = 60 sec")
    slurm.say(*NODES, stdout=(REPLIES / "nodes-24.11.txt").read_text())
    slurm.say(*HELP, stdout=(REPLIES / "sbatch-help-24.11.txt").read_text())
    slurm.say("munge", "-n", stdout="MUNGE:credential:")
    slurm.say("sacctmgr", "-n", "-P", "show", "assoc", "format=user", stdout="\nroot\nalice\nbob\n")
    slurm.say("squeue", "-h", "-a", "-o", "%u", stdout="alice\nalice\nbob\n")
    soda.daemon()
    soda.cycle()
    soda.add(AgentHeartbeat(node="n1", agent_id="a", seq=1, seen_s=NOW_S - 3, gpu_count=4, faults=[]))
    return slurm


def finding(result: Result, check: str) -> tuple[str, str, str]:
    (found,) = [f for f in result.document["findings"] if f["check"] == check]
    return found["state"], found["found"], found["remedy"]


def test_a_good_site(soda: Bench, recorded: RecordedSlurm) -> None:
    document = soda("doctor", "--json").document
    assert set(document) == {"findings", "counts"}
    assert all(set(f) == {"check", "state", "found", "remedy"} for f in document["findings"])
    assert [
        (f["check"], f["state"], f["found"]) for f in document["findings"] if f["state"] not in ("ok", "skip")
    ] == []
    assert [f["check"] for f in document["findings"]] == [
        "slurmctld", "Slurm versions", "scheduler", "reservations", "priority", "site factor", "prolog flags",
        "prolog time limit", "requeue", "GPU gres", "accounting", "job accounting", "checkpoint time",
        "GPU types", "drained nodes", "plugstack.conf", "job_submit", "prolog", "epilog", "epilogctld",
        "rights", "associations", "sbatch flags", "MUNGE", "store", "sodad", "preemptions",
        "lifts", "agents", "clocks",
    ]  # fmt: skip
    out = soda("doctor").out
    assert "What to do" not in out
    assert "29 ok, 1 skip" in out


@pytest.mark.parametrize(
    ("old", "new", "check", "state"),
    [
        ("sched/backfill", "sched/builtin", "scheduler", "warn"),
        ("bf_continue,", "bf_continue,bf_min_prio_reserve=1000000000,", "reservations", "warn"),
        ("priority/multifactor", "priority/basic", "priority", "fail"),
        ("PrioritySiteFactorPlugin = (null)", "PrioritySiteFactorPlugin = site_factor/x", "site factor", "fail"),
        ("= Alloc", "= (null)", "prolog flags", "fail"),
        ("PrologEpilogTimeout     = 30", "PrologEpilogTimeout     = 65534", "prolog time limit", "warn"),
        ("JobRequeue              = 1", "JobRequeue              = 0", "requeue", "warn"),
        ("GresTypes               = gpu,cog", "GresTypes               = (null)", "GPU gres", "fail"),
        ("accounting_storage/slurmdbd", "(null)", "accounting", "warn"),
        ("jobacct_gather/cgroup", "jobacct_gather/none", "job accounting", "warn"),
        ("KillWait                = 60", "KillWait                = 30", "checkpoint time", "warn"),
        ("JobSubmitPlugins        = lua", "JobSubmitPlugins        = (null)", "job_submit", "fail"),
        ("/opt/slurm-soda/libexec/prolog", "(null)", "prolog", "warn"),
        ("SLURM_VERSION           = 24.11.5", "SLURM_VERSION           = 25.05.0", "Slurm versions", "warn"),
    ],
)
def test_one_wrong_setting_is_found_and_only_that(
    soda: Bench, recorded: RecordedSlurm, old: str, new: str, check: str, state: str
) -> None:
    recorded.change(CONFIG, old, new)
    result = soda("doctor", "--json", status=1 if state == "fail" else 0)
    found, _, remedy = finding(result, check)
    assert found == state
    assert remedy
    wrong = [f["check"] for f in result.document["findings"] if f["state"] in ("warn", "fail")]
    assert wrong == [check]
    assert f"  {check}: {remedy}" in soda("doctor", status=None).out


@pytest.mark.parametrize(
    ("gres", "state"),
    [
        ("gpu:a100:4", "ok"), ("gpu:4", "ok"), ("gpu:a100:4(S:0-1),cog:g0:1,cog:g1:1", "ok"),
        ("gpu:a100:2,gpu:v100:2", "fail"), ("(null)", "fail"), ("cog:g0:1", "fail"),
    ],
)  # fmt: skip
def test_gpu_types(soda: Bench, recorded: RecordedSlurm, gres: str, state: str) -> None:
    recorded.change(NODES, "gpu:a100:4,cog:g0:1,cog:g1:1,cog:g2:1,cog:g3:1", gres)
    assert finding(soda("doctor", "--json", status=None), "GPU types")[0] == state


@pytest.mark.parametrize(
    ("text", "state", "said"),
    [
        ("required /x/soda_spank.so", "fail", "would stop slurmd and sbatch"),
        ("optional /nonexistent/soda_spank.so", "fail", "install slurm-soda's plugin"),
        ("include plugstack.conf.d/*", "warn", "fine if an included file does"),
        (None, "skip", "look on a machine"),
    ],
)
def test_the_plugin_stack(
    soda: Bench, recorded: RecordedSlurm, tmp_path: Path, text: str | None, state: str, said: str
) -> None:
    path = tmp_path / "plugstack.conf"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    found, _, remedy = finding(soda("doctor", "--json", status=None), "plugstack.conf")
    assert found == state
    assert said in remedy


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("return slurm.SUCCESS", "fail"),
        (None, "skip"),
        (GOOD_LUA, "ok"),
        (f"  -- {GOOD_LUA}", "fail"),
        (f"-- until May: '/nowhere/soda.lua'\n{GOOD_LUA}", "ok"),
        (f"{GOOD_LUA}if soda_found then soda.submit(job_desc, part_list) end\n", "warn"),
        (f"{GOOD_LUA}pcall(function() soda.submit(job_desc, part_list) end)\n", "ok"),
        ((LUA_DIR / "job_submit.lua").read_text().replace("/opt/slurm-soda/lib", str(LUA_DIR)), "ok"),
    ],
)
def test_the_lua_module(soda: Bench, recorded: RecordedSlurm, tmp_path: Path, text: str | None, state: str) -> None:
    path = tmp_path / "job_submit.lua"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert finding(soda("doctor", "--json", status=None), "job_submit")[0] == state


@pytest.mark.parametrize("empty", [True, False])
def test_a_part_of_the_lua_module_that_is_missing(
    soda: Bench, recorded: RecordedSlurm, tmp_path: Path, empty: bool
) -> None:
    (tmp_path / "job_submit.lua").write_text(f"local found, soda = pcall(dofile, '{tmp_path}/soda.lua')\n")
    for name in ("soda.lua", "soda_hints.lua"):
        (tmp_path / name).write_text("return {}")
    if empty:
        (tmp_path / "soda_routes.lua").touch()
    state, found, remedy = finding(soda("doctor", "--json", status=None), "job_submit")
    assert (state, found) == ("fail", f"{tmp_path} has no soda_routes.lua: jobs are taken without hints")
    assert remedy == f"install slurm-soda on the controller again, then touch {tmp_path}/job_submit.lua"


def test_what_the_caller_may_not_see_is_not_missing() -> None:
    """Not under tmp_path, which is its owner's alone."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        site.chmod(0o755)
        private = site / "private"
        private.mkdir()
        (site / "plugstack.conf").write_text(f"optional {private}/soda_spank.so\n")
        (site / "job_submit.lua").write_text(f"local found, soda = pcall(dofile, '{private}/soda.lua')\n")
        config = {
            "JobSubmitPlugins": "lua", "SLURM_CONF": f"{site}/slurm.conf", "PlugStackConfig": f"{site}/plugstack.conf",
            "Prolog": f"{private}/soda/prolog",
        }  # fmt: skip
        private.chmod(0)
        caller = os.geteuid()
        if caller == 0:
            os.seteuid(65534)
        try:
            found = [
                slurm_hooks.check_plugin_stack(config),
                slurm_hooks.check_job_submit(config),
                next(slurm_hooks.check_hook_scripts(config)),
            ]
        finally:
            os.seteuid(caller)
            private.chmod(0o700)
    assert [finding.state for finding in found] == ["ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("text", "state"), [("#!/bin/sh\nexec /opt/slurm-soda/libexec/prolog\n", "ok"), ("exit 0\n", "warn")]
)
def test_a_sites_own_prolog_may_call_ours(
    soda: Bench, recorded: RecordedSlurm, tmp_path: Path, text: str, state: str
) -> None:
    (tmp_path / "prolog.d").mkdir()
    (tmp_path / "prolog.d" / "10-site").write_text(text)
    recorded.change(CONFIG, "/opt/slurm-soda/libexec/prolog", f"{tmp_path}/prolog.d/*")
    assert finding(soda("doctor", "--json"), "prolog")[0] == state


@pytest.mark.parametrize("there", [True, False])
def test_a_prolog_without_the_program_beside_it_is_slower(
    soda: Bench, recorded: RecordedSlurm, tmp_path: Path, there: bool
) -> None:
    (tmp_path / "slurm-soda").mkdir()
    (tmp_path / "slurm-soda" / "prolog").write_text("")
    if there:
        (tmp_path / "slurm-soda" / "soda-deliver-event").write_text("")
    recorded.change(CONFIG, "/opt/slurm-soda/libexec/prolog", f"{tmp_path}/slurm-soda/prolog")
    state, found, _ = finding(soda("doctor", "--json"), "prolog")
    assert (state, "Python's way" in found) == ("ok", not there)


def test_slurmctld_down_is_said_once_and_the_rest_goes_on(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.say("scontrol", "ping", stdout="Slurmctld(primary) at ctl is DOWN\n", status=1)
    result = soda("doctor", "--json", status=1)
    assert finding(result, "slurmctld")[0] == "fail"
    assert finding(result, "settings")[0] == "skip"
    assert finding(result, "store")[0] == "ok"


def test_a_machine_without_slurm(soda: Bench) -> None:
    soda.commands = RecordedSlurm()
    result = soda("doctor", "--json", status=1)
    assert finding(result, "slurmctld") == (
        "fail", "No such file or directory", "start slurmctld, or run this where Slurm's commands work")  # fmt: skip
    assert finding(result, "sbatch flags")[0] == "fail"


def test_a_command_that_hangs(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.say("munge", "-n", status=None)
    assert finding(soda("doctor", "--json", status=1), "MUNGE")[1] == "munge did not answer in 15 s"


def test_munge_of_another_key(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.say("munge", "-n", stdout="MUNGE:other:")
    assert finding(soda("doctor", "--json", status=1), "MUNGE")[1] == "unmunge: Error: Invalid credential"


def test_users_without_association(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.say("squeue", "-h", "-a", "-o", "%u", stdout="alice\ncarol\n")
    state, found, remedy = finding(soda("doctor", "--json"), "associations")
    assert (state, found) == ("warn", "none for carol")
    assert "sacctmgr -i add user carol" in remedy


@pytest.mark.parametrize(
    ("uid", "level", "state"),
    [
        (0, "", "ok"),
        (SLURM_USER_ID, "", "ok"),
        (1000, "Operator\n", "ok"),
        (1000, "Administrator\n", "ok"),
        (1000, "None\n", "warn"),
    ],
)
def test_rights(soda: Bench, recorded: RecordedSlurm, uid: int, level: str, state: str) -> None:
    soda.uid = uid
    recorded.say("sacctmgr", "-n", "-P", "show", "user", "root", "format=adminlevel", stdout=level)
    assert finding(soda("doctor", "--json"), "rights")[0] == state


def test_no_store_yet(soda: Bench, recorded: RecordedSlurm) -> None:
    soda.config.write_text('[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    assert finding(soda("doctor", "--json"), "store")[0] == "warn"


def test_sodad_gone_or_failing(soda: Bench, recorded: RecordedSlurm) -> None:
    soda.cycle(error="squeue: half a reply")
    assert "half a reply" in finding(soda("doctor", "--json", status=1), "sodad")[1]
    soda.pids.clear()
    assert "not running" in finding(soda("doctor", "--json", status=1), "sodad")[1]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({}, "none ever on n1"),
        ({"n1": (NOW_S - 900, [])}, "silent on n1"),
        ({"n1": (NOW_S - 1, ["no NVML"])}, "faults on n1: no NVML"),
    ],
)
def test_agents(soda: Bench, recorded: RecordedSlurm, seen: dict[str, tuple[float, list[str]]], said: str) -> None:
    with soda.store.write() as session:
        session.delete(session.get_one(AgentHeartbeat, "n1"))
        session.flush()
        for node, (seen_s, faults) in seen.items():
            session.add(AgentHeartbeat(node=node, agent_id="a", seq=1, seen_s=seen_s, faults=faults))
    state, found, _ = finding(soda("doctor", "--json"), "agents")
    assert state == "warn"
    assert said in found


@pytest.mark.parametrize(
    ("offset_s", "state", "said"), [(1.5, "ok", "1 nodes agree to 1.5 s"), (-400.0, "fail", "n1 by -400 s")]
)
def test_clocks(soda: Bench, recorded: RecordedSlurm, offset_s: float, state: str, said: str) -> None:
    job = stored_job(7, state="RUNNING")
    soda.add(job)
    soda.add(JobRun(job_pk=job.id, restart=0, start_s=SUBMIT_S + 5))
    soda.add(NodeEvent(kind="open", job_id=7, restart=0, node="n1", at_s=SUBMIT_S + 5 + offset_s, record={}))
    found = finding(soda("doctor", "--json", status=None), "clocks")
    assert found[0] == state
    assert said in found[1]


def test_the_recorded_configuration_is_read() -> None:
    config = parse_config((REPLIES / "config-24.11.txt").read_text())
    assert (config["SlurmUser"], config["PriorityFlags"], config["KillWait"]) == ("slurm(64030)", "", "10 sec")
    assert list_config_values(config, "Prolog") == ["/opt/slurm-soda/libexec/prolog"]
    assert list_config_values(config, "ResvProlog") == []
    assert config["BOOT_TIME"].startswith("2026-")


def test_the_recorded_nodes_are_read() -> None:
    text = (REPLIES / "nodes-24.11.txt").read_text()
    assert parse_node_gres(text) == [("n1", "gpu:a100:4,cog:g0:1,cog:g1:1,cog:g2:1,cog:g3:1")]


def test_a_node_that_slurm_drained_for_a_duplicate_job_id(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.change(NODES, "State=IDLE", "State=IDLE+DRAIN")
    recorded.change(NODES, "CurrentWatts=0", "CurrentWatts=0 Reason=Duplicate jobid [root@2026-11-20T22:28:11]")
    state, found, remedy = finding(soda("doctor", "--json"), "drained nodes")
    assert (state, "drained n1 (Duplicate jobid)" in found) == ("warn", True)
    assert "State=RESUME" in remedy
    recorded.change(NODES, "Duplicate jobid", "disk broken")
    assert finding(soda("doctor", "--json"), "drained nodes")[0] == "ok", "drained by somebody for another reason"


def two_controllers(recorded: RecordedSlurm) -> None:
    config = recorded.replies[CONFIG].stdout.decode()
    line = next(line for line in config.splitlines() if line.startswith("SlurmctldHost"))
    recorded.change(CONFIG, line, "SlurmctldHost[0]        = ctl\nSlurmctldHost[1]        = 127.0.0.1")


def test_two_controllers_with_a_store_each_are_warned(soda: Bench, recorded: RecordedSlurm) -> None:
    two_controllers(recorded)
    state, found, remedy = finding(soda("doctor", "--json"), "controllers")
    assert (state, found) == ("warn", "2 controllers, and a store that only this one has")
    assert "PostgreSQL" in remedy


def test_another_sodad_with_another_store_is_found(
    soda: Bench, recorded: RecordedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_controllers(recorded)
    with soda.store.read() as session:
        own = views.status_view(session, read_view_header_of(session), cycles=0, since_s=0.0)
    monkeypatch.setattr(controllers, "status_at", lambda _site, _url: own)
    assert finding_states(soda) == ["warn"], "the same store"
    epoch = Epoch(
        id=1, host="ctl2", pid=9, version="1", started_s=1.0, heartbeat_s=1.0, state_dir="", take_over_after_s=1.0
    )
    monkeypatch.setattr(controllers, "status_at", lambda _site, _url: replace(own, head=replace(own.head, epoch=epoch)))
    states = finding_states(soda, status=1)
    assert states == ["fail", "warn"]


def finding_states(soda: Bench, status: int = 0) -> list[str]:
    document = soda("doctor", "--json", status=status).document
    return [f["state"] for f in document["findings"] if f["check"] == "controllers"]


def read_view_header_of(session: Session) -> views.ViewHeader:
    return views.view_header(queries.latest_epoch(session), {}, Settings(), daemon_alive=True)


def test_a_password_that_everybody_may_read_is_told(soda: Bench, recorded: RecordedSlurm) -> None:
    text = soda.config.read_text()
    soda.config.write_text(re.sub(r'url = "[^"]*"', 'url = "postgresql+psycopg://soda:hunter2@127.0.0.1:9/soda"', text))
    soda.config.chmod(0o644)
    result = soda("doctor", "--json", status=1)
    state, found, remedy = finding(result, "password")
    assert (state, "hunter2" in result.out) == ("fail", False)
    assert "everybody may read it" in found
    assert "chmod 600" in remedy
    soda.config.chmod(0o600)
    assert "password" not in [f["check"] for f in soda("doctor", "--json", status=1).document["findings"]]


@pytest.mark.parametrize("store", ["there", "lost"])
def test_site_factors_that_no_record_explains(soda: Bench, recorded: RecordedSlurm, tmp_path: Path, store: str) -> None:
    soda.slurm.queue = [record(7), record(8), record(9)]
    soda.slurm.factors = {7: 500, 8: 65536, 9: 0}
    soda.action(7, new={"SiteFactor": "500"})
    if store == "lost":
        soda.config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/none.db"\n')
    state, found, remedy = finding(soda("doctor", "--json", status=None), "lifts")
    assert (state, found.split(" of ")[1]) == ("warn", "8" if store == "there" else "7, 8")
    assert "sodactl release-all" in remedy
    recorded.change(CONFIG, "PrioritySiteFactorPlugin = (null)", "PrioritySiteFactorPlugin = site_factor/x")
    assert finding(soda("doctor", "--json", status=1), "lifts")[0] == "skip"
