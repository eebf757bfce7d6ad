"""Limits of accounting, from what Slurm 24.11 prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from slurm_soda.policies.cpu_fit.limits import Account, AccountingLimits, Association
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.accounting_limits import AccountingLimitsReader, enforces_limits

CONFIG = "AccountingStorageEnforce = associations,limits,qos\nClusterName             = soda\n"
PARTITIONS = "PartitionName=gpu AllowQos=ALL QoS=N/A Nodes=n1\nPartitionName=cpu AllowQos=ALL QoS=part Nodes=n2\n"
QOS = "normal|||||||cpu=4||||\nfree|||||||gres/gpu=2||||\npart|||||||||||cpu=1,mem=2G\n"
ASSOCIATIONS = (
    "root|||||||||normal\nroot|root||||||||normal\nresearch||root|||||billing=100||normal\n"
    "research|alice|||cpu=0||gres/gpu=2,mem=1T|billing=100||free,normal\nresearch|bob|||||gres/gpu=2|||+free\n"
)


class Says:
    """Answers each command; ``None``: it fails."""

    def __init__(self, **replies: str | None) -> None:
        self.replies = {"config": CONFIG, "partition": PARTITIONS, "qos": QOS, "assoc": ASSOCIATIONS} | replies
        self.asked: list[str] = []

    def __call__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        name = next(word for word in argv if word in self.replies)
        self.asked.append(name)
        text = self.replies[name]
        end = env["SODA_END_MARK"]
        return CompletedCommand(tuple(argv), 0 if text is not None else 1, f"{text}{end}".encode(), b"refused")


def test_what_is_limited_on_whom() -> None:
    found = AccountingLimitsReader(Says()).read()
    assert "Prolog=(null)" in found.unguarded
    assert replace(found, unguarded="") == AccountingLimits(
        enforced=True,
        qos_enforced=True,
        users={
            "root": (Association("root", "", frozenset({"normal"})),),
            "alice": (Association("research", "GrpTRESMins=cpu", frozenset({"free", "normal"}), "MaxTRES=gres/gpu"),),
            "bob": (Association("research", "", frozenset({"free"}), "MaxTRES=gres/gpu"),),
        },
        accounts={"root": Account(), "research": Account("root", *["MaxTRESPerNode=billing"] * 2)},
        qos={"normal": "MaxTRESPU=cpu", "free": "", "part": "MinTRES=cpu"},
        qos_gpu={"normal": "", "free": "MaxTRESPU=gres/gpu", "part": ""},
        partition_qos=frozenset({"part"}),
    )


def test_a_limit_on_one_type_of_gpu_is_one_on_gpus() -> None:
    said = AccountingLimitsReader(Says(qos="typed|||||||gres/gpu:a100=2||||\nother|||||||gres/gpux=2||||\n")).read()
    assert said.qos_gpu == {"typed": "MaxTRESPU=gres/gpu:a100", "other": ""}


@pytest.mark.parametrize(
    ("words", "enforced"),
    [
        ("none", False),
        ("associations,qos", False),
        ("associations,limits", True),
        ("associations,limits,safe", True),
        ("a-word-of-later", True),
    ],
)
def test_where_limits_are_enforced(words: str, enforced: bool) -> None:
    assert enforces_limits({"AccountingStorageEnforce": words}) == enforced
    says = Says(config=CONFIG.replace("associations,limits,qos", words))
    assert AccountingLimitsReader(says).read().enforced == enforced
    assert ("assoc" in says.asked) == enforced, "slurmdbd is only asked where it matters"


@pytest.mark.parametrize(
    "reply",
    [
        {"config": "ClusterName = soda\n"},
        {"partition": "PartitionName=gpu Nodes=n1\n"},
        {"qos": "normal|cpu=4\n"},
        {"assoc": "root||||\n"},
    ],
)
def test_an_answer_of_another_form_is_no_answer(reply: dict[str, str]) -> None:
    with pytest.raises(SlurmReplyError):
        AccountingLimitsReader(Says(**reply)).read()


def test_a_slurmdbd_that_is_down() -> None:
    with pytest.raises(SlurmCommandError, match="slurmdbd"):
        AccountingLimitsReader(Says(assoc=None)).read()
