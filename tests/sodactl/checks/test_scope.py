"""``sodactl doctor`` on ``[scope]``."""

from __future__ import annotations

import pytest

from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions, SlurmPartition
from tests.sodactl.checks.conftest import RecordedSlurm, finding
from tests.sodactl.conftest import Bench


@pytest.fixture(autouse=True)
def _partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: SlurmPartition(name, {}) for name in ("small", "big")}
    monkeypatch.setattr(ScontrolPartitions, "partitions", lambda _: known)


def name_scope(soda: Bench, text: str) -> None:
    soda.config.write_text(f"{soda.config.read_text()}[scope]\n{text}\n")


def test_a_partition_that_slurm_does_not_have(soda: Bench, recorded: RecordedSlurm) -> None:
    name_scope(soda, 'partitions = ["small", "smal"]')
    state, found, remedy = finding(soda("doctor", "--json", status=1), "scope: partitions")
    assert (state, found) == ("fail", "Slurm has no partition smal: no job is in scope by that name")
    assert remedy == "correct scope.partitions in soda.toml (big, small), then systemctl reload sodad"


def test_accounts_qos_and_users_are_those_of_this_cluster(soda: Bench, recorded: RecordedSlurm) -> None:
    name_scope(soda, 'accounts = ["ml", "mll"]\nqos = ["high"]\nusers = ["alice"]')
    cluster = "cluster=soda"
    recorded.say("sacctmgr", "-n", "-P", "show", "assoc", cluster, "format=account", stdout="root\nml\nml\n")
    recorded.say("sacctmgr", "-n", "-P", "show", "qos", "format=name", stdout="normal\nhigh\n")
    recorded.say("sacctmgr", "-n", "-P", "show", "assoc", cluster, "format=user", status=1, stderr="no slurmdbd\n")
    shown = soda("doctor", "--json", status=1)
    assert finding(shown, "scope: accounts")[:2] == (
        "fail",
        "Slurm has no account mll: no job is in scope by that name",
    )
    assert finding(shown, "scope: qos")[0] == "ok"
    assert finding(shown, "scope: users") == ("skip", "no slurmdbd", "start slurmdbd")


@pytest.mark.parametrize(
    ("waiting", "state"),
    [(2, "ok"), (0, "warn")],
)
def test_how_many_jobs_are_in_scope(soda: Bench, recorded: RecordedSlurm, waiting: int, state: str) -> None:
    name_scope(soda, 'partitions = ["small"]')
    counts = {"in_scope": {"waiting": waiting, "running": 0}, "not_in_scope": {"waiting": 5, "running": 1}}
    soda.cycle(facts={"scope": counts})
    found = finding(soda("doctor", "--json"), "scope: jobs")
    assert found[:2] == (state, f"{waiting} waiting and 0 running jobs in scope, 5 and 1 only observed")


def test_a_sodad_that_was_not_told_of_the_scope(soda: Bench, recorded: RecordedSlurm) -> None:
    name_scope(soda, 'partitions = ["small"]')
    assert finding(soda("doctor", "--json"), "scope: jobs")[:2] == ("warn", "sodad's last cycle knew no scope")


def test_without_a_scope_nothing_is_said(soda: Bench, recorded: RecordedSlurm) -> None:
    assert not [f for f in soda("doctor", "--json").document["findings"] if f["check"].startswith("scope")]
