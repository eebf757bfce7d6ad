"""Many ``scontrol update`` through one process, each result told apart.

scontrol reads commands from standard input and writes errors, unbuffered, to standard error. Behind every update stands a
word that is no command; the complaint about it marks where the update's own errors end. Values are checked against a
grammar first, because scontrol has quoting rules of its own, reads ``abc`` as 0 and accepts absurd GPU counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from slurm_soda.slurm_ext.client import JobUpdate
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.slurm_values import count_shared_gpus, parse_gpu_request
from slurm_soda.slurm_ext.sharing.guest_record import parse_guest_record
from slurm_soda.slurm_ext.write.site_factors import SITE_FACTOR_LIMIT

_MOST_PER_NODE = 64
_MOST_IN_ALL = 1024
"""Of one job, or CPUs of one task."""
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_MIB = re.compile(r"[1-9][0-9]{0,9}")
_TASK = re.compile(r"[0-9]{1,9}")
_SIGNED = re.compile(r"-?[0-9]{1,10}")
_TIME = re.compile(r"now(\+[0-9]{1,6})?|uts[0-9]{7,11}|[0-9]{4}-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]")
_TRES = re.compile(r"(gres/[A-Za-z][A-Za-z0-9_]{0,31}(:[A-Za-z][A-Za-z0-9_.-]{0,30})?|cpu)([:=]([0-9]{1,4}))?")
_HOSTS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,\[\]-]{0,4000}")
_NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,-]{0,500}")


def _is_site_factor(value: str) -> bool:
    return bool(_SIGNED.fullmatch(value)) and abs(int(value)) <= SITE_FACTOR_LIMIT


def _is_tres(value: str, most: int = _MOST_IN_ALL) -> bool:
    matches = [_TRES.fullmatch(piece) for piece in value.split(",")] if value else []
    return all(match and 0 < int(match[4] or 1) <= most for match in matches)


def _is_extra(value: str) -> bool:
    try:
        return not value or bool(parse_guest_record(value))
    except SlurmReplyError:
        return False


_GUEST_GPU = re.compile(r"gres/(?!gpu:)([A-Za-z][A-Za-z0-9_]{0,31}):g([0-9]{1,3}):1")
_TRES_WORDS = f"nothing, or gres/NAME[:TYPE][:COUNT], comma separated, COUNT at most {_MOST_PER_NODE} on a node"
_GRAMMAR: dict[str, tuple[Callable[[str], object], str]] = {
    "SiteFactor": (_is_site_factor, f"a whole number between -{SITE_FACTOR_LIMIT} and {SITE_FACTOR_LIMIT}"),
    "StartTime": (_TIME.fullmatch, "now, now+SECONDS, utsSECONDS (Unix) or YYYY-MM-DDTHH:MM:SS"),
    "CPUsPerTask": (_COUNT.fullmatch, "a positive count"),
    "NumCPUs": (_COUNT.fullmatch, "a positive count"),
    "MinCPUsNode": (_COUNT.fullmatch, "a positive count"),
    "MinMemoryNode": (_MIB.fullmatch, "a positive number of MiB"),
    "MinMemoryCPU": (_MIB.fullmatch, "a positive number of MiB"),
    "TresPerNode": (lambda value: _is_tres(value, _MOST_PER_NODE), _TRES_WORDS),
    **dict.fromkeys(("TresPerJob", "TresPerTask"), (_is_tres, _TRES_WORDS)),
    "Extra": (_is_extra, "a guest's record, or nothing"),
    "ReqNodeList": (lambda value: not value or _HOSTS.fullmatch(value), "a host list, or nothing"),
    "Partition": (_NAMES.fullmatch, "partition names, comma separated"),
}

TRANSIENT_ERRORS = ("Resource temporarily unavailable", "try again later")
"""Refusals that a second try overcomes (a user without an accounting association sees the first at random)."""

_ENDED_ARRAY_TASK = re.compile(r"\d+_\S+: (Job has already finished|Job is no longer pending execution)")
"""An update of an array also reaches its tasks that run or ended: not our business."""


def refusal_of_update(update: JobUpdate) -> str:
    """Why an update must not be sent; empty if it may."""
    if update.job_id <= 0 or not update.fields:
        return f"job {update.job_id}: an update needs a job and at least one field"
    if update.array_task and not _TASK.fullmatch(update.array_task):
        return f"job {update.job_id}: {update.array_task!r} is no task of an array; allowed is its number"
    for name, value in update.fields:
        if name not in _GRAMMAR:
            return f"job {update.job_id}: field {name!r} is not one that may be changed; allowed: {', '.join(_GRAMMAR)}"
        allowed, described = _GRAMMAR[name]
        if not allowed(value):
            return f"job {update.job_id}: {name}={value!r} is not sent; allowed is {described}"
    return _refusal_of_guest(update.job_id, dict(update.fields))


def _refusal_of_guest(job_id: int, fields: Mapping[str, str]) -> str:
    """Why a job must not become a guest so: it must ask for each GPU of its record once, by its type, on nodes by name."""
    if not fields.get("Extra"):
        return ""
    record = parse_guest_record(fields["Extra"])
    asked = [piece for name in ("TresPerNode", "TresPerJob") for piece in fields.get(name, "").split(",")]
    guests = [match for match in map(_GUEST_GPU.fullmatch, asked) if match]
    named = {match[1] for match in guests}
    own = sum(parse_gpu_request(piece)[0] for piece in asked)
    indices = tuple(sorted(int(match[2]) for match in guests))
    all_typed = len(named) == 1 and sum(count_shared_gpus(piece, *named) for piece in asked) == len(guests)
    if all_typed and (indices, own) == (record.gpus, record.own) and fields.get("ReqNodeList"):
        return ""
    return (
        f"job {job_id}: {fields!r} is not sent; a guest asks for each GPU of its record once, by type, on nodes by name"
    )


def scontrol_script(updates: Sequence[JobUpdate], nonce: str, address: Callable[[int], str] = str) -> bytes:
    """Standard input for scontrol: every update with its mark; ``address`` is what Slurm takes for a job."""
    lines = []
    for at, update in enumerate(updates):
        pairs = " ".join(f"{name}={value}" for name, value in update.fields)
        job = f"{update.job_id}_{update.array_task}" if update.array_task else address(update.job_id)
        lines += [f"update JobId={job} {pairs}", _mark(nonce, at)]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _mark(nonce: str, at: int) -> str:
    return f"soda-{nonce}-{at}"


def parse_update_errors(stderr: bytes, count: int, nonce: str) -> list[str | None]:
    """One text per update: empty when Slurm took it, its complaint when not, ``None`` when it did not get that far."""
    found: list[str | None] = []
    said: list[str] = []
    for line in stderr.decode("utf-8", "backslashreplace").splitlines():
        if len(found) < count and line.endswith(f" {_mark(nonce, len(found))}"):
            found.append("; ".join(said))
            said = []
        elif line.strip() and not _ENDED_ARRAY_TASK.fullmatch(line):
            said.append(line.strip())
    return found + [None] * (count - len(found))
