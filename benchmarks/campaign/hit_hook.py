"""Runs on a node as a site's hook that calls slurm-soda's, and kills or pauses that one, with all it started.

``hit_hook.py HOOK SIGNAL AFTER_MS FOR_S``. Slurm hears status 0: how it treats a hook that fails is not what is looked at.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path


def send(child: int, number: int) -> None:
    """To the hook and all it started; it may not have come to setsid, so its own process gets the signal in any case."""
    for process in (-child, child):
        with suppress(ProcessLookupError):
            os.kill(process, number)


def main() -> None:
    hook, name, after_ms, for_s = sys.argv[1:]
    path = f"/opt/slurm-soda/libexec/{hook}"
    began_s = time.perf_counter()
    child = os.fork()
    if not child:
        os.setsid()
        os.execv(path, [path])
    while time.perf_counter() - began_s < float(after_ms) / 1000:
        pass  # a sleep would be too coarse for a hook that takes two milliseconds
    hit = not os.waitpid(child, os.WNOHANG)[0]
    if hit:
        send(child, signal.Signals[f"SIG{name}"])
        if name == "STOP":
            time.sleep(float(for_s))
            send(child, signal.SIGCONT)
        os.waitpid(child, 0)
    with Path("/run/campaign/hooks").open("a", encoding="ascii") as file:
        file.write(f"{hook} {name} {'hit' if hit else 'late'} {os.environ.get('SLURM_JOB_ID', '')}\n")


main()
