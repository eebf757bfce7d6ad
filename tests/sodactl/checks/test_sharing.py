"""``sodactl doctor`` on what sharing GPUs needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.config import SharingSettings
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.pools.scontrol_partitions import SlurmPartition
from slurm_soda.slurm_ext.read.slurm_config import parse_config
from slurm_soda.sodactl.checks import sharing
from slurm_soda.sodactl.checks.check_result import CheckResult, CommandProbe
from tests.sodactl.checks.conftest import LUA_DIR, REPLIES, RecordedSlurm, finding
from tests.sodactl.conftest import Bench

SETTINGS = SharingSettings(partitions=["gpu"], gres="cog")
GOOD = {"AccountingStorageTRES": "cpu,gres/cog,gres/gpu", "KillWait": "10 sec", "DefMemPerCPU": "1024"}
GOOD |= {"PrologEpilogTimeout": "50"}
ASKS = ("sbatch", "--test-only", "--gres=cog:g0:1", "--wrap=true")
REFUSAL = "sbatch: error: gres/cog: only slurm-soda sends jobs to GPUs that others hold; ask for gpu\n"


def partition(name: str = "gpu", **fields: str) -> SlurmPartition:
    return SlurmPartition(name, {"Nodes": "n1", "PriorityTier": "1", **fields})


def checked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: Mapping[str, str] = {},
    gres: str = "gpu:a100:2,cog:g0:1,cog:g1:1",
    partitions: tuple[SlurmPartition, ...] = (partition(),),
    **more: Any,
) -> dict[str, CheckResult]:
    """The lines by what they are about; ``node`` is the hooks' settings file."""
    file = tmp_path / "sharing.conf"
    file.write_text(more.get("node", "mps=no\nkill_wait_s=10\n"))
    file.chmod(more.get("mode", 0o644))
    monkeypatch.setattr(sharing, "NODE_SETTINGS", file)
    whole = parse_config((REPLIES / "config-24.11.txt").read_text()) | GOOD | dict(config)
    found = sharing.check_sharing(
        more.get("settings", SETTINGS), whole, f"NodeName=n1 Arch=x Gres={gres} State=IDLE\n",
        lambda: {one.name: one for one in partitions}, pools=more.get("pools", False),
    )  # fmt: skip
    return {one.check.removeprefix("sharing: "): one for one in found}


def test_a_site_that_may_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = checked(tmp_path, monkeypatch)
    assert list(lines) == [
        "Slurm", "GRES", "accounting", "devices", "prolog time limit", "Extra", "device access", "partitions", "memory",
        "node settings", "prolog/epilog", "guard",
    ]  # fmt: skip
    expected = {"node settings": "ok" if os.geteuid() == 0 else "fail"}  # the file must be root's
    assert {name: one.state for name, one in lines.items()} == dict.fromkeys(lines, "ok") | expected


