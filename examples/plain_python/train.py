"""A training in plain Python: it saves on a signal and now and then, resumes after a requeue, and tells its progress."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from slurm_soda_progress import STOPPED, Progress


def load(path: str) -> dict:
    """The state of the last checkpoint, or a new one."""
    try:
        with open(path, encoding="ascii") as file:
            return json.load(file)
    except FileNotFoundError:
        return {"iteration": 0, "sum": 0.0}


def save(path: str, state: dict) -> None:
    """Replace the checkpoint whole: a kill in the middle leaves the one before."""
    fresh = path + ".new"
    with open(fresh, "w", encoding="ascii") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="job-%s.json" % os.environ.get("SLURM_JOB_ID", "0"))
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--iteration-s", type=float, default=0.1)
    parser.add_argument("--save-every", type=int, default=100)
    arguments = parser.parse_args()

    progress = Progress(total=arguments.iterations, batch=64, signals=("TERM",))
    state = load(arguments.checkpoint)
    progress.resumed(state["iteration"])
    print("starting at iteration", state["iteration"], flush=True)
    while state["iteration"] < arguments.iterations:
        time.sleep(arguments.iteration_s)  # forward, backward, optimiser
        state["iteration"] += 1
        state["sum"] += state["iteration"]
        progress.step(state["iteration"])
        if progress.should_stop() or state["iteration"] % arguments.save_every == 0:
            save(arguments.checkpoint, state)
            progress.saved()
        if progress.should_stop():
            print("saved at iteration", state["iteration"], flush=True)
            return STOPPED
    print("done after iteration", state["iteration"], "with", state["sum"], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
