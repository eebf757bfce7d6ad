"""``sodactl doctor`` on where slurm-soda is hooked into Slurm: plugin stack, job_submit, prolog."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_soda.sodactl.checks import slurm_hooks
from tests.sodactl.checks.conftest import CONFIG, GOOD_LUA, LUA_DIR, NODES, RecordedSlurm, finding
from tests.sodactl.conftest import Bench

CHECKOUT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "state", "said"),
    [
        ("required /x/soda_spank.so", "fail", "would stop slurmd and sbatch"),
        ("optional /nonexistent/soda_spank.so", "fail", "install slurm-soda's plugin"),
        ("include plugstack.conf.d/*", "warn", "put `optional /opt/slurm-soda/lib/soda_spank.so` into it"),
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
    ("pattern", "state"), [("{}/plugstack.conf.d/*", "fail"), ("plugstack.conf.d/*.conf", "fail"), ("*", "warn")]
)
def test_included_files_are_of_the_plugin_stack(
    soda: Bench, recorded: RecordedSlurm, tmp_path: Path, pattern: str, state: str
) -> None:
    """By a link too, as packages have it; a file that includes itself ends nothing."""
    folder = tmp_path / "plugstack.conf.d"
    folder.mkdir()
    (tmp_path / "drop-in").write_text("required /x/soda_spank.so\n")
    (folder / "soda.conf").symlink_to(tmp_path / "drop-in" if state == "fail" else "/nonexistent")
    (tmp_path / "plugstack.conf").write_text(f"include {pattern.format(tmp_path)}\n")
    if state == "warn":
        (tmp_path / "drop-in").unlink()
    assert finding(soda("doctor", "--json", status=None), "plugstack.conf")[0] == state


def test_the_plugin_stack_of_a_site_that_names_none(soda: Bench, recorded: RecordedSlurm, tmp_path: Path) -> None:
    """Slurm then reads the file beside slurm.conf."""
    recorded.change(CONFIG, f"PlugStackConfig         = {tmp_path}/plugstack.conf", "PlugStackConfig         = (null)")
    (tmp_path / "plugstack.conf").write_text("required /x/soda_spank.so")
    assert finding(soda("doctor", "--json", status=1), "plugstack.conf")[:2] == ("fail", "soda_spank.so is required")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("return slurm.SUCCESS", "fail"),
        (GOOD_LUA, "ok"),
        (f"  -- {GOOD_LUA}", "fail"),
        (f"-- until May: '/nowhere/soda.lua'\n{GOOD_LUA}", "ok"),
        (f"{GOOD_LUA}if soda_found then soda.submit(job_desc, part_list) end\n", "warn"),
        (f"{GOOD_LUA}pcall(function() soda.submit(job_desc, part_list) end)\n", "ok"),
        ((LUA_DIR / "job_submit.lua").read_text().replace("/opt/slurm-soda/lib", str(LUA_DIR)), "ok"),
    ],
)
def test_the_lua_module(soda: Bench, recorded: RecordedSlurm, tmp_path: Path, text: str, state: str) -> None:
    (tmp_path / "job_submit.lua").write_text(text)
    assert finding(soda("doctor", "--json", status=None), "job_submit")[0] == state


@pytest.mark.parametrize(
    ("host", "state"), [("ctl", "fail"), ("ctl(10.0.0.1)", "fail"), ("ctl.example.org", "fail"), ("another", "skip")]
)
def test_slurmctld_does_not_start_without_the_sites_script(
    soda: Bench, recorded: RecordedSlurm, tmp_path: Path, host: str, state: str
) -> None:
    """Read only on slurmctld's hosts: commands run on one that is called ctl."""
    recorded.change(CONFIG, "SlurmctldHost[0]        = ctl", f"SlurmctldHost[0]        = {host}")
    (tmp_path / "job_submit.lua").unlink()
    found, said, remedy = finding(soda("doctor", "--json", status=None), "job_submit")
    assert (found, f"{tmp_path}/job_submit.lua: No such file" in said) == (state, True)
    wanted = "slurmctld will not start: copy slurm_ext/lua/job_submit.lua" if state == "fail" else "look on the machine"
    assert wanted in remedy


@pytest.mark.parametrize("empty", [True, False])
def test_a_part_of_the_lua_module_that_is_missing(
    soda: Bench, recorded: RecordedSlurm, tmp_path: Path, empty: bool
) -> None:
    (tmp_path / "job_submit.lua").write_text(f"local found, soda = pcall(dofile, '{tmp_path}/soda.lua')\n")
    for name in ("soda.lua", "soda_hints.lua", "soda_guests.lua"):
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
                slurm_hooks.check_job_submit(config, "ctl"),
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


@dataclass(frozen=True)
class Hooks:
    """An installation of our own prolog, and a directory of hooks that slurm.conf names."""

    prefix: Path
    folder: Path

    def has(self, *names: str) -> None:
        for name in names:
            (self.prefix / name).parent.mkdir(parents=True, exist_ok=True)
            (self.prefix / name).touch()


@pytest.fixture
def hooks(recorded: RecordedSlurm, tmp_path: Path) -> Hooks:
    made = Hooks(tmp_path / "prefix", tmp_path / "prolog.d")
    made.folder.mkdir()
    (made.prefix / "libexec").mkdir(parents=True)
    shutil.copy(CHECKOUT / "prolog" / "prolog", made.prefix / "libexec")
    recorded.change(CONFIG, "/opt/slurm-soda/libexec/prolog", f"{made.folder}/*")
    return made


