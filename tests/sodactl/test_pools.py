"""sodactl pools: what it shows, what it refuses, and that it says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.daemon.store.tables.scheduling import Job, JobRun
from slurm_soda.slurm_ext.hints.flags import Hints
from tests.slurm_ext.scontrol import QueueOfPartitions, Scontrol, detail, machine, partition
from tests.sodactl.conftest import HOSTILE, NOW_S, Bench, record, refuse_results, stored_job

NAMES = ["gpu_cpu", "gpu_small", "gpu_large", "gpu_cpu_lend", "gpu_small_lend", "gpu_large_lend"]


@pytest.fixture
def folder(soda: Bench, tmp_path: Path) -> Path:
    """The site's files; slurm.conf includes what it should."""
    include = tmp_path / "soda-pools.conf"
    include.write_text("# none\n")
    (tmp_path / "slurm.conf").write_text(f"ClusterName=x\n  Include {include} # pools\n")
    soda.config.write_text(f'state_dir = "{tmp_path}"\n[store]\nurl = "sqlite:///{tmp_path}/soda.db"\n')
    soda.slurm = QueueOfPartitions()
    soda.commands = Scontrol()
    soda.commands.config["SLURM_CONF"] = str(tmp_path / "slurm.conf")
    return tmp_path


def scontrol(soda: Bench) -> Scontrol:
    assert isinstance(soda.commands, Scontrol)
    return soda.commands


def test_plan_changes_nothing_and_shows_all(soda: Bench, folder: Path) -> None:
    document = soda("pools", "plan", "--large-nodes", "1", "--json").document
    assert document["obstacles"] == document["remarks"] == document["warnings"] == []
    assert [step["partition"] for step in document["steps"]] == NAMES
    (share,) = document["shares"]
    assert (share["cpu_cores"], share["large_nodes"], share["nodes"]) == (8, 1, ["n1", "n2"])
    text = soda("pools", "plan").out
    assert "scontrol create PartitionName=gpu_cpu Nodes=n[1-2] " in text
    assert "  PartitionName=gpu_cpu Nodes=n[1-2] " in text
    assert "8 of 28" in text
    assert scontrol(soda).sent == []
    assert {path.name for path in folder.iterdir()} >= {"slurm.conf"}
    assert not (folder / "pools.json").exists()


def test_apply_status_and_revert(soda: Bench, folder: Path) -> None:
    assert soda("pools", "status", status=3).out.startswith("no pools")
    assert "scontrol create PartitionName=gpu_small" in soda("pools", "apply").out
    assert soda("pools", "apply").out == "nothing to change\n"
    soda.slurm.queue = [
        record(1, partition="gpu_small", state="RUNNING", cpus=6),
        record(2, partition="gpu_cpu_lend"),
    ]
    document = soda("pools", "status", "--json").document
    rows = {row["name"]: row for row in document["partitions"]}
    assert (rows["gpu_small"]["running_jobs"], rows["gpu_small"]["cores_in_use"]) == (1, 6)
    assert rows["gpu_cpu_lend"]["waiting_jobs"] == 1
    assert (document["phase"], document["by"], document["divides"]) == ("applied", "root", ["gpu"])
    assert "gpu_cpu_lend" in soda("pools", "status").out

    scontrol(soda).used = {"gpu_small"}
    left = soda("pools", "revert", status=1).out
    assert "1 waiting jobs were moved" in left
    assert "jobs still run in gpu_small" in left
    assert "jobs still run in gpu_small" in soda("pools", "status", status=1).err
    scontrol(soda).used = set()
    soda("pools", "revert", "--wait")
    assert list(scontrol(soda).partitions) == ["gpu"]
    assert soda("pools", "revert").out == "nothing to change\n"


def test_a_revert_of_partitions_that_vanished_says_what_it_removed(soda: Bench, folder: Path) -> None:
    """As after a start of slurmctld whose slurm.conf no longer includes them."""
    soda("pools", "apply")
    for name in set(scontrol(soda).partitions) - {"gpu"}:
        del scontrol(soda).partitions[name]
    assert soda("pools", "revert").out == (
        "Slurm had none of the pool partitions any more; the routes and the record of the pools were removed\n"
    )
    assert not (folder / "pools.json").exists()
    document = soda("pools", "revert", "--json").document
    assert (document["steps"], document["record_removed"]) == ([], False)


