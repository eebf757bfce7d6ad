"""Runs on a cluster's controller, as root: pairs of jobs on GPUs, whose host then ends in some way while others wait.

``inside.py CASES REPEATS SEED WAITING``: prints a JSON line for each repeat. Only Slurm's commands; no sodad, no agent.
"""

import json
import random
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

HOME = Path("/home/walls")
NODES = ("n1", "n2")
POLL_S = 0.05
SAVED_AFTER_S = 7.0
"""By then slurmctld has saved what was started; of later things it knows nothing after a kill."""
WITHIN_S = 300.0
"""From the host's end to the start of the next job on its GPUs."""
FIRST = "SiteFactor=100000"
"""Before those that wait."""
PROGRAM = f"{HOME}/hold.sh"
_request = count()


def slurm(*argv: str) -> str:
    """One command, tried again while slurmctld does not answer."""
    for _ in range(60):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if not done.returncode:
            return done.stdout.strip()
        time.sleep(0.5)
    raise RuntimeError(f"{argv}: {done.stderr}")


def on_node(node: str, script: str) -> None:
    """A node's helper runs the script; returns when it has."""
    path = HOME / f"do.{node}.{next(_request)}"
    path.with_suffix(".new").write_text(script)
    path.with_suffix(".new").rename(path)
    wait(lambda: not path.exists(), f"{node} has done what it was asked to")


def wait(condition, what: str, within_s: float = WITHIN_S):
    """What the condition returns once that is true."""
    until_s = time.monotonic() + within_s
    while not (found := condition()):
        if time.monotonic() > until_s:
            raise TimeoutError(what)
        time.sleep(POLL_S)
    return found


class Log:
    """What the jobs wrote. A line: seconds, what, role, job, node, GPUs, text."""

    def lines(self, since_s: float, node: str, what: str) -> list[list[str]]:
        """Those of a node from an instant on."""
        lines = (line.split() for line in (HOME / "log").read_text().splitlines()[-4000:])
        return [
            line
            for line in lines
            if len(line) >= 6 and float(line[0]) >= since_s and (line[1], line[4]) == (what, node)
        ]

    def started(self, job: str, node: str) -> list[str]:
        """The newest start of a job."""
        return next((line for line in reversed(self.lines(0, node, "start")) if line[3] == job), [])


LOG = Log()


def submit(role: str, gpus: int, seconds: int, *options: str, ignore: bool = False) -> str:
    words = (PROGRAM, role, str(seconds), *(["ignore"] if ignore else []))
    argv = (
        "sbatch",
        "--parsable",
        "--output=/dev/null",
        "--chdir=/tmp",
        "--mem=1",
        "--requeue",
        f"--gres=gpu:{gpus}",
        *options,
    )
    return slurm("setpriv", "--reuid=alice", "--regid=alice", "--init-groups", *argv, *words)


class Waiters:
    """So many jobs of one GPU that did not consent are waiting, all the time."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.going = True
        self._thread = threading.Thread(target=self._keep)
        self._thread.start()

    def _keep(self) -> None:
        while self.going:
            there = len(
                slurm("squeue", "--noheader", "--array", "--states=PENDING", "--name=waits", "--format=%i").split()
            )
            if there < self._number:
                # The first ones of a new cluster: as many as run at once more.
                submit("stranger", 1, 2, f"--array=1-{self._number - there + 8}", "--job-name=waits", "--nice=10000")
            time.sleep(2)

    def stop(self) -> None:
        self.going = False
        self._thread.join()


def make_pair(node: str, rng: random.Random, *, ignore: bool, release: bool = True) -> tuple[str, str, str]:
    """A host and its guest, both running; the guest on all or on one of the host's GPUs. Job ids and the guest's GPUs."""
    gpus = rng.randint(1, 3)
    host = submit("host", gpus, 600, f"--nodelist={node}", "--hold")
    slurm("scontrol", "update", f"jobid={host}", FIRST)
    slurm("scontrol", "release", host)
    held = wait(lambda: LOG.started(host, node), f"host {host} runs")[5]
    shared = sorted(rng.sample(held.split(","), rng.randint(1, gpus)), key=int)
    guest = submit(f"guest:{host}:{','.join(shared)}", len(shared), 600, "--hold", ignore=ignore)
    extra = f"soda-guest:1,hosts={host},gpus={'+'.join(shared)},undo=TresPerNode=gres/gpu:{len(shared)};ReqNodeList="
    request = ",".join(f"gres/sharedgpu:g{gpu}:1" for gpu in shared)
    slurm(
        "scontrol", "update", f"jobid={guest}", FIRST, f"TresPerNode={request}", f"ReqNodeList={node}", f"Extra={extra}"
    )
    if release:
        slurm("scontrol", "release", guest)
        wait(lambda: LOG.started(guest, node), f"guest {guest} runs")
    return host, guest, ",".join(shared)


# What is killed in the hooks of a node, again and again for three seconds: everything below the shell, or the shell too.
KILL_PIECES = """
end=$(($(date +%s) + 3))
while [ $(date +%s) -lt $end ]; do
    for shell in $(pgrep -f '/opt/slurm-soda/libexec/(prolog|epilog)'); do SHELL_TOO pkill -KILL -P $shell; done
    sleep 0.0DELAY
