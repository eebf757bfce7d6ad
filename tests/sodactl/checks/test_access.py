"""``sodactl doctor`` on rights, MUNGE and associations."""

from __future__ import annotations

import pytest

from slurm_soda.slurm_ext.read.slurm_config import parse_config
from slurm_soda.sodactl.checks.access import check_limits
from slurm_soda.sodactl.checks.check_result import CommandProbe
from tests.slurm_ext.test_accounting_limits import CONFIG, Says
from tests.sodactl.checks.conftest import SLURM_USER_ID, RecordedSlurm, finding
from tests.sodactl.conftest import Bench


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


def test_nobody_has_jobs(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.say("squeue", "-h", "-a", "-o", "%u")
    assert finding(soda("doctor", "--json"), "associations")[1].endswith(" users, nobody has jobs now")


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


@pytest.mark.parametrize(
    ("reply", "rewrites", "state", "text"),
    [
        ({"config": CONFIG.replace("limits,", "")}, True, "ok", "AccountingStorageEnforce=associations,qos"),
        ({}, False, "ok", "rewrite"),
        ({}, True, "warn", "MinTRES=cpu of QOS part, MaxTRESPerNode=billing of account research"),
        ({"qos": None}, True, "warn", "not known"),
        ({"qos": "normal|||||||||||\n", "assoc": "root|||||||||normal\n"}, True, "ok", "none on CPUs"),
    ],
)
def test_limits_that_keep_cpu_fit_from_requests(
    reply: dict[str, str | None], rewrites: bool, state: str, text: str
) -> None:
    says = Says(**reply)
    config = parse_config(says.replies["config"] or "")
    found = check_limits(CommandProbe(says), config, rewrites=rewrites)
    assert (found.state, bool(found.remedy)) == (state, state == "warn")
    assert text in found.found
