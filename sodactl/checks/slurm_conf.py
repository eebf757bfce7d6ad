"""Checks of Slurm itself: versions, and the settings that slurm-soda depends on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from slurm_soda.slurm_ext.errors import NOT_FOUND, SEARCH_PATH
from slurm_soda.slurm_ext.read.capabilities import CommandCapabilities
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.check_result import (
    CHECK_TIMEOUT_S,
    CheckResult,
    CheckState,
    CommandProbe,
    failure_text,
)

TESTED_RELEASES = ("22.05", "24.11", "26.05")
"""Releases that slurm-soda's own tests run on."""

_NO_TIMEOUT = 65534


def check_contact(probe: CommandProbe) -> CheckResult:
    """Whether slurmctld answers at all."""
    done = probe.run("scontrol", "ping")
    said = " ".join(done.stdout.decode("utf-8", "replace").split())
    if done.status == 0 and "UP" in said.split():
        return CheckResult("slurmctld", "ok", said)
    start = "start slurmctld, or run this where Slurm's commands work"
    if done.status == NOT_FOUND:
        start = f"run this where Slurm's commands are, or link them into one of {SEARCH_PATH.replace(':', ', ')}"
    return CheckResult("slurmctld", "fail", said or failure_text(done), start)


def check_versions(probe: CommandProbe, config: SlurmConfig) -> CheckResult:
    """Client and controller are of one release, and one that is tested."""
    client = _version(probe.text("scontrol", "--version") or "")
    controller = _version(config.get("SLURM_VERSION", ""))
    found = f"client {client or 'unknown'}, slurmctld {controller or 'unknown'}"
    if client != controller:
        same = "install one release everywhere: the SPANK plugin only loads into the release it was built for"
        return CheckResult("Slurm versions", "warn", found, same)
    if client.startswith(TESTED_RELEASES):
        return CheckResult("Slurm versions", "ok", found)
    tested = [_series(release) for release in TESTED_RELEASES]
    between = min(tested) < _series(client) < max(tested)
    remedy = f"tested are {', '.join(sorted(TESTED_RELEASES))}; " + (
        "watch `sodactl status` for errors" if between else "run with mode = observe until it has shown itself"
    )
    return CheckResult("Slurm versions", "warn" if between else "fail", found, remedy)


def _series(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:2])


def check_capabilities(probe: CommandProbe, *, shares: bool) -> Iterator[CheckResult]:
    """What this Slurm's commands do not tell, and what is done instead; ``shares``: some partition shares GPUs."""
    known = list(CommandCapabilities(probe.runner, timeout_s=CHECK_TIMEOUT_S).every())
    if known and all(one.present for one in known):
        yield CheckResult("Slurm tells", "ok", ", ".join(one.name for one in known))
    for one in known:
        if not one.present and shares and one.sharing_needs_it:
            remedy = "leave `partitions` of [sharing] empty: guests on shared GPUs need it"
            yield CheckResult("Slurm tells", "fail", f"not: {one.name}", remedy)
        elif not one.present:
            yield CheckResult("Slurm tells", "warn", f"not: {one.name}; {one.otherwise}")


def _version(text: str) -> str:
    match = re.search(r"\d+\.\d+(\.\d+)?", text)
    return match[0] if match else ""


@dataclass(frozen=True, slots=True)
class SlurmConfRule:
    """One setting of slurm.conf, what it must be, and why."""

    check: str
    key: str
    good: Callable[[str], bool]
    otherwise: CheckState
    remedy: str


SLURM_CONF_RULES: Sequence[SlurmConfRule] = (
    SlurmConfRule(
        "scheduler",
        "SchedulerType",
        lambda v: v == "sched/backfill",
        "warn",
        "set SchedulerType=sched/backfill, so that small jobs may pass a large one that waits",
    ),
    SlurmConfRule(
        "reservations",
        "SchedulerParameters",
        lambda v: "bf_min_prio_reserve=1000000000" not in v.split(","),
        "warn",
        "replace bf_min_prio_reserve=1000000000 by bf_min_age_reserve=600: no job reaches that priority, so "
        "Slurm reserves nodes for nobody, and jobs on several nodes may wait for ever",
    ),
    SlurmConfRule(
        "priority",
        "PriorityType",
        lambda v: v.startswith("priority/multifactor"),
        "fail",
        "set PriorityType=priority/multifactor and restart slurmctld: without it there is no SiteFactor, so sodad "
        "can observe and advise, and changes nothing in mode enforce",
    ),
    SlurmConfRule(
        "site factor",
        "PrioritySiteFactorPlugin",
        lambda v: v in ("", "(null)"),
        "fail",
        "unset PrioritySiteFactorPlugin: it and slurm-soda would overwrite each other",
    ),
    SlurmConfRule(
        "prolog flags",
        "PrologFlags",
        lambda v: bool({"alloc", "contain", "x11"} & set(v.lower().split(","))),
        "fail",
        "set PrologFlags=Alloc: otherwise the prolog runs only at a job's first step, the epilog always",
    ),
    SlurmConfRule(
        "prolog time limit",
        "PrologEpilogTimeout",
        lambda v: 0 < leading_number(v) < _NO_TIMEOUT,
        "warn",
        "set PrologEpilogTimeout=90 or so (where GPUs are shared, KillWait and 40 s or more): by default a prolog that "
        "hangs keeps its node for ever",
    ),
    SlurmConfRule(
        "requeue",
        "JobRequeue",
        lambda v: v == "1",
        "warn",
        "set JobRequeue=1: otherwise only jobs submitted with --requeue can give way to others",
    ),
    SlurmConfRule(
        "GPU gres",
        "GresTypes",
        lambda v: "gpu" in v.split(","),
        "fail",
        "set GresTypes=gpu and give the nodes Gres=gpu:TYPE:N: slurm-soda schedules by GPUs",
    ),
    SlurmConfRule(
        "accounting",
        "AccountingStorageType",
        lambda v: v.endswith("/slurmdbd"),
        "warn",
        "set up slurmdbd: without it history has no figures of Slurm's own, and `scontrol update` fails at random",
    ),
    SlurmConfRule(
        "job accounting",
        "JobAcctGatherType",
        lambda v: v not in ("", "(null)", "jobacct_gather/none"),
        "warn",
        "set JobAcctGatherType=jobacct_gather/cgroup: otherwise sacct knows neither CPU time nor memory",
    ),
)


