"""``sodactl doctor`` on rights, MUNGE and associations."""

from __future__ import annotations

import pytest

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
