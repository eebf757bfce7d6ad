"""What squeue tells of waiting jobs beyond their :class:`SlurmJob`, as far as it matters where they may run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner, CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.asking import failure
from slurm_soda.slurm_ext.read.exclusive_nodes import EXCLUSIVE_FIELDS, parse_exclusive
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, random_nonce, with_end_mark
from slurm_soda.slurm_ext.read.slurm_values import count_or_zero, parse_integer, scaled_count, text_or_empty

_FIELDS = (
    "JobID", "BatchFlag", *EXCLUSIVE_FIELDS, "MinCpus", "Reservation", "MaxNodes", "Feature", "ExcNodes", "cpus-per-tres",
)  # fmt: skip
_WIDTHS = {"Feature": 100, "ExcNodes": 200}
"""Bytes of a user's own text, cut and padded by squeue, which prints it for each task of an array. A value that fills its
width may be cut."""
_NO_EXCLUDED_NODES = b"ExcNodes"
"""In the errors of a squeue that does not know the field (before 24.05); it says so and leaves it empty."""
_EXCLUDED_LETTERS = ("%A", "%x")
"""Job id and excluded nodes in the older format, which every version knows."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """One waiting job."""

    job_id: int
    batch: bool
    """Submitted with sbatch: Slurm can requeue it."""
    whole_nodes: bool
    """``--exclusive``: it gets all cores of its nodes."""
    least_cpus_per_node: int
    reservation: str = ""
    most_nodes: int = 0
    """As the user said, else on how many squeue thinks it would be at least; 0: squeue does not say."""
    features: str = ""
    """``--constraint``."""
    excluded_nodes: str = ""
    """``--exclude``, as a host list."""
    cpus_per_tres: str = ""
    """``--cpus-per-gpu``, such as ``gres/gpu:8``."""
    cut: bool = False
    """Features or excluded nodes are so long that squeue may not have told all of them."""


def read_waiting_jobs(
    runner: CommandRunner, partitions: Collection[str] | None, timeout_s: float
) -> dict[int, WaitingJob]:
    """Waiting jobs that list any of these partitions, by id; of an array the tasks that still wait as one.

    ``partitions`` are ``None`` for all.

    Raises:
        SlurmCommandError: squeue failed or did not answer in time.
        SlurmReplyError: its answer cannot be read.
    """
    argv = ["squeue", "--noheader", "--all", "--array", "--states=PENDING"]
    if partitions is not None:
        argv.append(f"--partition={','.join(partitions)}")
    framing = ReplyFraming(random_nonce())
    said = _ask(runner, argv, framing, framing.squeue_env(_FIELDS, _WIDTHS), timeout_s)
    found = parse_waiting(said.stdout, framing)
    if found and _NO_EXCLUDED_NODES in said.stderr:
        said = _ask(runner, argv, framing, framing.squeue_letters_env(_EXCLUDED_LETTERS), timeout_s)
        found |= {job.job_id: job for job in _with_excluded(found, said.stdout, framing)}
    return found


def _ask(
    runner: CommandRunner, argv: Sequence[str], framing: ReplyFraming, form: Mapping[str, str], timeout_s: float
) -> CompletedCommand:
    env = {**SLURM_ENVIRONMENT, **framing.env, **form}
    said = runner(with_end_mark(argv), stdin=b"", timeout_s=timeout_s, env=env)
    if said.status != 0:
        raise failure(tuple(argv), said)
    return said


def _with_excluded(jobs: Mapping[int, WaitingJob], stdout: bytes, framing: ReplyFraming) -> Iterator[WaitingJob]:
    """Those of the jobs that exclude nodes, with these; jobs that came after the first reply are left out."""
    for job_id, excluded in framing.records(stdout, len(_EXCLUDED_LETTERS), "squeue's list of excluded nodes"):
        job, names = jobs.get(parse_integer(job_id, "job id")), text_or_empty(excluded)
        if job is not None and names:
            yield replace(job, excluded_nodes=names)


def parse_waiting(stdout: bytes, framing: ReplyFraming) -> dict[int, WaitingJob]:
    """The jobs of a reply. One that this version cannot read or does not understand is left out: it stays where it is.

    Raises:
        SlurmReplyError: it is cut short or out of form, or there are jobs and none can be read.
    """
    found: dict[int, WaitingJob] = {}
    read: dict[tuple[str, ...], Callable[[int], WaitingJob]] = {}  # many jobs differ in nothing but their ids
    unreadable: SlurmReplyError | None = None
    for job_id, *cells in framing.records(stdout, len(_FIELDS), "squeue's list of waiting jobs"):
        key = tuple(cells)
        try:
            number = parse_integer(job_id, "job id")
            if key not in read:
                read[key] = _parse_details(cells, f"job {number}")
        except SlurmReplyError as error:
            unreadable = error
            continue
        found[number] = read[key](number)
    if unreadable and not found:
        raise unreadable
    return found


def _parse_details(cells: Sequence[str], what: str) -> Callable[[int], WaitingJob]:
    """What makes a job of its id; ``cells`` are all others."""
    batch, oversubscribe, exclusive, cpus, reservation, most_nodes, features, excluded, per_tres = cells
    features, excluded = features.rstrip(" "), excluded.rstrip(" ")
    return partial(
        WaitingJob,
        batch=batch == "1",
        whole_nodes=parse_exclusive(oversubscribe, exclusive, what).whole_nodes,
        least_cpus_per_node=scaled_count(cpus, f"CPUs of {what}"),
        reservation=text_or_empty(reservation),
        most_nodes=count_or_zero(most_nodes),
        features=text_or_empty(features),
        excluded_nodes=text_or_empty(excluded),
        cpus_per_tres=text_or_empty(per_tres),
        cut=_fills(features, "Feature") or _fills(excluded, "ExcNodes"),
    )


def _fills(cell: str, name: str) -> bool:
    return len(cell.encode("utf-8", "surrogateescape")) >= _WIDTHS[name]