def check_slurm_conf(config: SlurmConfig) -> Iterator[CheckResult]:
    """Every rule over slurm.conf as slurmctld has it."""
    for rule in SLURM_CONF_RULES:
        value = config.get(rule.key, "(null)")
        good = rule.good(value)
        yield CheckResult(
            rule.check, "ok" if good else rule.otherwise, f"{rule.key}={value}", "" if good else rule.remedy
        )


def leading_number(text: str) -> int:
    """The number with which a value of slurm.conf begins, before its unit; 0 if there is none."""
    match = re.match(r"[0-9]{1,18}", text)
    return int(match[0]) if match else 0


def check_kill_wait(config: SlurmConfig, grace_s: float) -> CheckResult:
    """A job that checkpoints at SIGTERM has KillWait for it."""
    wait_s = leading_number(config.get("KillWait", ""))
    found = f"KillWait={wait_s} s, a checkpoint's default grace is {grace_s:.0f} s"
    if wait_s >= grace_s:
        return CheckResult("checkpoint time", "ok", found)
    remedy = (
        f"jobs with --soda-checkpoint=TERM get {wait_s} s to save their state; set KillWait={grace_s:.0f}, "
        "or let users name another signal, such as USR1@60"
    )
    return CheckResult("checkpoint time", "warn", found, remedy)


def check_gpu_types(nodes_text: str | None) -> CheckResult:
    """One Type for all `gpu` devices of a node; Slurm numbers the devices of several wrongly."""
    types = {name: _types(gres) for name, gres in parse_node_gres(nodes_text or "")}
    mixed = sorted(name for name, found in types.items() if len(found) > 1)
    if not any(types.values()):
        return CheckResult(
            "GPU types", "fail", "no node has a gpu", "give the nodes Gres=gpu:TYPE:N in slurm.conf and gres.conf"
        )
    if mixed:
        found = f"several Types of gpu on {', '.join(mixed[:5])}"
        return CheckResult(
            "GPU types", "fail", found, "use one Type a node in gres.conf: CUDA_VISIBLE_DEVICES is wrong otherwise"
        )
    known = sorted({kind or "untyped" for found in types.values() for kind in found})
    return CheckResult("GPU types", "ok", f"{', '.join(known)} on {sum(map(bool, types.values()))} nodes")


def check_drained_nodes(nodes_text: str | None, shared_gres: str) -> CheckResult:
    """No node is drained because slurmctld started a job on it a second time, or knew of the second GRES before it did."""
    lines = (re.match(r"NodeName=(\S+).* State=(\S+).* Reason=(.*)", line) for line in (nodes_text or "").splitlines())
    drained = [(line[1], line[3]) for line in lines if line and "DRAIN" in line[2]]
    if twice := [node for node, reason in drained if reason.startswith("Duplicate jobid")]:
        return CheckResult(
            "drained nodes",
            "warn",
            f"Slurm drained {output.format_first(twice)} (Duplicate jobid): it started a job where it still ran",
            f"{_resume(twice)}; scontrol release the jobs that Slurm held then",
        )
    if early := [node for node, reason in drained if reason.startswith(f"gres/{shared_gres} count")]:
        return CheckResult(
            "drained nodes",
            "warn",
            f"Slurm drained {output.format_first(early)} (gres/{shared_gres} count): slurmd and slurmctld read other files",
            f"restart what has not read the new files; then {_resume(early)}. The order that drains nobody: slurmd before "
            "slurmctld to add it, slurmctld before slurmd to take it out",
        )
    return CheckResult("drained nodes", "ok", f"none for a duplicate job id or gres/{shared_gres}")


def _resume(nodes: Sequence[str]) -> str:
    return f"scontrol update NodeName={','.join(nodes[:5])} State=RESUME"


def parse_node_gres(nodes_text: str) -> list[tuple[str, str]]:
    """Node name and Gres of every line of ``scontrol -o show nodes``."""
    lines = (re.search(r"NodeName=(\S+).* Gres=(\S+)", line) for line in nodes_text.splitlines())
    return [(line[1], line[2]) for line in lines if line]


def _types(gres: str) -> set[str]:
    """Types of ``gpu`` in ``gpu:a100:4(S:0-1),cog:g0:1``; empty text for an untyped one."""
    parts = [part.split("(", 1)[0].split(":") for part in gres.split(",")]
    return {part[1] if len(part) > 2 else "" for part in parts if part[0] == "gpu"}
