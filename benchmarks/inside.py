"""Runs on a cluster's controller: times jobs or submissions one after the other and prints seconds as a JSON list."""

import json
import subprocess
import sys
import time

POLL_S = 0.002


def job(flags: list[str]) -> float:
    """One job of one step, from its submission until it has left its node (epilog done, no longer COMPLETING)."""
    began_s = time.perf_counter()
    done = subprocess.run(
        ["srun", *flags, "sh", "-c", "echo $SLURM_JOB_ID"], capture_output=True, text=True, check=True
    )
    job_id = done.stdout.split()[-1]
    while states(job_id) & {"RUNNING", "COMPLETING", "CONFIGURING"}:
        time.sleep(POLL_S)
    return time.perf_counter() - began_s


def states(job_id: str) -> set[str]:
    asked = ["squeue", "--noheader", "--format=%T", f"--jobs={job_id}"]
    return set(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split())


def submission(flags: list[str]) -> float:
    """One sbatch of a job that stays held, so that nothing but the submission happens."""
    began_s = time.perf_counter()
    subprocess.run(["sbatch", "--hold", *flags, "--wrap=true"], capture_output=True, check=True)
    return time.perf_counter() - began_s


def main() -> None:
    what, count, *flags = sys.argv[1:]
    timed = {"jobs": job, "submissions": submission}[what]
    timed(flags)  # the first one warms caches up
    sys.stdout.write(json.dumps([timed(flags) for _ in range(int(count))]) + "\n")


if __name__ == "__main__":
    main()
