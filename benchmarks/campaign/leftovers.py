"""What is left on the hosts when all jobs have ended, beside what was there before the first one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.campaign.invariants import Violation

USER_IDS = frozenset({"2001", "2002", "2003"})
_HOOKS = re.compile(r"libexec/(prolog|epilog|soda-deliver-event|soda-release-lifts)|sodactl release-lifts")
_OWN = re.compile(
    r"/var/lib/slurm-soda/soda\.db(-wal|-shm)?$|/var/lib/slurm-soda/(sodad|pools)\.lock$|/run/slurm-soda/wake$"
    r"|/run/slurm-soda-agent/agent\.sock$|/run/soda-gpus/[^/]*$|/tmp/campaign|/dev/shm/((sem\.)?faketime_|sem\.[0-9A-Za-z]{6}$)"
    r"|/var/lib/slurm-soda-agent/(cores|tuning)\.json$|/run/slurm-soda-node/(shares/\.kept|locks/mps\.\w+)$"
)
"""Files of running daemons, of hooks until a node restarts, and of the emulation."""


def has_users_processes(now: Mapping[str, Any]) -> bool:
    """Some process of a job, or of a user, is on a host."""
    return any(uid in USER_IDS and state != "Z" for uid, state, _ in now["processes"])


def check_left(host: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Violation]:
    """Compare one host with what it was."""
    return [Violation(f"left on {host}", what) for what in _left(before, now)]


def _left(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for uid, state, words in now["processes"]:
        if state != "Z" and (uid in USER_IDS or _HOOKS.search(words)):
            yield f"process of uid {uid}: {words[:120]} ({state})"
    yield from (f"cgroup {path}" for path in now["cgroups"])
    new_files = sorted(set(now["files"]) - set(before["files"]))
    yield from (f"file {path}" for path in new_files if not _OWN.search(path))
    for kind in ("qdiscs", "tables"):
        new = set(now[kind].splitlines()) - set(before[kind].splitlines())
        yield from (f"{kind[:-1]} {line}" for line in sorted(new))
    yield from (f"mount {path}" for path in sorted(set(now["mounts"]) - set(before["mounts"])))


def check_slurm(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Violation]:
    """Partitions and reservations as before, and no GPU, core or MiB taken."""
    found = []
    for kind in ("partitions", "reservations"):
        lines = [set(document[kind]["stdout"].splitlines()) for document in (before, now)]
        found += [Violation(f"{kind} differ", line[:120]) for line in sorted(lines[0] ^ lines[1])]
    for line in now["nodes"]["stdout"].splitlines():
        taken = re.findall(r"(\w+(?::\w+)*:[1-9]\d*)\(IDX:", line.partition("GresUsed=")[2].partition(" ")[0])
        name = line.partition("NodeName=")[2].partition(" ")[0]
        if taken or re.search(r"CPUAlloc=[1-9]", line):
            found.append(Violation(f"left on {name}", f"gres {taken}, cores in use, without a job"))
    return found
