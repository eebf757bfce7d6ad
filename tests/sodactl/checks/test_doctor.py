"""``sodactl doctor`` as a whole: a site where all is well, one wrong setting, and a Slurm that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sodactl.checks.conftest import CONFIG, JSON_PROBE, SACCT_PROBE, RecordedSlurm, finding
from tests.sodactl.conftest import Bench


def test_a_good_site(soda: Bench, recorded: RecordedSlurm) -> None:
    document = soda("doctor", "--json").document
    assert set(document) == {"findings", "counts", "roll_out"}
    assert all(set(f) == {"check", "state", "found", "remedy"} for f in document["findings"])
    assert [
        (f["check"], f["state"], f["found"]) for f in document["findings"] if f["state"] not in ("ok", "skip")
    ] == []
    assert [f["check"] for f in document["findings"]] == [
        "slurmctld", "Slurm versions", "Slurm tells", "scheduler", "reservations", "priority", "site factor", "prolog flags",
        "prolog time limit", "requeue", "GPU gres", "accounting", "job accounting", "checkpoint time",
        "GPU types", "drained nodes", "plugstack.conf", "job_submit", "prolog", "epilog", "epilogctld",
        "rights", "associations", "limits", "sbatch flags", "MUNGE", "store", "sodad", "preemptions",
        "lifts", "agents", "clocks", "roll-out",
    ]  # fmt: skip
    out = soda("doctor").out
    assert "What to do" not in out
    assert "32 ok, 1 skip" in out


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


def test_slurmctld_down_is_said_once_and_the_rest_goes_on(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.say("scontrol", "ping", stdout="Slurmctld(primary) at ctl is DOWN\n", status=1)
    result = soda("doctor", "--json", status=1)
    assert finding(result, "slurmctld")[0] == "fail"
    assert finding(result, "settings")[0] == "skip"
    assert finding(result, "store")[0] == "ok"


@pytest.mark.parametrize(("script", "states"), [(True, []), (False, ["fail"])])
def test_slurmctld_that_ended_for_want_of_the_sites_script(
    soda: Bench,
    recorded: RecordedSlurm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: bool,
    states: list[str],
) -> None:
    """Told by slurm.conf, when it is too late to ask."""
    recorded.say("scontrol", "ping", stdout="Slurmctld(primary) at ctl is DOWN\n", status=1)
    (tmp_path / "slurm.conf").write_text("SlurmctldHost=other\nSlurmctldHost=ctl(10.0.0.1)\njobsubmitplugins = lua\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    if not script:
        (tmp_path / "job_submit.lua").unlink()
    findings = soda("doctor", "--json", status=1).document["findings"]
    assert [f["state"] for f in findings if f["check"] == "job_submit"] == states


def test_a_machine_without_slurm(soda: Bench) -> None:
    soda.commands = RecordedSlurm()
    result = soda("doctor", "--json", status=1)
    state, found, remedy = finding(result, "slurmctld")
    assert (state, found) == ("fail", "scontrol is not installed on this host")
    assert remedy.startswith("run this where Slurm's commands are, or link them into one of /usr/local/sbin, ")
    assert finding(result, "sbatch flags") == (
        "skip",
        "sbatch is not installed on this host",
        "look where users submit",
    )
    assert finding(result, "MUNGE")[:2] == ("fail", "munge is not installed on this host")
    assert finding(result, "MUNGE")[2].startswith("install munge, then start munged")


@pytest.mark.parametrize(
    ("version", "state"), [("22.05.8", "ok"), ("23.02.1", "warn"), ("20.11.9", "fail"), ("26.11.0", "fail")]
)
def test_a_release_outside_of_those_that_are_tested_fails(
    soda: Bench, recorded: RecordedSlurm, version: str, state: str
) -> None:
    recorded.change(CONFIG, "SLURM_VERSION           = 24.11.5", f"SLURM_VERSION           = {version}")
    recorded.say("scontrol", "--version", stdout=f"slurm-wlm {version}\n")
    found, _, remedy = finding(soda("doctor", "--json", status=1 if state == "fail" else 0), "Slurm versions")
    assert (found, bool(remedy)) == (state, state != "ok")


def test_what_an_old_slurm_does_not_tell(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.say(*JSON_PROBE, status=1, stderr="scontrol: unrecognized option '--json'\n")
    recorded.change(SACCT_PROBE, "Restarts", "Reserved")
    told = [f for f in soda("doctor", "--json").document["findings"] if f["check"] == "Slurm tells"]
    assert [f["state"] for f in told] == ["warn", "warn"]
    assert "are read from scontrol's text" in told[0]["found"]
    assert "in the order in which they were submitted" in told[1]["found"]
