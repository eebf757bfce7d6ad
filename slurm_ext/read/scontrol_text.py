"""``scontrol show job`` as text, for versions of Slurm that do not write JSON (before 23.02).

A job's name, command, directory and comment stand among the fields as they are, line breaks included. They can add a field,
but cannot take one away, so a field that is there twice, or nodes that are not those of the job, give that job away: it is
not read. What stands between two jobs is a mark that nobody can know before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from slurm_soda.slurm_ext.client import Allocation, HeldOnNode
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.exclusive_nodes import parse_exclusive
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.job_request import JobRequest
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming
from slurm_soda.slurm_ext.read.slurm_values import (
    MAX_COUNT,
    memory_mib,
    parse_gpu_indices,
    parse_gpu_request,
    scaled_count,
    task_count,
    text_or_empty,
)

SHOW_JOBS_AS_TEXT = ("scontrol", "--details")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_HELD = re.compile(r"^ +Nodes=(\S+) CPU_IDs=([0-9,-]+) Mem=[0-9]+ GRES=(.*)$")
_FIELD = re.compile(r"(?<!\S)([A-Za-z][A-Za-z0-9/:_]*)=(\S*)")
_NO_RECORD_OF_GUESTS = "a Slurm that keeps no record of guests"


def show_job_as_text(job_id: int) -> tuple[str, ...]:
    """The command for one job."""
    return ("scontrol", "show", "job", str(job_id))


def show_jobs_as_text_script(job_ids: Sequence[int], nonce: str) -> bytes:
    """Standard input for :data:`SHOW_JOBS_AS_TEXT`; ``nonce`` comes back on a line of its own after each job."""
    return "".join(f"show job {job_id}\nshow hostnames {nonce}\n" for job_id in job_ids).encode("ascii")


def parse_allocations_from_text(
    stdout: bytes, job_ids: Sequence[int], nonce: str
) -> dict[int, Allocation | SlurmReplyError]:
    """What each job holds, in the order of its nodes, or why that cannot be read."""
    parts = f"\n{stdout.decode('utf-8', 'surrogateescape')}".split(f"\n{nonce}\n")[:-1]
    missing = "scontrol does not tell what job {} holds, or cuts it short; is it running?"
    found: dict[int, Allocation | SlurmReplyError] = {}
    for at, job_id in enumerate(job_ids):
        if at >= len(parts):
            found[job_id] = SlurmReplyError(missing.format(job_id))
            continue
        try:
            found[job_id] = _allocation(parts[at], job_id)
        except SlurmReplyError as error:
            found[job_id] = error
    return found


def parse_request_from_text(stdout: bytes, framing: ReplyFraming, job_id: int) -> JobRequest:
    """One waiting job's request; ``framing`` says how the reply ends.

    Raises:
        SlurmReplyError: the reply is cut short or of another form, or something of the job's owner's looks like a field.
    """
    what = f"scontrol's picture of job {job_id}"
    fields = _fields(framing.body(stdout, what), what, job_id)
    least, _, most = fields["NumNodes"].partition("-")
    least_nodes = scaled_count(least, f"nodes of {what}")
    memory_per_cpu = fields.get("MinMemoryCPU", "")
    nodes = parse_exclusive(fields["OverSubscribe"], "", f"job {job_id}")
    return JobRequest(
        job_id=job_id,
        nodes=max(least_nodes, 1),
        most_nodes=scaled_count(most, f"nodes of {what}") if most else 0,
        tasks=task_count(fields["NumTasks"].partition("-")[0], what),
        tasks_per_node=_unset_or_count(fields["NtasksPerN:B:S:C"].partition(":")[0], what),
        cpus=scaled_count(fields["NumCPUs"].partition("-")[0], f"CPUs of {what}"),
        cpus_per_task=max(_unset_or_count(fields["CPUs/Task"], what), 1),
        least_cpus_per_node=max(_unset_or_count(fields["MinCPUsNode"], what), 1),
        memory_per_cpu_mib=memory_mib(memory_per_cpu, what) if memory_per_cpu else 0,
        memory_per_node_mib=memory_mib(fields["MinMemoryNode"], what) if "MinMemoryNode" in fields else 0,
        peculiar=_reason_cpus_fixed(fields, nodes.keeps_off),
        unshareable=_NO_RECORD_OF_GUESTS,
    )


_ALWAYS = (
    "JobId", "NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "ReqB:S:C:T", "NtasksPerN:B:S:C", "CoreSpec", "MinCPUsNode",
    "OverSubscribe", "Contiguous", "BatchFlag", "NodeList",
)  # fmt: skip
_SOMETIMES = ("HetJobId", "CpusPerTres", "MinMemoryCPU", "MinMemoryNode")


def _fields(text: str, what: str, job_id: int) -> Mapping[str, str]:
    """Those fields of one job that are read here.

    Raises:
        SlurmReplyError: one is missing or there twice.
    """
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(text):
        if name not in _ALWAYS and name not in _SOMETIMES:
            continue
        if name in found:
            raise SlurmReplyError(
                f"{what} has {name} twice: its name, command, directory or comment looks like a field, so the job is left"
                f" as it is; rename it"
            )
        found[name] = value
    lacking = [name for name in _ALWAYS if name not in found]
    if lacking or found["JobId"] != str(job_id):
        raise SlurmReplyError(f"{what} lacks {', '.join(lacking) or f'JobId={job_id}'}; does Slurm still list it?")
    return found


def _allocation(text: str, job_id: int) -> Allocation:
    what = f"scontrol's picture of job {job_id}"
    names = expand_hosts(text_or_empty(_fields(text, what, job_id)["NodeList"]))
    held: dict[str, HeldOnNode] = {}
    for line in text.splitlines():
        match = _HELD.match(line)
        for name in expand_hosts(match[1]) if match else ():
            if match is None or name in held:
                raise SlurmReplyError(f"{what} has node {name} twice; what the job holds there is not known")
            gres = text_or_empty(match[3])
            held[name] = HeldOnNode(
                name, parse_gpu_request(gres)[0], _cpus(match[2], what), parse_gpu_indices(gres), ()
            )
    if not names or set(names) != set(held):
        raise SlurmReplyError(f"{what} does not tell what it holds on its nodes; is it running?")
    return [held[name] for name in names]


def _cpus(ids: str, what: str) -> int:
    """How many ids there are in ``0-3,8``."""
    count = 0
    for part in ids.split(","):
        if not (match := _RANGE.fullmatch(part)):
            raise SlurmReplyError(f"{what} holds CPUs {ids[:60]!r}, which is no list of numbers")
        count += int(match[2] or match[1]) - int(match[1]) + 1
    if not 0 < count <= MAX_COUNT:
        raise SlurmReplyError(f"{what} holds {count} CPUs")
    return count


def _unset_or_count(text: str, what: str) -> int:
    return 0 if text in ("*", "N/A", "") else scaled_count(text, what)


def _reason_cpus_fixed(fields: Mapping[str, str], exclusive: bool) -> str:
    """The first thing in a request that ties its CPUs to something else."""
    boards, _, layout = fields["ReqB:S:C:T"].partition(":")
    _, _, per_socket_and_core = fields["NtasksPerN:B:S:C"].partition(":")
    checks = (
        (fields.get("HetJobId", "0") != "0", "a heterogeneous job"),
        (fields["BatchFlag"] == "0", "a job of salloc or srun"),
        (exclusive, "--exclusive"),
        ("CpusPerTres" in fields, "--cpus-per-gpu"),
        (boards != "0" or layout != "0:*:*", "--sockets-per-node, --cores-per-socket or --threads-per-core"),
        (per_socket_and_core != "0:*:*", "tasks bound to sockets or cores"),
        (fields["CoreSpec"] not in ("*", "0", "N/A"), "--core-spec"),
        (fields["Contiguous"] != "0", "--contiguous"),
    )
    return next((text for found, text in checks if found), "")
