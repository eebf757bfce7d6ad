"""Which limits of accounting bind a waiting job, or would where its owner may move it to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_soda.policies.cpu_fit.limits import Account, AccountingLimits, Association, binding_limit

FREE = AccountingLimits(
    enforced=True,
    qos_enforced=True,
    users={"alice": (Association("lab", qos=frozenset({"normal", "long"})), Association("other"))},
    accounts={"lab": Account("group"), "group": Account("root"), "root": Account(), "other": Account("root")},
    qos={"normal": "", "long": "", "mine": "", "cpu": "MaxTRESPU=cpu"},
    partition_qos=frozenset({"mine"}),
)


def said(limits: AccountingLimits, user: str = "alice", account: str = "lab", qos: str = "normal") -> str:
    return binding_limit(limits, user, account, qos)


def test_a_job_that_no_limit_can_reach() -> None:
    assert said(FREE) == ""
    assert said(replace(FREE, enforced=False, users={})) == ""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"users": {"alice": (Association("lab", "GrpTRES=cpu"),)}}, "GrpTRES=cpu of its owner's association"),
        ({"users": {"alice": (Association("lab"), Association("other", "MaxTRES=mem"))}}, "MaxTRES=mem of its owner's"),
        ({"accounts": {**FREE.accounts, "lab": Account("group", "GrpTRES=mem")}}, "GrpTRES=mem of an account"),
        ({"accounts": {**FREE.accounts, "root": Account("", "GrpTRES=mem")}}, "GrpTRES=mem of an account"),
        ({"accounts": {**FREE.accounts, "other": Account("root", "GrpTRES=mem")}}, "GrpTRES=mem of an account"),
        ({"accounts": {name: FREE.accounts[name] for name in ("lab", "other", "root")}}, "unknown"),
        ({"qos": {**FREE.qos, "normal": "MaxTRESPU=cpu"}}, "MaxTRESPU=cpu of a QOS"),
        ({"qos": {**FREE.qos, "long": "MaxTRESPU=cpu"}}, "MaxTRESPU=cpu of a QOS"),  # where she may move it to
        ({"qos": {**FREE.qos, "mine": "MinTRES=cpu"}}, "MinTRES=cpu of the QOS of a partition"),
        ({"qos": {"long": "", "mine": ""}}, "unknown"),
        ({"qos_enforced": False}, "MaxTRESPU=cpu of a QOS"),
        ({"users": {}}, "no association"),
    ],
)
def test_a_limit_that_binds_it(change: dict[str, Any], text: str) -> None:
    assert text in said(replace(FREE, **change))


GUESTS = replace(FREE, qos={**FREE.qos, "normal": "MaxTRESPU=cpu"}, qos_gpu=dict.fromkeys(FREE.qos, ""))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"users": {"alice": (Association("lab", gpu_limit="MaxTRES=gres/gpu"),)}}, "MaxTRES=gres/gpu of its owner's"),
        (
            {"accounts": {**FREE.accounts, "root": Account(gpu_limit="GrpTRES=billing")}},
            "GrpTRES=billing of an account",
        ),
        ({"qos_gpu": {**GUESTS.qos_gpu, "mine": "MinTRES=gres/gpu"}}, "MinTRES=gres/gpu of the QOS of a partition"),
        ({"qos_gpu": {}}, "an unknown limit"),
    ],
)
def test_a_limit_on_gpus_that_a_guest_would_pass(change: dict[str, Any], text: str) -> None:
    assert binding_limit(replace(GUESTS, **change), "alice", "lab", "normal", gpus=True)[: len(text) or 1] == text


def test_a_qos_that_is_not_her_own_and_accounts_in_a_circle() -> None:
    assert "MaxTRESPU=cpu" in said(FREE, qos="cpu")
    circle = {"lab": Account("group"), "group": Account("lab"), "other": Account("other")}
    assert said(replace(FREE, accounts=circle)) == ""