done
"""


def resume(node: str) -> None:
    """Where the node was drained or is down; else Slurm refuses it."""
    back = ("scontrol", "update", f"nodename={node}", "state=resume")
    subprocess.run(back, check=False, capture_output=True)


def end_host(case: str, host: str, guest: str, node: str, rng: random.Random) -> None:
    if case == "cancelled":
        slurm("scancel", host)
    elif case == "requeued":
        slurm("scontrol", "requeue", host)
    elif case == "preempted":
        submit("stranger", 4, 1, "--partition=urgent", f"--nodelist={node}")
    elif case == "node lost":
        on_node(node, "daemonctl kill slurmd norestart")
        slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
        time.sleep(rng.uniform(0, 3))
        on_node(node, "daemonctl start slurmd")
        resume(node)  # it may have come back by itself
    elif case in {"pieces killed", "hook killed"}:
        shell = "kill -KILL $shell;" if case == "hook killed" else ""
        script = KILL_PIECES.replace("SHELL_TOO", shell).replace("DELAY", str(rng.randint(1, 5)))
        killer = threading.Thread(target=on_node, args=(node, script))
        killer.start()
        (HOME / f"end.{host}").touch()
        killer.join()
    else:
        if case == "slurmctld killed":
            time.sleep(SAVED_AFTER_S)
        if case == "same instant":
            threading.Timer(rng.uniform(0, 0.6), slurm, ("scontrol", "release", guest)).start()
        (HOME / f"end.{host}").touch()
        if case == "slurmctld killed":
            time.sleep(rng.uniform(0, 1.5))
            subprocess.run(("daemonctl", "kill", "slurmctld"), check=True)


def repeat(case: str, node: str, rng: random.Random) -> dict[str, object]:
    """One pair; the next start on one of the guest's GPUs, and every overlap until then."""
    began_s = time.time()
    host, guest, gpus = make_pair(node, rng, ignore=case == "ignores TERM", release=case != "same instant")
    ended_s = time.time()
    end_host(case, host, guest, node, rng)

    def next_start() -> list[str]:
        wanted = set(gpus.split(","))
        if case == "hook killed":  # Slurm drains the node, now or when it hears of it
            resume(node)
        found = (
            line
            for line in LOG.lines(ended_s, node, "start")
            if line[2] != "guest" and wanted & set(line[5].split(","))
        )
        return next(found, [])

    try:
        after_s = float(wait(next_start, "the next start")[0]) - ended_s
    except TimeoutError:
        after_s = -1.0
    time.sleep(0.5)  # whoever started looks at the others' locks then
    subprocess.run(("scancel", host, guest), check=False)
    overlaps = LOG.lines(began_s, node, "overlap")
    return {"case": case, "node": node, "after_s": round(after_s, 3), "overlaps": overlaps, "jobs": [host, guest, gpus]}


def work(case: str, node: str, repeats: int, seed: str) -> None:
    rng = random.Random(seed)
    for _ in range(repeats):
        try:
            found = repeat(case, node, rng)
        except (TimeoutError, RuntimeError) as error:
            found = {"case": case, "node": node, "error": str(error)}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def main() -> None:
    cases, repeats, seed, waiting = sys.argv[1].split("+"), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    subprocess.run(
        ("scontrol", "create", "PartitionName=urgent", "Nodes=ALL", "PriorityTier=10"), check=False, capture_output=True
    )
    waiters = Waiters(waiting)
    try:
        for case in cases:
            shares = [repeats - repeats // 2, repeats // 2]
            if case == "slurmctld killed":  # both nodes have one
                shares = [repeats, 0]
            threads = [
                threading.Thread(target=work, args=(case, node, number, f"{seed}/{case}/{node}"))
                for node, number in zip(NODES, shares, strict=True)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        waiters.stop()
        subprocess.run(("scancel", "--user=alice"), check=False)


if __name__ == "__main__":
    main()
