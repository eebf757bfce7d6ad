"""Checks of what sharing GPUs needs; none is made where no partition shares. Some of it other checks see to.

Those are: one Type of ``gpu``, PrologFlags, JobRequeue, plugin and flags, prolog and epilog at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from slurm_soda.daemon.settings.sharing import SharingSettings
from slurm_soda.daemon.sharing.may_join import why_pools_exclude
from slurm_soda.daemon.sharing.node_guards import UNTOLD, NodeGuards
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.scontrol_partitions import SlurmPartition
from slurm_soda.slurm_ext.read.site_guards import list_missing_guards, lua_code
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, list_config_values, slurm_user_id
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.check_result import CheckResult, CheckState, CommandProbe
from slurm_soda.sodactl.checks.sharing_nodes import check_node_settings
from slurm_soda.sodactl.checks.slurm_conf import leading_number, parse_node_gres
from slurm_soda.wire.hook_settings import HookSettings

SPARE_S = 40
"""Beyond KillWait: what a prolog waits for a guest to go, to kill what is left, and to be put back if that does not help."""
_FIRST_RELEASE = (23, 11)
"""Slurm gives Extra to Prolog and Epilog."""
_NO_TIMEOUT = 65534
_RETURNED = re.compile(r"(?:return|=)[ \t]+soda\.modify[ \t]*\(")
_UID_GIVEN = re.compile(r"(?:return|=)[ \t]+soda\.submit[ \t]*\([^,()]+,[^,()]+,[^,()]+\)")
_REFUSES = re.compile(r"return[ \t]+slurm\.ERROR")


def check_sharing(
    settings: SharingSettings,
    config: SlurmConfig,
    nodes_text: str,
    partitions: Callable[[], Mapping[str, SlurmPartition]],
    *,
    hooks: Mapping[str, HookSettings],
    pools: bool,
) -> Iterator[CheckResult]:
    """All but the guard, by settings of Slurm, of nodes and of ours.

    ``hooks``: what agents told of their nodes; ``pools``: some are applied.
    """
    yield _release(config)
    yield from _resources(settings.gres, config, nodes_text)
    yield _time_limit(config)
    yield _devices(config)
    try:
        every = list(partitions().values())
    except SlurmError as error:
        yield _result("partitions", "skip", str(error).split("\n", 1)[0], "see slurmctld")
    else:
        sharing = [one for one in every if one.name in settings.partitions]
        yield _named(settings, sharing)
        yield _memory(config, sharing)
        yield from _tiers(config, sharing, every)
        yield from check_node_settings(settings, config, {node for one in sharing for node in one.nodes}, hooks)
    yield from _walls(config)
    missing = list(list_missing_guards(config))
    for check, good in (
        ("prolog/epilog", "in slurm.conf"),
        ("guard", "in slurm.conf"),
        ("Extra", "nobody else reads it"),
    ):
        lacks = next((one for one in missing if one.check == check), None)
        yield _result(check, "fail", lacks.found, lacks.remedy) if lacks else _result(check, "ok", good)
    if why := why_pools_exclude(settings, pools_in_force=pools):
        found, _, remedy = why.partition("; ")
        yield _result("pools", "warn", found, remedy)


def _result(what: str, state: CheckState, found: str, remedy: str = "") -> CheckResult:
    return CheckResult(f"sharing: {what}", state, found, "" if state == "ok" else remedy)


def _release(config: SlurmConfig) -> CheckResult:
    version = config.get("SLURM_VERSION", "")
    told = re.match(r"(\d+)\.(\d+)", version)
    good = told is not None and (int(told[1]), int(told[2])) >= _FIRST_RELEASE
    remedy = "share nothing, or install Slurm 23.11 or newer: an older one does not give a guest's record to its prolog"
    return _result("Slurm", "ok" if good else "fail", f"slurmctld {version or 'unknown'}", remedy)


def _resources(gres: str, config: SlurmConfig, nodes_text: str) -> Iterator[CheckResult]:
    types = config.get("GresTypes", "(null)")
    good = gres in types.split(",")
    remedy = (
        f"add {gres} to GresTypes, to gres.conf and to the nodes' Gres as docs/sharing.md does; restart slurmd on all "
        "nodes, and slurmctld after that"
    )
    yield _result("GRES", "ok" if good else "fail", f"GresTypes={types}", remedy)
    counted = config.get("AccountingStorageTRES", "(null)").split(",")
    missing = [name for name in ("gres/gpu", f"gres/{gres}") if name not in counted]
    remedy = f"add {','.join(missing)} to AccountingStorageTRES: Slurm shows what jobs hold of counted resources only"
    found = f"AccountingStorageTRES lacks {', '.join(missing)}" if missing else f"gres/gpu and gres/{gres} are counted"
    yield _result("accounting", "fail" if missing else "ok", found, remedy)
    nodes = parse_node_gres(nodes_text)
    odd = [name for name, text in nodes if not _names_each_device(text, gres)]
    shared = [name for name, text in nodes if f"{gres}:" in text]
    remedy = f"one Type for each GPU, named by its index, with its File in gres.conf: {gres}:g0:1,{gres}:g1:1,…"
    if odd:
        yield _result("devices", "fail", f"{gres} and gpu differ on {output.format_first(odd)}", remedy)
    else:
        yield _result("devices", "ok" if shared else "fail", f"{gres} names each GPU of {len(shared)} nodes", remedy)


def _names_each_device(node_gres: str, gres: str) -> bool:
    """Whether a node has one type of ``gres`` for each of its GPUs, from g0 on, or none at all."""
    gpus, types = 0, []
    for part in node_gres.split(","):
        name, *rest = part.split("(", 1)[0].split(":")
        if name == "gpu" and rest and rest[-1].isdecimal():
            gpus += int(rest[-1])
        elif name == gres:
            types.append(":".join(rest))
    return not types or sorted(types) == sorted(f"g{index}:1" for index in range(gpus))


def _time_limit(config: SlurmConfig) -> CheckResult:
    """A newcomer's prolog waits for a guest to go; slurmd must not end it before."""
    limit_s, wait_s = leading_number(config.get("PrologEpilogTimeout", "")), leading_number(config.get("KillWait", ""))
    good = limit_s in (0, _NO_TIMEOUT) or limit_s >= wait_s + SPARE_S
    found = f"PrologEpilogTimeout={limit_s}, KillWait={wait_s} s"
    remedy = f"set PrologEpilogTimeout={wait_s + SPARE_S} or more: a prolog waits until a guest has left its GPU"
    return _result("prolog time limit", "ok" if good else "fail", found, remedy)


