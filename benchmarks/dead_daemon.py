"""What a sodad that is dead for good costs the jobs that wait: ``python -m benchmarks.dead_daemon``.

Two equal clusters get the same jobs, more than they can run, and sodad enforces on both with the policy that lifts most. At
the same moment sodad hangs on one of them for good (it is stopped by a signal, so nothing notices but the timer that looks
after its heartbeat); on the other, the control, it is killed and its lifts are taken back at once. Jobs go on coming for a
minute. Of all jobs that had not started at that moment the starts are compared, counted from it: the 95th percentile, and
the last one. And 60 s after it no waiting job of either cluster may have a SiteFactor.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.lifted_jobs import find_lifted_jobs
from slurm_soda.containers.cluster import ContainerCluster

NODES, GPUS = 4, 4
BEFORE_S, AFTER_S = 60.0, 60.0
"""Jobs come for so long before sodad's end and after it."""
LOAD_BEFORE, LOAD_AFTER = 2.0, 0.8
"""GPU seconds that are asked for, over those that there are."""
MEDIAN_S, SPREAD = 9.0, 0.7
"""Of the jobs' run times, which are log-normal."""
RELEASED_WITHIN_S = 60.0
WITHIN_RATIO = 1.1
SHAPES = {(1, 1): 0.5, (1, 2): 0.3, (1, 4): 0.15, (2, 4): 0.05}
"""Shares of the jobs by nodes, and GPUs on each."""
USERS = ("alice", "bob", "carol")
CONFIGURATION = """mode = "enforce"
[policy]
name = "smallest"
[cycle]
interval_s = 2
"""