OTHER = partition("high", PriorityTier="2")
PREEMPTS = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
WRONG: list[tuple[dict[str, Any], str, str, str]] = [
    ({"config": {"SLURM_VERSION": "23.02.7"}}, "Slurm", "fail", "23.11"),
    ({"config": {"GresTypes": "gpu"}}, "GRES", "fail", "add cog to GresTypes"),
    ({"config": {"AccountingStorageTRES": "cpu,gres/gpu"}}, "accounting", "fail", "add gres/cog to"),
    ({"gres": "gpu:a100:2,cog:g0:1"}, "devices", "fail", "one Type for each GPU"),
    ({"gres": "gpu:a100:2,cog:g0:1,cog:g2:1"}, "devices", "fail", "one Type for each GPU"),
    ({"gres": "gpu:a100:2,cog:2"}, "devices", "fail", "one Type for each GPU"),
    ({"gres": "gpu:a100:2"}, "devices", "fail", "one Type for each GPU"),
    ({"config": {"PrologEpilogTimeout": "49"}}, "prolog time limit", "fail", "PrologEpilogTimeout=50"),
    ({"config": {"SchedulerParameters": "x,extra_constraints"}}, "Extra", "fail", "take it out"),
    ({"config": {"ConstrainDevices": "no"}}, "device access", "warn", "ConstrainDevices=yes"),
    ({"config": {"Prolog[0]": "(null)"}}, "prolog/epilog", "fail", "set Prolog="),
    ({"config": {"Epilog[0]": "(null)"}}, "prolog/epilog", "fail", "set Epilog="),
    ({"config": {"JobSubmitPlugins": "(null)"}}, "guard", "fail", "docs/site-lua.md"),
    ({"partitions": ()}, "partitions", "fail", "sharing.partitions"),
    ({"config": {"DefMemPerCPU": "UNLIMITED"}}, "memory", "warn", "DefMemPerCPU"),
    ({"config": PREEMPTS, "partitions": (partition(), OTHER)}, "preemption", "warn", "may lose their work"),
    ({"node": "kill_wait_s=30\n"}, "node settings", "fail", "kill_wait_s=10"),
    ({"node": ""}, "node settings", "fail", "kill_wait_s=10"),
    ({"node": "kill_wait_s=10\nmps=yes\npartitions=other\n"}, "node settings", "fail", "partitions=gpu"),
    ({"node": "kill_wait_s=10\nmps=yes\npartitions=gpu\nconsent_by_default=yes\n"}, "node settings", "fail", "in both"),
    ({"node": "kill_wait_s=10\nmps=yes\npartitions=gpu\n"}, "node settings", "fail", "known apart"),
    ({"mode": 0o664}, "node settings", "fail", "chmod 644"),
    ({"pools": True}, "pools", "warn", "pools revert"),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="the hooks' settings must be root's")
@pytest.mark.parametrize(("wrong", "line", "state", "remedy"), WRONG)
def test_one_thing_that_is_wrong_and_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], line: str, state: str, remedy: str
) -> None:
    lines = checked(tmp_path, monkeypatch, **wrong)
    assert {name: one.state for name, one in lines.items() if one.state != "ok"} == {line: state}
    assert remedy in lines[line].remedy


FINE: list[dict[str, Any]] = [
    {"config": {"PrologEpilogTimeout": "0"}}, {"config": {"PrologEpilogTimeout": "65534"}},
    {"config": {"DefMemPerCPU": "UNLIMITED"}, "partitions": (partition(JobDefaults="DefMemPerGPU=4000"),)},
    {"gres": "gpu:a100:2(S:0-1),cog:g1:1,cog:g0:1"},
    {"config": PREEMPTS, "partitions": (partition(), partition("high", PriorityTier="2", Nodes="n2"))},
    {"config": PREEMPTS | {"PreemptMode": "OFF"}, "partitions": (partition(), OTHER)},
]  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="the hooks' settings must be root's")
@pytest.mark.parametrize("site", FINE)
def test_what_is_fine_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: dict[str, Any]) -> None:
    assert {one.state for one in checked(tmp_path, monkeypatch, **site).values()} == {"ok"}


def test_a_machine_without_the_hooks_settings(tmp_path: Path) -> None:
    for wait, state in (("10 sec", "skip"), ("30 sec", "ok")):
        (line,) = sharing.check_node_settings(SETTINGS, {"KillWait": wait}, tmp_path / "none")
        assert line.state == state


def test_a_slurm_that_does_not_tell_its_partitions(tmp_path: Path) -> None:
    def fails() -> dict[str, SlurmPartition]:
        raise SlurmReplyError("no answer")

    lines = sharing.check_sharing(SETTINGS, {}, "", fails, pools=False)
    assert [one.state for one in lines if one.check == "sharing: partitions"] == ["skip"]


