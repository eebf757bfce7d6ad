"""Runs on a host of the cluster and prints one JSON document of raw replies; what they mean is decided outside.

``inside.py seen``: what Slurm and the store say now; ``inside.py last SINCE``: and what accounting has; ``inside.py left``:
what there is on this host.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

TIMEOUT_S = 12
STORE = "/var/lib/slurm-soda/soda.db"
LOCK = Path("/var/lib/slurm-soda/sodad.lock")
COMMANDS = {
    "squeue": ("squeue", "-h", "-a", "-r", "-t", "all", "-o", "%i|%T|%r|%u|%V|%S|%j"),
    "sprio": ("sprio", "-h", "-o", "%i %S"),
    "sinfo": ("sinfo", "-h", "-N", "-a", "-o", "%N|%T|%E"),
}
LAST = {
    "partitions": ("scontrol", "-o", "-a", "show", "partition"),
    "nodes": ("scontrol", "-o", "-d", "show", "node"),
    "reservations": ("scontrol", "-o", "show", "reservation"),
}
ACCOUNTING = (
    "sacct", "-nPaX", "--duplicates", "-o", "JobIDRaw,JobName,User,State,Submit,Start,End,Restarts",
)  # fmt: skip
QUERIES = {
    "actions": "select count(*), coalesce(min(id), 1), coalesce(max(id), 0) from action",
    "open_actions": "select id, job_id, kind, state, error from action where state in ('intended', 'sent')",
    "open_preemptions": "select id, job_id, phase from preemption where phase not in ('done', 'lost')",
    "preempted": "select job_id, restart from preemption where phase = 'done'",
    "requeues": "select job_id, preemption_id from action where kind = 'requeue' and state in ('done', 'undone')",
    "jobs": "select job_id, state, accounted, end_s from job",
    "cycle": "select id, error, mode from cycle order by id desc limit 1",
    "epochs": "select max(id), count(*) from epoch",
    "agents": "select node from agent_heartbeat",
    "settings": "select key, value from admin_setting where key not in ('stage', 'cluster')",
}
PLACES = (
    "/etc/slurm", "/etc/slurm-soda", "/var/lib/slurm-soda", "/var/lib/slurm-soda-agent", "/var/spool/slurm-soda",
    "/run/slurm-soda", "/run/slurm-soda-agent", "/run/slurm-soda-node", "/run/soda-gpus", "/dev/shm", "/tmp", "/var/tmp",
)  # fmt: skip
GROUPS = ("cpuset", "memory", "freezer", "devices", "cpu", "")


def run(argv: tuple[str, ...]) -> dict[str, object]:
    """A command's reply; status 124 when it took too long."""
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT_S, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return {"status": 124, "stdout": ""}
    except OSError as error:
        return {"status": 127, "stdout": str(error)}
    return {"status": done.returncode, "stdout": done.stdout.decode("utf-8", "backslashreplace")}


def store() -> dict[str, object]:
    """Rows of each query; empty while there is no store."""
    try:
        with closing(sqlite3.connect(f"file:{STORE}?mode=ro", uri=True, timeout=5)) as file:
            return {name: [list(map(plain, row)) for row in file.execute(query)] for name, query in QUERIES.items()}
    except sqlite3.Error as error:
        return {"error": str(error)}


def plain(value: object) -> object:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def processes() -> list[list[str]]:
    """Uid, state and command line of all."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
                found.append([str(directory.stat().st_uid), state, words])
            except OSError:
                continue
    return found


def seen() -> dict[str, object]:
    """What the checks after each event need."""
    found: dict[str, object] = {name: run(argv) for name, argv in COMMANDS.items()}
    sodad = [state for _, state, words in processes() if words.endswith("bin/sodad")]
    found |= {"at_s": time.time(), "store": store(), "sodad": sodad}
    found["lock_age_s"] = time.time() - LOCK.stat().st_mtime if LOCK.exists() else None
    return found


def left() -> dict[str, object]:
    """What there is on this host."""
    groups = {str(path) for one in GROUPS for path in Path("/sys/fs/cgroup", one).glob("slurm*/uid_*/job_*")}
    groups |= {str(path) for path in Path("/sys/fs/cgroup").glob("slurm*/job_*")}
    files = {str(path) for place in PLACES for path in Path(place).rglob("*") if not path.is_dir()}
    files |= {str(path) for path in Path("/sys/fs/resctrl").glob("*/*/tasks")}
    return {
        "cgroups": sorted(groups),
        "files": sorted(files),
        "processes": processes(),
        "qdiscs": run(("tc", "qdisc", "show"))["stdout"],
        "tables": run(("nft", "list", "tables"))["stdout"],
        "mounts": [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()],
        "hooks": Path("/run/campaign/hooks").read_text() if Path("/run/campaign/hooks").exists() else "",
    }


def last(since: str) -> dict[str, object]:
    """What Slurm has at the end of a round, accounting included."""
    found: dict[str, object] = {name: run(argv) for name, argv in LAST.items()}
    return found | {"sacct": run((*ACCOUNTING, "-S", since))}


def main() -> None:
    what, *arguments = sys.argv[1:]
    documents: dict[str, Callable[..., dict[str, object]]] = {"seen": seen, "left": left, "last": last}
    document = documents[what](*arguments)
    sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