@dataclass(frozen=True, slots=True)
class Submission:
    """One job: when it is submitted after the first one, by whom, and what it asks for."""

    at_s: float
    user: str
    nodes: int
    gpus: int
    """On each node."""
    run_s: float

    def sbatch(self, number: int) -> str:
        """The shell's command."""
        return (
            f"sbatch --quiet --parsable --output=/dev/null --job-name=dead-{number} --time=10 --nodes={self.nodes}"
            f" --gres=gpu:{self.gpus} --wrap='sleep {self.run_s:.1f}'"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cluster after sodad's end."""

    starts_s: list[float]
    """Since that moment, of all jobs that had not started by then."""
    lifts_at_end: int
    """Waiting jobs that had a SiteFactor when sodad ended."""
    lifts_later: int
    """The same :data:`RELEASED_WITHIN_S` later."""

    @property
    def percentile_s(self) -> float:
        return float(np.percentile(self.starts_s, 95))

    @property
    def last_s(self) -> float:
        return max(self.starts_s)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One seed on both clusters."""

    seed: int
    dead: Outcome
    control: Outcome

    @property
    def percentile_ratio(self) -> float:
        return self.dead.percentile_s / self.control.percentile_s

    @property
    def last_ratio(self) -> float:
        return self.dead.last_s / self.control.last_s


def draw_jobs(seed: int) -> Iterator[Submission]:
    """Jobs as they come, Poisson: too many at first, then fewer than the cluster can run."""
    draw = random.Random(seed)
    mean_gpus = sum(nodes * gpus * share for (nodes, gpus), share in SHAPES.items())
    mean_gpu_s = mean_gpus * MEDIAN_S * float(np.exp(SPREAD**2 / 2))
    at_s = 0.0
    while True:
        load = LOAD_BEFORE if at_s < BEFORE_S else LOAD_AFTER
        at_s += draw.expovariate(load * NODES * GPUS / mean_gpu_s)
        if at_s >= BEFORE_S + AFTER_S:
            return
        nodes, gpus = draw.choices(list(SHAPES), list(SHAPES.values()))[0]
        yield Submission(at_s, draw.choice(USERS), nodes, gpus, draw.lognormvariate(np.log(MEDIAN_S), SPREAD))


def submission_script(jobs: list[Submission], user: str, begin_s: float) -> str:
    """Submits one user's jobs at their times; the clock is the one of the containers' host."""
    pause = 'sleep $(awk "BEGIN{{d={at_s:.2f}-$(date +%s.%N); print (d>0)?d:0}}")'
    lines = [
        f"{pause.format(at_s=begin_s + job.at_s)}; {job.sbatch(number)} || exit 1"
        for number, job in enumerate(jobs)
        if job.user == user
    ]
    return "\n".join(lines)


def hang(cluster: ContainerCluster) -> None:
    """Stop sodad for good, so that it is dead but nothing has ended."""
    cluster.exec("root", ("sh", "-c", "kill -STOP $(cat /run/cluster/sodad.pid)")).check()


def kill_and_release(cluster: ContainerCluster) -> None:
    """As if nothing had ever been lifted from now on."""
    cluster.kill("sodad", restart=False)
    cluster.exec("root", ("sodactl", "release-lifts")).check()


def run(
    cluster: ContainerCluster, jobs: list[Submission], begin_s: float, end: Callable[[ContainerCluster], None]
) -> Outcome:
    """Submit all jobs, end sodad when it is time, and wait until every job has started."""
    with ThreadPoolExecutor(len(USERS)) as pool:
        submitting = [
            pool.submit(cluster.exec, user, ("bash", "-c", submission_script(jobs, user, begin_s)), timeout_s=900)
            for user in USERS
        ]
        time.sleep(max(0.0, begin_s + BEFORE_S - time.time()))
        lifts_at_end = len(find_lifted_jobs(cluster))
        ended_s = time.time()
        end(cluster)
        time.sleep(max(0.0, ended_s + RELEASED_WITHIN_S - time.time()))
        lifts_later = len(find_lifted_jobs(cluster))
        for submitted in submitting:
            submitted.result().check()
    cluster.wait_until(
        lambda: not cluster.exec("root", ("squeue", "--noheader", "--states=pending")).check().stdout.strip(),
        "every job has started",
        within_s=900,
    )
    starts_s = [at_s - ended_s for at_s in start_times(cluster, begin_s)]
    if len(starts_s) != len(jobs):
        raise click.ClickException(f"{len(jobs)} jobs were submitted, accounting knows the start of {len(starts_s)}")
    return Outcome([at_s for at_s in starts_s if at_s > 0], lifts_at_end, lifts_later)


def start_times(cluster: ContainerCluster, since_s: float) -> list[float]:
    """When each job of this run started, after accounting."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since_s - 1))
    argv = ("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "sacct", "-nPXa", f"--starttime={since}", "-o", "JobName,Start")
    found = (line.split("|") for line in cluster.exec("root", argv).check().stdout.splitlines())
    return [float(start) for name, start in found if name.startswith("dead-") and start.isdigit()]


def clear(cluster: ContainerCluster) -> None:
    """Let both clusters begin equal: no job, no sodad, no store."""
    cluster.exec("root", ("sh", "-c", "kill -CONT $(cat /run/cluster/sodad.pid) 2>/dev/null; true"))
    cluster.stop_daemon()
    for user in USERS:
        cluster.exec("root", ("scancel", f"--user={user}"))
    cluster.wait_until(lambda: not cluster.exec("root", ("squeue", "--noheader")).stdout.strip(), "the queue is empty")
    cluster.exec("root", ("sh", "-c", "rm -f /var/lib/slurm-soda/soda.db* /var/lib/slurm-soda/sodad.lock")).check()
    cluster.start_daemon(CONFIGURATION)


def compare(dead: ContainerCluster, control: ContainerCluster, seed: int) -> Comparison:
    """One seed's jobs on both clusters at the same time."""
    jobs = list(draw_jobs(seed))
    with ThreadPoolExecutor(2) as pool:
        for cleared in [pool.submit(clear, cluster) for cluster in (dead, control)]:
            cleared.result()
        begin_s = time.time() + 8.0
        outcomes = [
            pool.submit(run, cluster, jobs, begin_s, end)
            for cluster, end in ((dead, hang), (control, kill_and_release))
        ]
        return Comparison(seed, outcomes[0].result(), outcomes[1].result())


def join(found: list[Comparison]) -> Comparison:
    """All seeds together, as one of number 0."""

    def outcome(parts: list[Outcome]) -> Outcome:
        starts_s = [start_s for part in parts for start_s in part.starts_s]
        return Outcome(starts_s, sum(part.lifts_at_end for part in parts), sum(part.lifts_later for part in parts))

    return Comparison(0, outcome([one.dead for one in found]), outcome([one.control for one in found]))


def show(found: list[Comparison]) -> None:
    """A table for people; the last line is over all seeds."""
    table = Table(box=None, header_style="bold")
    compared = ("p95 start", "control", "ratio", "last start", "control", "ratio")
    for title in ("seed", "jobs", "lifts at the end", "60 s later", *compared):
        table.add_column(title, justify="right", no_wrap=True)
    for one in (*found, join(found)):
        dead, control = one.dead, one.control
        table.add_row(
            str(one.seed or "all"), str(len(dead.starts_s)), str(dead.lifts_at_end), str(dead.lifts_later),
            f"{dead.percentile_s:.0f} s", f"{control.percentile_s:.0f} s", f"{one.percentile_ratio:.2f}",
            f"{dead.last_s:.0f} s", f"{control.last_s:.0f} s", f"{one.last_ratio:.2f}",
        )  # fmt: skip
    Console(width=140).print(table)


def holds(one: Comparison) -> bool:
    """What is promised of a dead sodad. Of one seed alone the ratios vary by a tenth either way, as two equal runs do."""
    return one.dead.lifts_later == 0 and max(one.percentile_ratio, one.last_ratio) <= WITHIN_RATIO


@click.command()
@click.option("--seed", default=1, show_default=True, type=click.IntRange(1), help="The first one.")
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(1), help="How many; six minutes each.")
@click.option("--out", default="build/dead-daemon.json", show_default=True, type=click.Path(path_type=Path))
def main(seed: int, seeds: int, out: Path) -> None:
    """Starts of waiting jobs after sodad has died for good, beside a cluster whose lifts were taken back at once."""
    out.parent.mkdir(parents=True, exist_ok=True)
    found: list[Comparison] = []
    with ExitStack() as until_down:

        def up(name: str) -> ContainerCluster:
            cluster = ContainerCluster.up(
                name, nodes=NODES, gpus=GPUS, packed=True, progress=partial(click.echo, err=True)
            )
            until_down.callback(cluster.down)
            return cluster

        dead, control = up("dead"), up("control")
        for number in range(seed, seed + seeds):
            found.append(compare(dead, control, number))
            out.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
            show(found)
    raise SystemExit(0 if holds(join(found)) else 1)


if __name__ == "__main__":
    main()
