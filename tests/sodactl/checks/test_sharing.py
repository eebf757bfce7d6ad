"""``sodactl doctor`` on what sharing GPUs needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.daemon.store.agent_reports import store_report
from slurm_soda.daemon.store.tables.scheduling import AgentHeartbeat
from slurm_soda.slurm_ext.client import HeldOnNode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.pools.scontrol_partitions import ScontrolPartitions, SlurmPartition
from slurm_soda.slurm_ext.read.slurm_config import parse_config
from slurm_soda.sodactl.checks import sharing
from slurm_soda.sodactl.checks.check_result import CheckResult, CommandProbe
from slurm_soda.sodactl.checks.sharing_nodes import check_node_settings
from slurm_soda.wire.hook_settings import HookSettings
from slurm_soda.wire.records import NodeReport
from tests.sodactl.checks.conftest import LUA_DIR, REPLIES, RecordedSlurm, finding
from tests.sodactl.conftest import NOW_S, Bench, record

SETTINGS = SharingSettings(partitions=["gpu"], gres="cog")
GOOD = {"AccountingStorageTRES": "cpu,gres/cog,gres/gpu", "KillWait": "10 sec", "DefMemPerCPU": "1024"}
GOOD |= {"PrologEpilogTimeout": "50"}
ASKS = ("sbatch", "--test-only", "--gres=cog:g0:1", "--wrap=true")
REFUSAL = "sbatch: error: gres/cog: only slurm-soda sends jobs to GPUs that others hold; ask for gpu\n"


def partition(name: str = "gpu", **fields: str) -> SlurmPartition:
    return SlurmPartition(name, {"Nodes": "n1", "PriorityTier": "1", **fields})


NODE = HookSettings(kill_wait_s=10)


def checked(
    config: Mapping[str, str] = {},
    gres: str = "gpu:a100:2,cog:g0:1,cog:g1:1",
    partitions: tuple[SlurmPartition, ...] = (partition(),),
    **more: Any,
) -> dict[str, CheckResult]:
    """The lines by what they are about; ``hooks`` are the settings that agents told, by node."""
    whole = parse_config((REPLIES / "config-24.11.txt").read_text()) | GOOD | dict(config)
    found = sharing.check_sharing(
        more.get("settings", SETTINGS), whole, f"NodeName=n1 Arch=x Gres={gres} State=IDLE\n",
        lambda: {one.name: one for one in partitions}, pools=more.get("pools", False), hooks=more.get("hooks", {"n1": NODE}),
    )  # fmt: skip
    return {one.check.removeprefix("sharing: "): one for one in found}


def test_a_site_that_may_share() -> None:
    lines = checked()
    assert list(lines) == [
        "Slurm", "GRES", "accounting", "devices", "prolog time limit", "device access", "partitions", "memory",
        "node settings", "prolog/epilog", "guard", "Extra",
    ]  # fmt: skip
    assert {name: one.state for name, one in lines.items()} == dict.fromkeys(lines, "ok")


OTHER = partition("high", PriorityTier="2")
PREEMPTS = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
MPS = HookSettings(10, True, ("gpu",))
WITH_MPS = SharingSettings(partitions=["gpu"], gres="cog", mps=True)
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
    ({"config": {"PrologFlags": "Alloc,Contain,RunInJob"}}, "prolog/epilog", "fail", "take it out"),
    ({"config": {"Prolog[0]": "(null)"}}, "prolog/epilog", "fail", "set Prolog="),
    ({"config": {"Epilog[0]": "(null)"}}, "prolog/epilog", "fail", "set Epilog="),
    ({"config": {"JobSubmitPlugins": "(null)"}}, "guard", "fail", "docs/site-lua.md"),
    ({"partitions": ()}, "partitions", "fail", "sharing.partitions"),
    ({"config": {"DefMemPerCPU": "UNLIMITED"}}, "memory", "warn", "DefMemPerCPU"),
    ({"partitions": (partition(JobDefaults="DefMemPerGPU=4000"),)}, "memory", "warn", "DefMemPerCPU"),
    ({"config": {"JobDefaults": "DefCpuPerGPU=4,DefMemPerGPU=2048"}}, "memory", "warn", "nobody's guest"),
    ({"config": PREEMPTS, "partitions": (partition(), OTHER)}, "preemption", "warn", "may lose their work"),
    ({"hooks": {"n1": HookSettings()}}, "node settings", "fail", "kill_wait_s=10"),
    ({"hooks": {"n1": MPS}}, "node settings", "fail", "mps = true under [sharing] in soda.toml"),
    ({"settings": WITH_MPS}, "node settings", "fail", "mps=yes and partitions=gpu on every node"),
    (
        {"settings": WITH_MPS, "hooks": {"n1": HookSettings(10, True, ("other",))}},
        "node settings",
        "fail",
        "partitions=gpu",
    ),
    (
        {"settings": WITH_MPS, "hooks": {"n1": replace(MPS, consent_by_default=True)}},
        "node settings",
        "fail",
        "in both",
    ),
    ({"hooks": {"n1": HookSettings(problem="others may write it")}}, "node settings", "fail", "chmod 644"),
    ({"hooks": {}}, "node settings", "warn", "start soda-agent there"),
    ({"partitions": (partition(Nodes="n1,n2"),)}, "node settings", "warn", "start soda-agent there"),
    ({"pools": True}, "pools", "warn", "pools revert"),
]


@pytest.mark.parametrize(("wrong", "line", "state", "remedy"), WRONG)
def test_one_thing_that_is_wrong_and_only_that(wrong: dict[str, Any], line: str, state: str, remedy: str) -> None:
    lines = checked(**wrong)
    assert {name: one.state for name, one in lines.items() if one.state != "ok"} == {line: state}
    assert remedy in lines[line].remedy


FINE: list[dict[str, Any]] = [
    {"config": {"PrologEpilogTimeout": "0"}}, {"config": {"PrologEpilogTimeout": "65534"}},
    {"config": {"DefMemPerCPU": "UNLIMITED"}, "partitions": (partition(DefMemPerCPU="4000"),)},
    {"partitions": (partition(), partition("high", JobDefaults="DefMemPerGPU=4000"))},
    {"gres": "gpu:a100:2(S:0-1),cog:g1:1,cog:g0:1"},
    {"config": PREEMPTS, "partitions": (partition(), partition("high", PriorityTier="2", Nodes="n2"))},
    {"config": PREEMPTS | {"PreemptMode": "OFF"}, "partitions": (partition(), OTHER)},
    {"settings": WITH_MPS, "hooks": {"n1": MPS, "gone": HookSettings()}},
]  # fmt: skip


@pytest.mark.parametrize("site", FINE)
def test_what_is_fine_too(site: dict[str, Any]) -> None:
    assert {one.state for one in checked(**site).values()} == {"ok"}


def test_each_thing_that_is_wrong_names_its_nodes() -> None:
    lines = check_node_settings(
        SETTINGS, GOOD, ("n3", "n2", "n1"), {"n1": NODE, "n2": HookSettings(), "n3": HookSettings(30, True, ("gpu",))}
    )
    assert [one.found.split("sharing.conf on ")[1] for one in lines] == [
        "n2, n3: kill_wait_s=30, KillWait is 10 s", "n3: mps=yes, but soda.toml does not say sharing.mps",
    ]  # fmt: skip


def test_what_agents_told_is_checked_on_the_controller(
    soda: Bench, recorded: RecordedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    soda.config.write_text(soda.config.read_text() + '[sharing]\npartitions = ["gpu"]\ngres = "cog"\n')
    with soda.store.write() as session:
        store_report(session, NodeReport("n1", "a", 1, 1.0, hooks=(HookSettings(problem="it is no file"),)), 1.0)
        store_report(session, NodeReport("n2", "a", 1, 1.0), 1.0)
    monkeypatch.setattr(ScontrolPartitions, "partitions", lambda _: {"gpu": partition(Nodes="n[1-2]")})
    found = soda("doctor", "--json", status=None).document["findings"]
    lines = {one["found"] for one in found if one["check"] == "sharing: node settings"}
    assert lines == {
        "/etc/slurm-soda/sharing.conf on n1: not used by the hooks: it is no file", "not told by the agents of n2",
    }  # fmt: skip


def test_a_slurm_that_does_not_tell_its_partitions(tmp_path: Path) -> None:
    def fails() -> dict[str, SlurmPartition]:
        raise SlurmReplyError("no answer")

    lines = sharing.check_sharing(SETTINGS, {}, "", fails, hooks={}, pools=False)
    assert [one.state for one in lines if one.check == "sharing: partitions"] == ["skip"]


def test_hooks_of_an_older_version(tmp_path: Path) -> None:
    prolog, epilog, own = tmp_path / "prolog", tmp_path / "epilog", tmp_path / "own"
    prolog.write_text("#!/bin/sh\n# slurm-soda's prolog: …\n")
    epilog.write_text("#!/bin/sh\n# slurm-soda's epilog: …\n. share-end\n")
    own.write_text("#!/bin/sh\n")
    config = {"Prolog[0]": str(prolog), "Prolog[1]": str(own), "Epilog": str(epilog)}
    lines = [
        one
        for one in sharing.check_sharing(SETTINGS, config, "", dict, hooks={}, pools=False)
        if one.check.endswith("hooks")
    ]
    assert [(one.state, one.found) for one in lines] == [("fail", f"{prolog} know no guests")]


def guard(slurm: RecordedSlurm, script: Path, uid: int, types: str = "gpu,cog") -> dict[str, CheckResult]:
    config = {"SlurmUser": "slurm(64030)", "GresTypes": types}
    lines = sharing.check_guard(CommandProbe(slurm), config, "cog", script, uid=uid)
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
    slurm.say(*ASKS, status=1, stderr="sbatch: error: Invalid generic resource (gres) specification\n")
    unknown = guard(slurm, example, 1000, "gpu")["sbatch"]
    assert (unknown.state, unknown.found) == ("skip", "Slurm does not know cog yet")


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
        ([{"fault": "", "recorded": [7, 8]}], "ok", "1 nodes"),
        ([{"fault": "", "recorded": [7]}], "fail", "n1: no prolog has recorded job 8, which began there as the last"),
        ([{"fault": "", "recorded": [7, 8], "lapse": [NOW_S - 90, 9]}], "fail", "n1: no prolog has recorded job 9"),
        ([{"fault": "", "recorded": [7, 8], "lapse": [NOW_S - 110, 9]}], "ok", "1 nodes"),
    ],
)
def test_walls_that_nodes_told_of(
    soda: Bench, recorded: RecordedSlurm, walls: list[dict[str, Any]], state: str, said: str
) -> None:
    soda.config.write_text(soda.config.read_text() + '[sharing]\npartitions = ["gpu"]\ngres = "cog"\n')
    with soda.store.write() as session:
        session.get_one(AgentHeartbeat, "n1").walls = walls
    for job_id, began_s in ((7, NOW_S - 500), (8, NOW_S - 100)):
        soda.slurm.queue.append(record(job_id, state="RUNNING", start_s=began_s, node_names="n1"))
        soda.slurm.held[job_id] = [HeldOnNode("n1", 2, 4, (2 * job_id - 14, 2 * job_id - 13))]
    found = finding(soda("doctor", "--json", status=None), "sharing: walls on nodes")
    assert found[0] == state
    assert said in found[1]
