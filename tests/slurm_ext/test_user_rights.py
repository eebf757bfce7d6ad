"""PrivateData and accounting's rights, from what Slurm 24.11 prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.user_rights import (
    PRIVATE_KINDS,
    SlurmPrivacy,
    UserRights,
    read_privacy,
    read_user_rights,
)

CONFIG = """\
MCSPlugin               = (null)
MCSParameters           = (null)
PrivateData             = {private}
SlurmUser               = slurm(64030)
"""
ALL = "accounts,events,jobs,nodes,partitions,reservations,usage,users"


class Says:
    """A command that prints this."""

    def __init__(self, stdout: str, status: int | None = 0) -> None:
        self.stdout, self.status = stdout, status
        self.argv: Sequence[str] = ()

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        self.argv = argv
        return CompletedCommand(tuple(argv), self.status, self.stdout.encode("utf-8", "surrogateescape"), b"")


@pytest.mark.parametrize(
    ("private", "expected"),
    [("none", set()), ("jobs,users", {"jobs", "users"}), (ALL, set(ALL.split(","))), ("all", PRIVATE_KINDS)],
)
def test_privacy(private: str, expected: set[str]) -> None:
    assert read_privacy(Says(CONFIG.format(private=private)), 1.0) == SlurmPrivacy(frozenset(expected), 64030)


def test_labels_of_mcs_hide_jobs_and_nodes() -> None:
    config = CONFIG.format(private="none").replace("Parameters           = (null)", "Parameters = ondemand,privatedata")
    assert read_privacy(Says(config), 1.0).private == {"jobs", "nodes"}


def test_a_reply_without_its_end_opens_nothing() -> None:
    whole = CONFIG.format(private="jobs")
    for length in range(len(whole.partition("SlurmUser")[0])):
        with pytest.raises(SlurmReplyError):
            read_privacy(Says(whole[:length]), 1.0)
    with pytest.raises(SlurmCommandError):
        read_privacy(Says(whole, status=1), 1.0)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", UserRights()),
        ("alice|None|\n", UserRights()),
        ("alice|Operator|\n", UserRights(is_operator=True)),
        ("alice|Administrator|\n", UserRights(is_operator=True)),
        ("alice|None|child1,parent1\n", UserRights(coordinated_accounts=frozenset({"child1", "parent1"}))),
        ("alice|None|lab\udcff\n", UserRights(coordinated_accounts=frozenset({"lab\udcff"}))),
        ("alicia|Administrator|lab\n", UserRights()),
        ("alice|Administrator\n", UserRights()),
    ],
)
def test_rights(said: str, expected: UserRights) -> None:
    sacctmgr = Says(said)
    assert read_user_rights(sacctmgr, "alice", 1.0) == expected
    assert "name=alice" in sacctmgr.argv


@pytest.mark.parametrize("name", ["", "a,root", "a=b", "-i", "a b", "a\nb", "'x'"])
def test_a_name_that_would_ask_for_others_has_no_rights(name: str) -> None:
    sacctmgr = Says(f"{name}|Administrator|\n")
    assert read_user_rights(sacctmgr, name, 1.0) == UserRights()
    assert not sacctmgr.argv


def test_accounting_that_does_not_answer_gives_no_rights() -> None:
    with pytest.raises(SlurmCommandError):
        read_user_rights(Says("alice|Administrator|\n", status=None), "alice", 1.0)