def test_jobs_from_before_are_moved_where_asked_for_and_that_is_recorded(soda: Bench, folder: Path) -> None:
    small = {"partition": "gpu", "gpus": 1, "gpus_per_node": 1, "tres_per_node": "gres/gpu:1"}
    cpu = {"partition": "gpu", "gpus": 0, "gpus_per_node": 0}
    term = Hints(checkpoint_signal="TERM", checkpoint_grace_s=9)
    jobs = {
        1: (cpu, detail(), "gpu_cpu_lend"),
        2: (cpu, detail(batch=0), "gpu_cpu"),
        3: (cpu | {"requeue": False, "cpus": 9}, detail(cpus=1), "gpu"),
        4: (small, detail(), "gpu_small"),
        5: (small | {"hints": term}, detail(), "gpu_small,gpu_small_lend"),
        6: (small | {"hints": term}, detail(batch=0), "gpu_small"),
        7: (small | {"gpus": 4, "gpus_per_node": 4}, detail(), "gpu_large"),
        8: (small, detail(reservation="maint"), "gpu"),
        9: (small, detail(shared="NO"), "gpu"),  # a whole node: more than GPU jobs may hold
        10: (small | {"req_node_names": "n1"}, detail(), "gpu"),
        11: (small | {"het_job_id": 11}, detail(), "gpu"),
        12: (small | {"tres_per_node": "gres/sharedgpu:g0:1", "gpus": 1, "shared_gpus": 1}, detail(), "gpu"),
        13: (small | {"gpu_type": "h100"}, detail(), "gpu"),
        14: (small | {"partition": "other"}, "", "other"),
        15: (small | {"state": "RUNNING"}, "", "gpu"),
        16: (small, detail(features="big"), "gpu"),
        17: (small, detail(excluded="n2"), "gpu"),
        18: (small, detail(per_tres="gres/gpu:8"), "gpu"),
    }
    soda.slurm.queue = [record(job_id, **fields) for job_id, (fields, _, _) in jobs.items()]
    scontrol(soda).waiting = {job_id: told for job_id, (_, told, _) in jobs.items() if told}
    soda("pools", "apply", "--large-nodes", "1")
    assert {job.partition for job in soda.slurm.queue} == {"gpu", "other"}
    moved = soda("pools", "apply", "--large-nodes", "1", "--move-waiting", "--json").document["moved"]
    assert {job.job_id: job.partition for job in soda.slurm.queue} == {i: wanted for i, (_, _, wanted) in jobs.items()}
    assert moved == [i for i, (fields, _, wanted) in jobs.items() if wanted not in ("gpu", "other")]
    soda("undo", "--last", str(len(moved)))
    assert {job.partition for job in soda.slurm.queue} == {"gpu", "other"}


STRANDED = {"partition": "gpu_small", "gpus": 1, "gpus_per_node": 1, "tres_per_node": "gres/gpu:1", "cpus": 20}
"""It waits for 20 cores, which the small pool has until CPU jobs get more than 8."""


@pytest.mark.parametrize("argv", [["apply", "--cpu-cores", "11"], ["revert"]])
def test_a_job_that_must_leave_its_pool_is_moved_by_a_change_on_record(
    soda: Bench, folder: Path, argv: list[str]
) -> None:
    soda("pools", "apply", "--cpu-cores", "8")
    first_submit_s = NOW_S - 9000
    soda.add(stored_job(4, partition="gpu_small", submit_s=first_submit_s))
    soda.slurm.queue = [record(4, restarts=1, **STRANDED)]
    scontrol(soda).waiting = {4: detail()}
    assert soda("pools", *argv, "--json").document["moved"] == [4]
    (change,) = soda("explain", "4", "--json").document["changes"]
    assert (change["kind"], change["state"], change["new"]) == ("rewrite", "done", {"Partition": "gpu"})
    assert change["old"] == {"Partition": "gpu_small"}
    assert soda.slurm.queue[0].partition == "gpu"
    soda("undo", "--job", "4")
    assert soda.slurm.queue[0].partition == "gpu_small"


def test_a_job_that_somebody_moved_since_is_not_moved_back(soda: Bench, folder: Path) -> None:
    soda("pools", "apply", "--cpu-cores", "8")
    soda.add(stored_job(4, partition="gpu_small"))
    soda.slurm.queue = [record(4, **STRANDED)]
    scontrol(soda).waiting = {4: detail()}
    soda("pools", "revert")
    soda.slurm.queue = [record(4, partition="other")]
    assert "Partition is now other, not the gpu that it wrote" in soda("undo", "--job", "4", status=1).out


def test_a_move_whose_result_cannot_be_recorded_is_not_sent_twice(soda: Bench, folder: Path) -> None:
    soda("pools", "apply", "--cpu-cores", "8")
    refuse_results(soda)
    soda.slurm.queue = [record(4, **STRANDED)]
    scontrol(soda).waiting = {4: detail()}
    assert "what became of them is not recorded: full" in soda("pools", "revert").err
    assert [update.job_id for update in soda.slurm.sent] == [4]


