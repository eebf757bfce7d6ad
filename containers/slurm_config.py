"""Slurm's configuration files for a cluster, from the templates in ``config/``. Pure text: nothing is written here."""

from __future__ import annotations

from pathlib import Path
from string import Template

from slurm_soda.containers.cluster_spec import PACKED_HOST, CgroupPlugin, ClusterSpec

TEMPLATES = Path(__file__).parent / "config"
_FIRST_PACKED_PORT = 17001

_CONTROLLER_HOOKS = """\
JobSubmitPlugins=lua
EpilogSlurmctld=/opt/slurm-soda/libexec/epilogctld
"""
_NODE_HOOKS = """\
# Alloc: the prolog runs when a job gets its nodes, not at its first step.
PrologFlags=Alloc
Prolog=/opt/slurm-soda/libexec/prolog
Epilog=/opt/slurm-soda/libexec/epilog
# Slurm's default is to wait for ever. Ours wait longest for a guest to go: kill_wait_s and 10 s, then a kill and a requeue.
PrologEpilogTimeout=90"""


_POOLS = """\
# What sodactl pools makes, so that it is there when slurmctld restarts.
include /etc/slurm/soda-pools.conf"""
_SITE_PARTITION = "PartitionName=trial Nodes=ALL MaxTime=INFINITE DefaultTime=60 State=UP"
_SITE_PLUGINS = "include /etc/slurm/plugstack.conf.d/*\n"


def slurm_config_files(spec: ClusterSpec, cgroup: CgroupPlugin) -> dict[str, str]:
    """All files of /etc/slurm by name, the same on every host.

    ``cgroup`` is what every compute host can do: with ``none`` Slurm tracks processes by parentage and limits nothing.
    """
    names = ("slurm.conf", "gres.conf", "cgroup.conf", "slurmdbd.conf", "plugstack.conf")
    values = _values(spec, cgroup)
    files = {name: _fill(name, values) for name in names if name != "gres.conf"}
    if spec.bare:
        return files | {"gres.conf": gres_conf_text(spec), "plugstack.conf": _SITE_PLUGINS}
    return files | {"gres.conf": gres_conf_text(spec), "soda-pools.conf": "# pool partitions; there are none yet\n"}


def gres_conf_text(spec: ClusterSpec) -> str:
    """GPUs under one type, as Slurm needs it, and again under ``sharedgpu`` with one type a device, for guests."""
    lines = ["# gres.conf of a slurm-soda test cluster", "AutoDetect=off"]
    if spec.gpus:
        lines.append(f"Name=gpu Type=a100 File=/dev/nvidia{_range(0, spec.gpus - 1)}")
    if not spec.bare:
        lines += [f"Name=sharedgpu Type=g{g} File=/dev/nvidia{g}" for g in range(spec.gpus)]
    return "\n".join(lines) + "\n"


def _fill(name: str, values: dict[str, str]) -> str:
    return Template((TEMPLATES / name).read_text()).substitute(values)


def _values(spec: ClusterSpec, cgroup: CgroupPlugin) -> dict[str, str]:
    limited = cgroup != "none"
    if spec.packed:
        # Ten thousand pending jobs: backfill must not spend the controller's one core every second.
        scheduler = "bf_interval=10,bf_resolution=60,bf_max_job_test=1000,bf_continue,preempt_youngest_first"
        gather = "jobacct_gather/linux"
    else:
        scheduler = (
            "bf_interval=1,bf_resolution=1,bf_max_job_test=1000,bf_continue,batch_sched_delay=1,sched_interval=5,"
            "preempt_youngest_first"
        )
        gather = "jobacct_gather/cgroup" if limited else "jobacct_gather/linux"
    return {
        "controllers": "\n".join(f"SlurmctldHost={host}" for host in spec.controllers),
        "nodes": _nodes(spec),
        "scheduler_parameters": scheduler,
        "def_mem_per_cpu_mib": str(max(1, min(1024, spec.memory_mib // spec.cpus))),
        "proctrack_type": "proctrack/cgroup" if limited else "proctrack/linuxproc",
        "task_plugin": _task_plugin(spec, limited),
        "job_acct_gather_type": gather,
        "job_acct_gather_s": "30" if spec.packed else "2",
        "hooks": _hooks(spec),
        "more_partitions": _SITE_PARTITION if spec.bare else _POOLS,
        "gres_types": "gpu" if spec.bare else "gpu,sharedgpu",
        "accounted_gres": "gres/gpu" if spec.bare else "gres/gpu,gres/sharedgpu",
        "cgroup_plugin": _cgroup_plugin(spec, cgroup),
        "cgroup_options": _cgroup_options(cgroup),
    }


def _hooks(spec: ClusterSpec) -> str:
    if spec.bare:
        return ""
    # Nodes that share a container would share the hooks' one spool too; what is tested there is the controller.
    return _CONTROLLER_HOOKS if spec.packed else f"{_CONTROLLER_HOOKS}{_NODE_HOOKS}"


def _cgroup_plugin(spec: ClusterSpec, cgroup: CgroupPlugin) -> str:
    if cgroup != "none":
        return f"cgroup/{cgroup}"
    # 22.05 knows no word for none; where nothing asks for cgroups, it does not load the one that is named.
    return "cgroup/v1" if spec.slurm == "22.05" else "disabled"


def _task_plugin(spec: ClusterSpec, limited: bool) -> str:
    if spec.packed:
        return "task/none"
    return "task/cgroup,task/affinity" if limited else "task/affinity"


def _cgroup_options(cgroup: CgroupPlugin) -> str:
    if cgroup == "none":
        return ""
    lines = ["ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainDevices=yes"]
    if cgroup == "v2":
        # No systemd runs in the containers: slurmd makes its own tree and hands the controllers down itself.
        lines += ["IgnoreSystemd=yes", "EnableControllers=yes"]
    return "\n".join(lines)


def _nodes(spec: ClusterSpec) -> str:
    gres = [f"gpu:a100:{spec.gpus}"]
    if not spec.bare:
        gres += [f"sharedgpu:g{g}:1" for g in range(spec.gpus)]
    size = (
        f"CPUs={spec.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={spec.cpus} ThreadsPerCore=1"
        f" RealMemory={spec.memory_mib}" + (f" Gres={','.join(gres)}" if spec.gpus else "")
    )
    names = f"n{_range(1, spec.nodes)}"
    if not spec.packed:
        return f"NodeName={names} {size}"
    ports = _range(_FIRST_PACKED_PORT, _FIRST_PACKED_PORT + spec.nodes - 1)
    return f"NodeName={names} NodeHostname={PACKED_HOST} Port={ports} {size}"


def _range(first: int, last: int) -> str:
    """Slurm's bracket form: ``[1-4]``, or the bare number where there is one only."""
    return str(first) if first == last else f"[{first}-{last}]"
