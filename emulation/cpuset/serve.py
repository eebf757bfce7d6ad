"""Cpuset groups without the cores: the model of kernel.py behind a real mount (see ../fuse/mount.py).

    python serve.py private MOUNT_POINT '{"version": 1, "cpus": "0-27"}'

for tests: prints ``{"mount": PATH}`` or ``{"refused": WHY}``, then answers one JSON command a line: see ``take``.

    python serve.py node ROOT '{"node": "n1", "cpus": "0-27"}'

for a node of a cluster in containers: mounts at ROOT/cpuset for everybody what slurm.py makes of the real jobs, links the
other controllers beside it, and runs until it is killed. soda-agent's ``cgroup_root`` names ROOT there, and soda-train
counts its cores below it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from pathlib import Path as File

sys.path.insert(0, str(File(__file__).parents[1] / "fuse"))
sys.path.insert(0, str(File(__file__).parent))
from kernel import Group, Kernel, parse, shown
from mount import Mount, attach_for_all, attach_privately
from slurm import Slurm

REAL = "/sys/fs/cgroup"


def take(kernel: Kernel, command: dict[str, object]) -> object:
    """The machine's side, which no file shows."""
    do, value = next(iter(command.items()))
    if do == "reset":  # {"reset": {"version": 1, "cpus": "0-27"}}: a fresh machine under the same mount
        kernel.__init__(value["version"], parse(value["cpus"]))
    elif do == "groups":  # {"groups": {"a/b": "0-3"}}: made as slurmd makes them, parents first
        for name, cpus in value.items():
            path = tuple(name.split("/"))
            for depth in range(1, len(path)):
                kernel.groups.setdefault(
                    path[:depth], Group(kernel.groups[()].cpus if kernel.version == 1 else parse(""))
                )
            kernel.groups[path] = Group(parse(cpus))
    elif do == "procs":  # {"procs": {"a/b": [pid, …]}}
        for name, pids in value.items():
            kernel.groups[tuple(name.split("/"))].procs = pids
    elif do == "remove":  # {"remove": "a/b"}: it ends
        kernel.remove(tuple(value.split("/")))
    elif do == "vanish":  # {"vanish": "a/b"}: it ends at the next write to it
        kernel.vanish.add(tuple(value.split("/")))
    elif do == "look":  # {"look": null}
        return {
            "groups": {"/".join(path): shown(group.cpus) for path, group in kernel.groups.items()},
            "log": kernel.log,
        }
    return None


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _private(point: str, setup: dict[str, object]) -> None:
    kernel = Kernel(setup["version"], parse(setup["cpus"]))
    lock = threading.Lock()
    try:
        device = attach_privately(point, b"cpuset")
    except OSError as error:
        _say({"refused": f"no FUSE mount here: {error}"})
        return
    threading.Thread(target=Mount(kernel, lock).serve, args=(device,), daemon=True).start()
    _say({"mount": f"/proc/{os.getpid()}/root{point}"})
    for line in sys.stdin:
        with lock:
            answer = take(kernel, json.loads(line))
        _say(answer)


def _node(root: str, setup: dict[str, object]) -> None:
    File(root).mkdir(parents=True, exist_ok=True)
    for controller in File(REAL).iterdir():
        link = File(root) / controller.name
        if controller.name != "cpuset" and not link.is_symlink():
            link.symlink_to(controller)
    with contextlib.suppress(OSError):  # there, or the mount of a dead server, which answers nothing
        File(f"{root}/cpuset").mkdir()
    kernel = Slurm(f"{REAL}/cpuset", setup["node"], parse(setup["cpus"]))
    Mount(kernel, threading.Lock()).serve(attach_for_all(f"{root}/cpuset", b"cpuset"))


if __name__ == "__main__":
    how, where, settings = sys.argv[1], str(File(sys.argv[2]).absolute()), json.loads(sys.argv[3])
    _node(where, settings) if how == "node" else _private(where, settings)
