"""What keeps a site from having pools: settings of Slurm that must be changed first, each with what to write."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.slurm_ext.pools.scontrol_partitions import SlurmPartition
from slurm_soda.slurm_ext.read.slurm_values import count_or_zero

_INCLUDE = re.compile(r"^\s*include\s+(\S+)\s*(?:#.*)?$", re.IGNORECASE | re.MULTILINE)
_MAX_INCLUDE_DEPTH = 5


@dataclass(frozen=True, slots=True)
class PoolObstacle:
    """One thing to fix before pools can be applied."""

    check: str
    found: str
    remedy: str


def check_settings(config: Mapping[str, str]) -> Iterator[PoolObstacle]:
    """Settings of slurm.conf that pools depend on."""
    if config.get("SelectType") not in ("select/cons_tres", "select/cons_res"):
        yield PoolObstacle(
            "SelectType",
            config.get("SelectType", ""),
            "set SelectType=select/cons_tres: MaxCPUsPerNode has no effect otherwise",
        )
    if config.get("PreemptType") != "preempt/partition_prio":
        yield PoolObstacle(
            "PreemptType",
            config.get("PreemptType", ""),
            "set PreemptType=preempt/partition_prio and restart slurmctld: so Slurm itself gives borrowed cores back",
        )
    if "REQUEUE" not in config.get("PreemptMode", "").upper().split(","):
        yield PoolObstacle(
            "PreemptMode",
            config.get("PreemptMode", ""),
            "set PreemptMode=REQUEUE and restart slurmctld: borrowers are requeued, not cancelled",
        )
    if "lua" not in config.get("JobSubmitPlugins", "").split(","):
        yield PoolObstacle(
            "JobSubmitPlugins",
            config.get("JobSubmitPlugins", ""),
            "set JobSubmitPlugins=lua with soda.lua (docs/site-lua.md): it routes jobs to pools",
        )


def check_include(config: Mapping[str, str], include_path: Path, host: str) -> Iterator[PoolObstacle]:
    """A restarted slurmctld finds the partitions; otherwise every job in them would fail then."""
    hosts = {v.partition("(")[0] for key, v in config.items() if key.startswith("SlurmctldHost")}
    short = {name.partition(".")[0] for name in hosts}
    if hosts and host.partition(".")[0] not in short:
        yield PoolObstacle(
            "host", host, f"run this on slurmctld's host ({', '.join(sorted(hosts))}), whose files it writes"
        )
        return
    conf = Path(config.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
    try:
        found = include_path.resolve() in find_included_files(conf)
    except OSError as error:
        yield PoolObstacle("include", f"{error.filename}: {error.strerror}", "run this where slurm.conf can be read")
        return
    if not found:
        yield PoolObstacle(
            "include",
            f"{conf} does not include {include_path}",
            f"put {include_path} with one comment line on every host that reads slurm.conf (here owned by SlurmUser), "
            f"add the line `include {include_path}` to slurm.conf and run scontrol reconfigure: jobs in partitions "
            "that slurm.conf lacks fail when slurmctld restarts",
        )


def check_include_content(include_path: Path, wanted: str) -> Iterator[PoolObstacle]:
    """The file says what is in force."""
    try:
        same = include_path.read_text("utf-8") == wanted
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        yield PoolObstacle(
            "include",
            f"{include_path} does not say what is in force",
            "run `sodactl pools apply`, which writes it anew, before slurmctld restarts",
        )


def find_included_files(conf: Path, depth: int = _MAX_INCLUDE_DEPTH) -> set[Path]:
    """Every file that this one includes, and these in turn.

    Raises:
        OSError: one cannot be read.
    """
    found: set[Path] = set()
    for name in _INCLUDE.findall(conf.read_text("utf-8", "replace")) if depth else ():
        file = (conf.parent / name).resolve()
        found.add(file)
        if file.exists():
            found |= find_included_files(file, depth - 1)
    return found


def check_tiers(
    bases: Sequence[SlurmPartition],
    present: Mapping[str, SlurmPartition],
    ours: Collection[str],
    config: Mapping[str, str],
) -> Iterator[PoolObstacle]:
    """Borrowers stand below everybody on their nodes, and nobody else is preempted by what pools need."""
    theirs = [record for record in present.values() if record.name not in ours]
    used = {node for base in bases for node in base.nodes}
    for record in theirs:
        if record.tier == 0 and used.intersection(record.nodes):
            yield PoolObstacle(
                "PriorityTier",
                f"{record.name} has 0",
                f"set PriorityTier=1 or more on {record.name}, so that borrowers can be below it",
            )
    if config.get("PreemptType") == "preempt/partition_prio":
        return  # which partition preempts which is already as the site wants it
    for low in theirs:
        higher = [high.name for high in theirs if high.tier > low.tier and set(high.nodes) & set(low.nodes)]
        if higher:
            yield PoolObstacle(
                "PreemptMode",
                f"with preempt/partition_prio jobs of {low.name} give way to {', '.join(higher)}",
                f"add PreemptMode=OFF to {low.name} in slurm.conf, or give both the same PriorityTier, "
                "before you set PreemptType",
            )


def check_overlaps(bases: Sequence[SlurmPartition]) -> Iterator[PoolObstacle]:
    """MaxCPUsPerNode counts each partition's jobs apart, so two bases on one node would each hold their share."""
    for at, one in enumerate(bases):
        for other in bases[at + 1 :]:
            if both := sorted(set(one.nodes) & set(other.nodes)):
                yield PoolObstacle(
                    "partitions",
                    f"{one.name} and {other.name} share {len(both)} nodes, such as {both[0]}",
                    "divide only one of them",
                )