def _devices(config: SlurmConfig) -> CheckResult:
    value = config.get("ConstrainDevices", "unknown")
    remedy = "set ConstrainDevices=yes in cgroup.conf: otherwise any program can open GPUs that its job does not hold"
    return _result("device access", "ok" if value == "yes" else "warn", f"ConstrainDevices={value}", remedy)


def _named(settings: SharingSettings, sharing: Sequence[SlurmPartition]) -> CheckResult:
    unknown = sorted(set(settings.partitions) - {one.name for one in sharing})
    found = f"Slurm has no partition {', '.join(unknown)}" if unknown else ", ".join(sorted(settings.partitions))
    remedy = "correct sharing.partitions in soda.toml, then systemctl reload sodad"
    return _result("partitions", "fail" if unknown else "ok", found, remedy)


def _memory(config: SlurmConfig, sharing: Sequence[SlurmPartition]) -> CheckResult:
    """Without a default a job that names no memory takes all of its node, and no guest fits beside it."""
    by_gpu = {
        setting.split("=")[0]
        for fields in (config, *(one.fields for one in sharing))
        for setting in fields.get("JobDefaults", "").split(",")
        if setting.startswith(("DefCpuPerGPU=", "DefMemPerGPU="))
    }
    if by_gpu:
        remedy = (
            "set DefMemPerCPU instead: these give jobs --cpus-per-gpu and --mem-per-gpu, with which a job can be nobody's "
            "guest"
        )
        return _result("memory", "warn", f"JobDefaults has {' and '.join(sorted(by_gpu))}", remedy)

    def limited(settings: Mapping[str, str]) -> bool:
        return leading_number(settings.get("DefMemPerCPU", "")) > 0

    without = [one.name for one in sharing if not limited(one.fields) and not limited(config)]
    found = f"no DefMemPerCPU for {', '.join(without)}" if without else "jobs have a default"
    remedy = (
        "set DefMemPerCPU: a job that names no memory takes all of its node's, so that no guest ever fits beside it"
    )
    return _result("memory", "warn" if without else "ok", found, remedy)