def test_without_a_store_jobs_leave_their_pools_all_the_same(soda: Bench, folder: Path) -> None:
    soda("pools", "apply", "--cpu-cores", "8")
    soda.config.write_text(f'state_dir = "{folder}"\n[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    soda.slurm.queue = [record(4, **STRANDED)]
    scontrol(soda).waiting = {4: detail()}
    assert "moves of jobs are not recorded" in soda("pools", "revert").err
    assert soda.slurm.queue[0].partition == "gpu"


def test_shares_come_from_history_and_move_in_steps(soda: Bench, folder: Path) -> None:
    for number in range(30):
        job = stored_job(100 + number, state="COMPLETED", gpus=1, cpus=2, submit_s=NOW_S - 9000)
        soda.add(job)
        soda.add(JobRun(job_pk=job.id, restart=0, start_s=NOW_S - 8000, end_s=NOW_S - 1000, node_names="n1", gpus=1))
    assert soda.store.url  # the jobs are in the store that the command reads
    (share,) = soda("pools", "plan", "--json").document["shares"]
    assert (share["cpu_cores"], share["large_nodes"]) == (20, 0)
    assert "30 GPU jobs" in share["reasons"][0]
    soda("pools", "apply", "--cpu-cores", "8")
    (share,) = soda("pools", "plan", "--json").document["shares"]
    assert share["cpu_cores"] == 11
    assert "one step" in share["reasons"][0]
    assert isinstance(job, Job)


def test_without_a_store_there_are_defaults_and_a_word(soda: Bench, folder: Path) -> None:
    soda.config.write_text(f'state_dir = "{folder}"\n[store]\nurl = "sqlite:////nonexistent/soda.db"\n')
    done = soda("pools", "plan", status=0)
    assert "shares without history" in done.err
    assert "8 of 28" in done.out


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("SelectType", "select/linear", "SelectType=select/cons_tres"),
        ("PreemptType", "(null)", "PreemptType=preempt/partition_prio"),
        ("PreemptMode", "OFF", "PreemptMode=REQUEUE"),
        ("JobSubmitPlugins", "(null)", "JobSubmitPlugins=lua"),
        ("SlurmctldHost[0]", "other", "slurmctld's host (other)"),
        ("SLURM_CONF", "/nonexistent/slurm.conf", "where slurm.conf can be read"),
    ],
)
def test_what_slurm_needs_first(soda: Bench, folder: Path, key: str, value: str, words: str) -> None:
    scontrol(soda).config[key] = value
    plan = soda("pools", "plan", "--json", status=1).document
    assert [o for o in plan["obstacles"] if words in o["remedy"]]
    assert words in soda("pools", "plan", status=1).out
    refused = soda("pools", "apply", status=1)
    assert refused.err.count("\n") == 1
    assert words in refused.err
    assert scontrol(soda).sent == []


def test_without_the_line_in_slurm_conf_nothing_is_made(soda: Bench, folder: Path) -> None:
    (folder / "slurm.conf").write_text(f"#include {folder}/soda-pools.conf\ninclude elsewhere.conf\n")
    assert "fail when slurmctld restarts" in soda("pools", "apply", status=1).err
    # An include of an include will do, by a relative name too.
    (folder / "elsewhere.conf").write_text("include soda-pools.conf\n")
    soda("pools", "apply")


def test_status_warns_of_a_restart_that_would_lose_the_pools(soda: Bench, folder: Path) -> None:
    soda("pools", "apply")
    assert soda("pools", "status", "--json").document["obstacles"] == []
    include, conf = folder / "soda-pools.conf", folder / "slurm.conf"
    include.write_text("# emptied\n")
    assert "does not say what is in force" in soda("pools", "status", status=1).err
    assert "nothing to change" in soda("pools", "apply").out  # in Slurm; the file is written anew
    soda("pools", "status")
    conf.write_text("ClusterName=x\n")
    assert "fail when slurmctld restarts" in soda("pools", "status", status=1).err


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"low": partition(Nodes="n1", PriorityTier="0")}, "set PriorityTier=1 or more on low"),
        ({"gpu": partition(Nodes="n[1-2]", Default="YES", SelectTypeParameters="CR_CORE")}, None),
    ],
)
def test_other_partitions_on_the_nodes(soda: Bench, folder: Path, others: dict, words: str | None) -> None:  # type: ignore[type-arg]
    scontrol(soda).partitions |= others
    plan = soda("pools", "plan", "--json", status=None).document
    if words:
        assert words in plan["obstacles"][0]["remedy"]
    else:
        assert plan["remarks"] == ["gpu: SelectTypeParameters=CR_CORE cannot be carried over to its pools"]