def test_hooks_of_an_older_version(tmp_path: Path) -> None:
    prolog, epilog, own = tmp_path / "prolog", tmp_path / "epilog", tmp_path / "own"
    prolog.write_text("#!/bin/sh\n# slurm-soda's prolog: …\n")
    epilog.write_text("#!/bin/sh\n# slurm-soda's epilog: …\n. share-end\n")
    own.write_text("#!/bin/sh\n")
    config = {"Prolog[0]": str(prolog), "Prolog[1]": str(own), "Epilog": str(epilog)}
    lines = [
        one for one in sharing.check_sharing(SETTINGS, config, "", dict, pools=False) if one.check.endswith("hooks")
    ]
    assert [(one.state, one.found) for one in lines] == [("fail", f"{prolog} know no guests")]


def guard(slurm: RecordedSlurm, script: Path, uid: int) -> dict[str, CheckResult]:
    lines = sharing.check_guard(CommandProbe(slurm), {"SlurmUser": "slurm(64030)"}, "cog", script, uid=uid)
    return {one.check.removeprefix("sharing: guard of "): one for one in lines}


def test_the_guard_is_tried_by_who_may_not_share() -> None:
    example, slurm = LUA_DIR / "job_submit.lua", RecordedSlurm()
    slurm.say(*ASKS, status=1, stderr=REFUSAL)
    slurm.say("runuser", "-u", "nobody", "--", *ASKS, stderr="sbatch: Job 7 to start at 2026-11-23T11:36:43\n")
    assert {name: one.state for name, one in guard(slurm, example, 1000).items()} == {"sbatch": "ok", "changes": "ok"}
    assert guard(slurm, example, 0)["sbatch"].state == "fail"
    assert guard(slurm, example, 64030)["sbatch"].state == "skip"
    slurm.say(*ASKS, status=1, stderr="sbatch: error: Unable to contact slurm controller\n")
    assert guard(slurm, example, 1000)["sbatch"].state == "warn"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return soda.modify(", "soda.modify("),
        ("return soda.submit(job_desc, part_list, submit_uid)", "return soda.submit(job_desc, part_list)"),
        ('if refusal then slurm.log_user("%s", refusal) return slurm.ERROR end\n', "\n"),
        (" refusal = with_soda(job_desc, function() return soda.modify", " -- function() soda.modify"),
    ],
)  # fmt: skip
def test_a_script_that_does_not_pass_refusals_on(tmp_path: Path, old: str, new: str) -> None:
    script = tmp_path / "job_submit.lua"
    text = (LUA_DIR / "job_submit.lua").read_text()
    assert old in text
    script.write_text(text.replace(old, new, 1))
    assert guard(RecordedSlurm(), script, 1000)["changes"].state == "fail"
    assert guard(RecordedSlurm(), tmp_path / "gone", 1000)["changes"].state == "skip"


def test_no_line_where_nothing_is_shared(soda: Bench, recorded: RecordedSlurm) -> None:
    names = [one["check"] for one in soda("doctor", "--json").document["findings"]]
    assert not [name for name in names if name.startswith("sharing")]
    soda.config.write_text(soda.config.read_text() + '[sharing]\npartitions = ["gpu"]\ngres = "cog"\n')
    names = [one["check"] for one in soda("doctor", "--json", status=None).document["findings"]]
    assert {"sharing: GRES", "sharing: guard of sbatch"} <= set(names)


@pytest.mark.parametrize(
    ("walls", "state", "said"),
    [
        ([], "fail", "n1: soda-agent there does not say"),
        ([{"fault": "share-start is not whole", "recorded": []}], "fail", "n1: share-start is not whole"),
        ([{"fault": "", "recorded": [7]}], "ok", "1 nodes"),
    ],
)
def test_walls_that_nodes_told_of(
    soda: Bench, recorded: RecordedSlurm, walls: list[dict[str, Any]], state: str, said: str
) -> None:
    soda.config.write_text(soda.config.read_text() + '[sharing]\npartitions = ["gpu"]\ngres = "cog"\n')
    with soda.store.write() as session:
        session.get_one(AgentHeartbeat, "n1").walls = walls
    found = finding(soda("doctor", "--json", status=None), "sharing: walls on nodes")
    assert found[0] == state
    assert said in found[1]