def _tiers(
    config: SlurmConfig, sharing: Sequence[SlurmPartition], every: Sequence[SlurmPartition]
) -> Iterator[CheckResult]:
    """Nothing, unless Slurm's own preemption ends guests too."""
    if config.get("PreemptType") != "preempt/partition_prio" or config.get("PreemptMode", "OFF").upper() == "OFF":
        return
    above = [
        (one.name, higher.name)
        for one in sharing
        for higher in every
        if higher.tier > one.tier and set(higher.nodes) & set(one.nodes)
    ]
    if above:
        found = f"partition {above[0][1]} preempts jobs of {above[0][0]}, guests too"
        remedy = "fine if they may lose their work; a guest frees no gpu for the job that preempts it"
        yield _result("preemption", "warn", found, remedy)


def _walls(config: SlurmConfig) -> Iterator[CheckResult]:
    """Nothing, unless a hook on this machine is of a version that lets others onto a guest's GPU."""
    paths = [path for key in ("Prolog", "Epilog") for path in list_config_values(config, key)]
    if old := [path for path in paths if _is_ours_and_old(Path(path))]:
        remedy = (
            "make install ROLE=agent on every node: older hooks let a job start beside a guest whose host has ended"
        )
        yield _result("hooks", "fail", f"{' and '.join(old)} know no guests", remedy)


def check_walls_on_nodes(guards: NodeGuards, gres: str, nodes_text: str) -> CheckResult:
    """Agents of all nodes whose GPUs can be shared say that the hooks there can keep others off them, and jobs show it."""
    walls = guards.walls
    nodes = [name for name, text in parse_node_gres(nodes_text) if f"{gres}:" in text]
    wrong = {name: walls[name].fault if name in walls else UNTOLD for name in nodes}
    told = [f"{name}: {fault}" for name, fault in wrong.items() if fault]
    remedy = "mend it there: until then sodad lets nobody join jobs of that node"
    return _result(
        "walls on nodes", "fail" if told else "ok", output.format_first(told) if told else f"{len(nodes)} nodes", remedy
    )


def _is_ours_and_old(path: Path) -> bool:
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return b"# slurm-soda's" in text and b"share" not in text


def check_guard(
    probe: CommandProbe, config: SlurmConfig, gres: str, script: Path, *, uid: int
) -> Iterator[CheckResult]:
    """job_submit.lua, as slurmctld runs it, refuses the second GRES; ``script`` is the site's file.

    A submission is tried, by ``--test-only``, which leaves no job. Changes cannot be tried without one: the text tells.
    """
    asks = ("sbatch", "--test-only", f"--gres={gres}:g0:1", "--wrap=true")
    if gres not in config.get("GresTypes", "").split(","):
        yield _result("guard of sbatch", "skip", f"Slurm does not know {gres} yet", "see sharing: GRES")
    elif uid == slurm_user_id(config) != 0:
        yield _result("guard of sbatch", "skip", "SlurmUser may ask for it", "run this as root, or as any user")
    else:
        done = probe.run(*(("runuser", "-u", "nobody", "--") if uid == 0 else ()), *asks)
        said = (done.stdout + done.stderr).decode("utf-8", "replace").strip().split("\n", 1)[0]
        remedy = "whoever asks for it would start beside somebody who did not agree: add the lines of docs/site-lua.md"
        refused = f"gres/{gres}:" in said and done.status != 0
        taken = done.status == 0 or "to start at" in said
        state: CheckState = "ok" if refused else "fail" if taken else "warn"
        yield _result(
            "guard of sbatch", state, f"nobody may ask for {gres}" if refused else said or "no answer", remedy
        )
    try:
        text = lua_code(script.read_text("utf-8", "surrogateescape"))
    except OSError as error:
        yield _result("guard of changes", "skip", f"{script}: {error.strerror}", "look on the machine of slurmctld")
        return
    answered = bool(_RETURNED.search(text)) and bool(_UID_GIVEN.search(text)) and len(_REFUSES.findall(text)) > 1
    found = f"{script} {'returns' if answered else 'does not return'} what soda.submit and soda.modify say"
    remedy = (
        f"replace slurm-soda's lines in {script} by those of docs/site-lua.md: older ones refuse no change of a job"
    )
    yield _result("guard of changes", "ok" if answered else "fail", found, remedy)