CORES_ADDED = [
    ({"JobDefaults": "DefCpuPerGPU=3,DefMemPerGPU=5"}, {}, "DefCpuPerGPU"),
    ({}, {"JobDefaults": "DefCpuPerGPU=3"}, "DefCpuPerGPU"),
    ({"JobDefaults": "DefCpuPerGPU=0"}, {"JobDefaults": "DefCpuPerGPU=3"}, ""),
    ({"MaxMemPerCPU": "300"}, {}, "MaxMemPerCPU"),
    ({"MaxMemPerCPU": "UNLIMITED"}, {}, ""),
    ({}, {"MaxMemPerCPU": "300"}, "MaxMemPerCPU"),
    ({"MaxMemPerNode": "64000"}, {"MaxMemPerCPU": "300"}, ""),
]


@pytest.mark.parametrize(("base", "cluster", "check"), CORES_ADDED)
def test_cores_that_slurm_adds_after_routing_are_an_obstacle(
    soda: Bench, folder: Path, base: dict[str, str], cluster: dict[str, str], check: str
) -> None:
    scontrol(soda).partitions["gpu"] |= base
    scontrol(soda).config |= cluster
    plan = soda("pools", "plan", "--json", status=1 if check else 0).document
    assert [obstacle["check"] for obstacle in plan["obstacles"]] == ([check] if check else [])
    assert f"{check}" in soda("pools", "apply", status=1 if check else 0).err
    assert bool(scontrol(soda).sent) != bool(check)


def test_borrowers_are_below_every_partition_on_their_nodes(soda: Bench, folder: Path) -> None:
    scontrol(soda).partitions["gpu"]["PriorityTier"] = "9"
    scontrol(soda).partitions["low"] = partition(Nodes="n[2-3]", PriorityTier="4")
    steps = soda("pools", "plan", "--json").document["steps"]
    assert {step["new"]["PriorityTier"] for step in steps if step["partition"] in ("gpu_small", "gpu_large")} == {"9"}
    assert {step["new"]["PriorityTier"] for step in steps if step["partition"].startswith("gpu_cpu")} == {"3"}
    scontrol(soda).config["PreemptType"] = "(null)"
    plan = soda("pools", "plan", "--json", status=1).document
    assert "PreemptMode=OFF to low" in next(o for o in plan["obstacles"] if o["check"] == "PreemptMode")["remedy"]


def test_bound_associations_are_an_obstacle(soda: Bench, folder: Path) -> None:
    scontrol(soda).bound = "\ngpu\n"
    assert "partition=gpu" in soda("pools", "apply", status=1).err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--partition", "nosuch"], "there is no partition nosuch"),
        (["--partition", "cpu"], "has no node with GPUs"),
        (["--partition", "gpu", "--partition", "long"], "share 2 nodes"),
    ],
)
def test_partitions_that_cannot_be_divided(soda: Bench, folder: Path, argv: list[str], words: str) -> None:
    scontrol(soda).partitions |= {"cpu": partition(Nodes="c1"), "long": partition(Nodes="n[1-2]")}
    assert isinstance(soda.slurm, QueueOfPartitions)
    soda.slurm.machines.append(machine("c1", gpus=0, cpus=64, gpu_type=""))
    refused = soda("pools", "apply", *argv, status=1)
    assert refused.err.count("\n") == 1
    assert words in refused.err


def test_two_partitions_of_their_own_nodes_and_named_once(soda: Bench, folder: Path) -> None:
    scontrol(soda).partitions |= {"big": partition(Nodes="b1")}
    assert isinstance(soda.slurm, QueueOfPartitions)
    soda.slurm.machines.append(machine("b1", gpus=8, cpus=64, gpu_type="h100"))
    soda("pools", "apply", "-p", "gpu", "-p", "big")
    assert {"big_cpu", "big_small", "big_large", "big_cpu_lend", "gpu_cpu"} <= set(scontrol(soda).partitions)
    assert soda("pools", "plan", "--json").document["partitions"] == ["gpu", "big"]
    # Taken off the list, its pools go.
    soda("pools", "apply", "-p", "gpu")
    assert [name for name in scontrol(soda).partitions if name.startswith("big")] == ["big"]


def test_slurm_down_is_one_line(soda: Bench, folder: Path) -> None:
    assert isinstance(soda.slurm, QueueOfPartitions)
    soda.slurm.down = True
    assert soda("pools", "apply", status=1).err.count("\n") == 1
    assert not (folder / "pools.json").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_of_others_is_printed_safely(soda: Bench, folder: Path, name: str) -> None:
    soda("pools", "apply")
    scontrol(soda).partitions["gpu_cpu"]["AllowAccounts"] = name.replace("\n", " ").replace(" ", "_").strip("_") or "x"
    shown = soda("pools", "status", status=1).err
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_release_all_points_to_the_pools(soda: Bench, folder: Path) -> None:
    assert soda("release-all", "-n", "--json").document["warnings"] == []
    soda("pools", "apply")
    assert "sodactl pools revert" in soda("release-all", "-n", "--json").document["warnings"][0]
