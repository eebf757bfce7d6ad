"""How long job_submit.lua holds slurmctld's locks: ``python -m benchmarks.lua``.

soda.lua in a lua of its own, with pools in force, against tables that stand in for Slurm's jobs: ordinary submissions; the
hardest texts that a search finds for each field, at the length up to which Slurm takes a job; all of these at once; a
script of 4 MiB; and the submission after the pools have changed. CPU time of the one thread; what Slurm takes to make its
tables is not in it. Each job is taken five times and its median counts, because a clock tick of a virtual machine that falls
into a call costs several times the call; the last column has the longest single call.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.lua_jobs import SCRIPT_MAX_BYTES, SLURMS_LIMITS, hardest
from slurm_soda.policies.pools.kinds import NodeClass, PoolShare
from slurm_soda.policies.pools.layout.partitions import PoolTable, plan_pool_partitions
from slurm_soda.slurm_ext.pools.routes_file import RoutingRules, render_routes

REPEATS = 5
SODA = Path(__file__).parents[1] / "slurm_ext" / "lua" / "soda.lua"
MEMORY = Path("/dev/shm")
"""As /run, where the wake file is."""
_FRESH = b"""
return function(job, get)
    setmetatable(job, { __index = function(_, key) if key == "script" then return get() end end })
end
"""
_SLURM = b"slurm = { log_user = function() end, log_error = function() end }"
PLAIN: dict[str, Any] = {
    "partition": b"gpu", "tres_per_node": b"gres/gpu:a100:2", "min_nodes": 1, "num_tasks": 1, "requeue": 65534,
    "comment": b"my own words", "script": b"#!/bin/sh\n" * 50,
    "SODA_MODEL": b"resnet50", "SODA_BATCH_SIZE": b"64", "SODA_CHECKPOINT": b"TERM@10",
}  # fmt: skip


class LuaBench:
    """soda.lua, a wake file and a file of routes with so many kinds of nodes, each with its six pools."""

    def __init__(self, version: str, folder: Path, kinds: int) -> None:
        self.lua: Any = import_module(f"lupa.{version}").LuaRuntime(encoding=None)
        self.lua.execute(_SLURM)
        self._fresh = self.lua.execute(_FRESH)
        self.soda = self.lua.globals()[b"dofile"](bytes(SODA))
        self._routes = folder / "pools.routes"
        self.soda[b"wake_path"] = bytes(folder / "wake")
        self.soda[b"routes_path"] = bytes(self._routes)
        classes = [NodeClass(f"t{i}", 4, 28) for i in range(kinds - 1)] + [NodeClass("a100", 4, 28)]
        nodes = [(f"n{i}{j}", c) for i, c in enumerate(classes) for j in range(4)]
        self._pools = plan_pool_partitions("gpu", 1, 0, nodes, dict.fromkeys(classes, PoolShare(8, 2)))
        self._changes = 0
        self.change_routes()

    def routes(self, table: PoolTable, kill_wait_s: int) -> int:
        """Write the file; how many partitions it has."""
        self._routes.write_text(render_routes(table, RoutingRules(kill_wait_s=kill_wait_s)))
        return len(table)

    def change_routes(self) -> int:
        """The same pools with another rule, which is read anew; how many there are."""
        self._changes += 1
        return self.routes(self._pools, self._changes)

    def changed_ms(self) -> float:
        """CPU time of the first submission after a change."""
        self.change_routes()
        return self.submit_ms(PLAIN)

    def job(self, fields: dict[str, Any]) -> Any:
        """A table that stands in for Slurm's; fields that are variables are its SPANK environment."""
        job = self.lua.table_from({key.encode(): value for key, value in fields.items()})
        env = [f"{key}=".encode() + value for key, value in fields.items() if key.startswith("SODA_")]
        script = job[b"script"]
        job[b"script"] = None  # Slurm makes a new string of it whenever lua looks
        self._fresh(job, lambda: script)
        job[b"spank_job_env"], job[b"spank_job_env_size"] = self.lua.table_from(dict(enumerate(env))), len(env)
        return job

    def submit_ms(self, fields: dict[str, Any]) -> float:
        """CPU time of one submission."""
        job, submit = self.job(fields), self.soda[b"submit"]
        return _cpu_ms(lambda: submit(job, None))

    def modify_ms(self, record: dict[str, Any], fields: dict[str, Any]) -> float:
        """CPU time of one change of a job by its owner."""
        job, before, modify = (
            self.job(fields),
            self.job({"user_id": 1000, "job_state": 0, **record}),
            self.soda[b"modify"],
        )
        return _cpu_ms(lambda: modify(job, before, 1000))


def _cpu_ms(call: Callable[[], Any]) -> float:
    begun_ns = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - begun_ns) / 1e6


@click.command()
@click.option("--runs", default=500, show_default=True, help="Submissions and changes of each sort.")
@click.option("--version", default="lua51", show_default=True, help="lupa's name of the version of lua.")
@click.option("--kinds", default=5, show_default=True, help="Kinds of nodes in the divided partition, six pools each.")
def main(runs: int, version: str, kinds: int) -> None:
    """How long job_submit.lua holds slurmctld's locks."""
    table = Table(box=None, header_style="bold")
    for title in ("", "median", "p99", "worst", "single worst"):
        table.add_column(title, justify="right" if title else "left")

    def row(name: str, count: int, call_ms: Callable[[], float]) -> None:
        bench.lua.execute(b"collectgarbage()")  # the row before left its texts
        taken_ms = [[call_ms() for _ in range(REPEATS)] for _ in range(max(count, 1))]
        jobs_ms = sorted(map(statistics.median, taken_ms))
        figures = (statistics.median(jobs_ms), jobs_ms[int(len(jobs_ms) * 0.99)], jobs_ms[-1], max(map(max, taken_ms)))
        table.add_row(name, *(f"{figure:.3f} ms" for figure in figures))

    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        bench = LuaBench(version, Path(folder), kinds)
        row("an ordinary submission", runs, lambda: bench.submit_ms(PLAIN))
        row("a new comment", runs, lambda: bench.modify_ms(PLAIN, {"comment": b"new"}))
        texts = hardest_texts(bench)
        each = cycle(PLAIN | {field: text} for field, text in texts.items() for _ in range(REPEATS))
        row("hardest text found, each field by itself", runs, lambda: bench.submit_ms(next(each)))
        everything = PLAIN | texts | {"script": b"x" * SCRIPT_MAX_BYTES}
        row("all of them at once", runs, lambda: bench.submit_ms(everything))
        long_script = PLAIN | {"tres_per_node": b"", "script": everything["script"]}
        row("a CPU job with a script of 4 MiB", runs, lambda: bench.submit_ms(long_script))
        row("a change with all of them", runs, lambda: bench.modify_ms(everything, texts))
        row(f"the first after a change of {bench.change_routes()} pools", runs // 10, bench.changed_ms)
    Console(width=120).print(table)


def hardest_texts(bench: LuaBench) -> dict[str, bytes]:
    """The hardest text found of each field, as long as Slurm takes it."""
    found = {}
    for field, length in SLURMS_LIMITS.items():
        shape = hardest(field, lambda text, field=field: bench.submit_ms(PLAIN | {field: text}), length=1024, tries=100)
        found[field] = shape.text(length)
    return found


if __name__ == "__main__":
    main()