def check_added_cores(bases: Sequence[SlurmPartition], config: Mapping[str, str]) -> Iterator[PoolObstacle]:
    """Cores that Slurm adds to a job after it was routed: its pool may not hold so many, and then sbatch is refused."""
    for base in bases:
        own = base.fields.get("JobDefaults", "")
        defaults = own if "DefCpuPerGPU" in own else config.get("JobDefaults", "")
        if (found := re.search(r"DefCpuPerGPU=([1-9]\d*)", defaults)) is not None:
            yield PoolObstacle(
                "DefCpuPerGPU",
                f"{found[1]} for jobs of {base.name}",
                f"take it off partition {base.name} or out of slurm.conf; job_submit.lua can set "
                "job_desc.cpus_per_task before it calls soda.submit",
            )
        limits = [base.fields.get(key, "") for key in ("MaxMemPerCPU", "MaxMemPerNode")]
        by_cpu = limits[0] if any(limit.isdigit() for limit in limits) else config.get("MaxMemPerCPU", "")
        if count_or_zero(by_cpu):
            yield PoolObstacle(
                "MaxMemPerCPU",
                f"{by_cpu} MiB for jobs of {base.name}",
                f"limit memory by MaxMemPerNode on partition {base.name} instead: a job that asks for more "
                "per CPU gets more CPUs after it was routed",
            )


def check_associations(bases: Sequence[SlurmPartition], bound: set[str] | None) -> Iterator[PoolObstacle]:
    """A user whose association names the base could not use its pools: sbatch would refuse."""
    for name in sorted({base.name for base in bases} & (bound or set())):
        yield PoolObstacle(
            "associations",
            f"some are bound to partition {name}",
            f"add the same associations without partition={name} (sacctmgr show associations)",
        )


def recommend_settings(config: Mapping[str, str]) -> Iterator[str]:
    """What works, but not as well as it could."""
    wait = re.match(r"[0-9]{1,9}", config.get("KillWait", ""))
    if wait and int(wait[0]) > 10:
        yield (
            f"KillWait={wait[0]}: a borrower that does not end at SIGTERM keeps its cores so many seconds longer;"
            " KillWait=10 gives them back within about 12"
        )
    exempt = config.get("PreemptExemptTime", "")
    if exempt not in ("", "NONE", "(null)", "00:00:00"):
        yield f"PreemptExemptTime={exempt}: borrowed cores are not given back earlier than that"
    if config.get("JobRequeue", "1") != "1":
        yield "JobRequeue=0: only jobs submitted with --requeue borrow"
    if "preempt_youngest_first" not in config.get("SchedulerParameters", ""):
        yield "SchedulerParameters lacks preempt_youngest_first: Slurm may requeue an old borrower and spare a young one"