@pytest.mark.parametrize("there", [True, False])
def test_a_prolog_without_the_program_beside_it_is_slower(
    soda: Bench, recorded: RecordedSlurm, hooks: Hooks, there: bool
) -> None:
    hooks.has(slurm_hooks.HOOK_PYTHON, *(["libexec/soda-deliver-event"] if there else []))
    recorded.change(CONFIG, f"{hooks.folder}/*", f"{hooks.prefix}/libexec/prolog")
    state, found, _ = finding(soda("doctor", "--json", status=None), "prolog")
    assert (state, "Python's way" in found) == ("ok", not there)


@pytest.mark.parametrize("reason", ["Prolog error", "Unable to create list of paths"])
@pytest.mark.parametrize(("prolog", "state"), [("/opt/slurm-soda/libexec/prolog", "fail"), ("/site/prolog", "")])
def test_nodes_that_slurm_drained_for_the_prolog(
    soda: Bench, recorded: RecordedSlurm, prolog: str, state: str, reason: str
) -> None:
    recorded.change(CONFIG, "/opt/slurm-soda/libexec/prolog", prolog)
    recorded.change(NODES, "State=IDLE", "State=IDLE+DRAIN")
    recorded.change(NODES, "CurrentWatts=0", f"CurrentWatts=0 Reason={reason} [root@2026-11-20T22:28:11]")
    findings = soda("doctor", "--json", status=1 if state else 0).document["findings"]
    found = [f for f in findings if f["check"] == "prolog on nodes"]
    assert [f["state"] for f in found] == ([state] if state else [])
    for fault in found:
        assert fault["found"].startswith("Slurm drained n1 (")
        for command in ("make install ROLE=agent", "scontrol update nodename=n1 state=resume", "scontrol release JOB"):
            assert command in fault["remedy"]


@pytest.mark.parametrize(
    ("state", "prolog", "found"),
    [
        ("IDLE", "/opt/slurm-soda/libexec/prolog", ["fail"]),
        ("IDLE", "/site/prolog", []),
        ("DOWN+NOT_RESPONDING", "/opt/slurm-soda/libexec/prolog", []),
        ("IDLE+CLOUD+POWERED_DOWN", "/opt/slurm-soda/libexec/prolog", []),
    ],
)
def test_a_node_where_no_agent_was_ever_and_our_prolog_is_to_run(
    soda: Bench, recorded: RecordedSlurm, state: str, prolog: str, found: list[str]
) -> None:
    """Any node, not only those with GPUs: every job runs the prolog."""
    recorded.change(CONFIG, "/opt/slurm-soda/libexec/prolog", prolog)
    nodes = recorded.replies[NODES].stdout.decode()
    cpu_node = f"NodeName=c1 Arch=x86_64 Gres=(null) NodeAddr=c1 State={state} ThreadsPerCore=1\n"
    recorded.say(*NODES, stdout=nodes + cpu_node)
    findings = soda("doctor", "--json", status=None).document["findings"]
    missing = [f for f in findings if f["check"] == "prolog on nodes"]
    assert [f["state"] for f in missing] == found
    assert all("c1" in f["found"] and "n1" not in f["found"] for f in missing)
    assert all("test -x /opt/slurm-soda/libexec/prolog" in f["remedy"] for f in missing)


@pytest.mark.parametrize("missing", [True, False])
def test_a_link_to_our_prolog_needs_the_program_beside_the_file(
    soda: Bench, recorded: RecordedSlurm, hooks: Hooks, missing: bool
) -> None:
    (hooks.folder / "50-site").symlink_to(hooks.prefix / "libexec" / "prolog")
    if not missing:
        hooks.has("libexec/soda-deliver-event")
    state, found, remedy = finding(soda("doctor", "--json", status=None), "prolog")
    assert state == ("fail" if missing else "ok")
    assert ("jobs leave no record" in found, "make install" in remedy) == (missing, missing)


def test_a_copy_of_our_prolog_finds_nothing(soda: Bench, recorded: RecordedSlurm, hooks: Hooks) -> None:
    hooks.has("libexec/soda-deliver-event", slurm_hooks.HOOK_PYTHON)
    shutil.copy(hooks.prefix / "libexec" / "prolog", hooks.folder / "50-soda")
    state, found, remedy = finding(soda("doctor", "--json", status=None), "prolog")
    assert (state, f"{hooks.folder}/50-soda finds neither" in found, "do not copy it" in remedy) == ("fail", True, True)


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ("", None),
        ("slurm-soda", "slurm-soda: users may not enter it; chmod -R go+rX "),
        ("slurm-soda/lib/soda.lua", "soda.lua: users may not read it; chmod -R go+rX "),
        ("slurm-soda/lib/slurm-soda/environment.1", "environment.1: users may not enter it; chmod -R go+rX "),
        ("", "site: users may not enter it; chmod go+x "),
    ],
)
def test_an_installation_that_only_root_can_enter(
    soda: Bench, recorded: RecordedSlurm, public: Path, monkeypatch: pytest.MonkeyPatch, closed: str, said: str | None
) -> None:
    """As root with umask 077 makes it: root finds nothing wrong, and nobody else finds anything."""
    site = public / "site"
    environment = site / "slurm-soda" / "lib" / "slurm-soda" / "environment.1"
    environment.mkdir(parents=True)
    for file in ("soda_spank.so", "soda.lua"):
        (site / "slurm-soda" / "lib" / file).touch()
    for path in (site, *site.rglob("*")):
        path.chmod(0o755)
    monkeypatch.setattr("sys.prefix", str(environment))
    if said:
        (site / closed).chmod(0o700)
    findings = soda("doctor", "--json", status=1 if said else 0).document["findings"]
    found = [f"{f['found']}; {f['remedy']}" for f in findings if f["check"] == "installation" and f["state"] == "fail"]
    assert len(found) == (1 if said else 0)
    assert all(said in line for line in found if said)
