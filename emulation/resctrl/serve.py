"""A resctrl file system without the hardware: the model of kernel.py behind a real mount.

It is mounted (see ../fuse/mount.py) in a mount namespace of its own, as root or in a user namespace, and is reached at
/proc/PID/root/MOUNT.

    python serve.py MOUNT_POINT '{"closids": 4}'

prints ``{"mount": PATH}`` or ``{"refused": WHY}``, then answers one JSON command a line: see ``Control``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path as File

sys.path.insert(0, str(File(__file__).parents[1] / "fuse"))
sys.path.insert(0, str(File(__file__).parent))
from kernel import Kernel
from mount import Mount, attach_privately
from schemata import Setup


class Control:
    """The machine's side, which no file shows: threads, time, and what goes wrong."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def take(self, command: dict[str, object]) -> object:
        kernel = self._kernel
        do, value = next(iter(command.items()))
        if do == "run":  # {"run": {"TID": {"DOMAIN": bytes/s}}}
            for task, wants in value.items():
                kernel.run(int(task), {int(d): float(v) for d, v in wants.items()})
        elif do == "end":  # {"end": [TID, …]}
            for task in value:
                kernel.end(task)
        elif do == "advance":  # {"advance": seconds}
            kernel.advance(value)
        elif do == "say":  # {"say": {"GROUP PATH": "Unavailable"}}, "" for numbers again
            for path, word in value.items():
                kernel.groups[tuple(filter(None, path.split("/")))].said = word
        elif do in (
            "vanish",
            "vanish_read",
        ):  # {"vanish": NAME}: that group goes at the next write to it, or reading of it
            (kernel.vanish if do == "vanish" else kernel.vanish_read).add(value)
        elif do == "limbo":  # {"limbo": true}
            kernel.limbo = value
        elif do == "restart_counters":  # {"restart_counters": "GROUP PATH"}
            group = kernel.groups[tuple(filter(None, value.split("/")))]
            group.counted = dict.fromkeys(group.counted, 0.0)
        elif do == "reset":  # {"reset": {SETUP}}: a fresh machine under the same mount
            kernel.__init__(Setup(**value))
        elif do == "look":  # {"look": null}: everything
            return {
                "log": kernel.log,
                "groups": {
                    "/".join(p): {"tasks": sorted(g.tasks), "mb": list(g.mb.values()), "l3": list(g.l3.values())}
                    for p, g in kernel.groups.items()
                },
            }
        return None


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Mount, then take commands until the input ends."""
    point = str(File(sys.argv[1]).resolve())
    kernel = Kernel(Setup(**json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}")))
    lock = threading.Lock()
    try:
        device = attach_privately(point, b"resctrl")
    except OSError as error:
        _say({"refused": f"no FUSE mount here: {error}"})
        return
    threading.Thread(target=Mount(kernel, lock).serve, args=(device,), daemon=True).start()
    _say({"mount": f"/proc/{os.getpid()}/root{point}"})
    control = Control(kernel)
    for line in sys.stdin:
        with lock:
            answer = control.take(json.loads(line))
        _say(answer)


if __name__ == "__main__":
    main()
