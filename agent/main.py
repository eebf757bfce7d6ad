"""``soda-agent``: the command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil

from slurm_soda.agent.agent import Agent, AgentDependencies
from slurm_soda.agent.contention.memory_controller import MemoryBandwidthController
from slurm_soda.agent.cpusets.core_controller import CoreLimitsController
from slurm_soda.agent.cpusets.core_limits import JobCoreLimits
from slurm_soda.agent.mps.mps_news import MpsNews
from slurm_soda.agent.mps.mps_watch import MpsWatch
from slurm_soda.agent.network.network_controller import NetworkController, NetworkDependencies
from slurm_soda.agent.reporting.core_messages import CoreMessages
from slurm_soda.agent.reporting.recent_faults import RecentFaults
from slurm_soda.agent.reporting.run_records import RunRecords
from slurm_soda.agent.reporting.upload import Backoff, FirstThatAnswers, HttpUploader, Uploader
from slurm_soda.agent.resource_controller import ResourceController
from slurm_soda.agent.sampling.cpu_time import CpuReader
from slurm_soda.agent.sampling.gpus import Gpus
from slurm_soda.agent.sampling.hook_walls import HookWalls
from slurm_soda.agent.sampling.job_processes import JobProcesses
from slurm_soda.agent.sampling.progress_files import ProgressFiles
from slurm_soda.agent.sampling.sm_use import SmUseCounter
from slurm_soda.agent.settings.agent_config import CONFIG_FILE, AgentConfig, load_agent_config
from slurm_soda.agent.tuning.tuning_controller import CoreTuningController
from slurm_soda.wire.errors import SodaError
from slurm_soda.wire.munge import Munge
from slurm_soda.wire.spool import Spool


def build_agent(config: AgentConfig, *, keeps: bool) -> Agent:
    """An agent over the real node; without ``keeps`` it only measures.

    Raises:
        SpoolError: the spool cannot be used.
    """
    spool = Spool(config.spool)
    spool.clear_leftovers()
    faults, gpus, core_messages, mps = RecentFaults(), Gpus(), CoreMessages(), MpsNews()
    controllers = _controllers(config, gpus, core_messages) if keeps else ()
    measures = (one.bandwidth for one in controllers if isinstance(one, MemoryBandwidthController))
    parts = AgentDependencies(
        clock=time.time,
        steady=time.monotonic,
        run_records=RunRecords(spool, faults, config.spool_files),
        cpu=CpuReader(config.cgroup_root),
        gpus=gpus,
        progress=ProgressFiles(config.progress),
        sm_use=SmUseCounter(gpus, JobProcesses(config.cgroup_root), config.interval_s),
        uploader=_uploader(config),
        backoff=Backoff(config.retry_max_s, random.Random()),  # noqa: S311  (spreads retries, guards nothing)
        faults=faults,
        environ=os.environ,
        booted_s=psutil.boot_time(),
        resource_controllers=(*controllers, MpsWatch(gpus, mps)) if keeps else (),
        core_messages=core_messages,
        mps=mps,
        walls=HookWalls().read,
        bandwidth=next(measures, lambda: None),
    )
    return Agent(config, parts)


def _uploader(config: AgentConfig) -> Uploader:
    urls, key = config.controllers or (config.controller,), "controllers" if config.controllers else "controller"
    munge = Munge()
    return FirstThatAnswers(
        [HttpUploader(url, munge, config.upload_timeout_s, config.controller_user) for url in urls], key
    )


def _controllers(config: AgentConfig, gpus: Gpus, core_messages: CoreMessages) -> tuple[ResourceController, ...]:
    """In the order of their turns. That of the cpusets is always there: an earlier agent may have had it enabled."""
    state, job_processes = Path(config.state), JobProcesses(config.cgroup_root)
    cores = JobCoreLimits(
        config.cgroup_root, state / "cores.json", lambda job: job_processes.processes([job])[job.job_id], gpus.near
    )
    return (
        CoreLimitsController(cores),
        *(
            [CoreTuningController(config.cores, state / "tuning.json", cores, core_messages)]
            if config.cores.enabled
            else []
        ),
        MemoryBandwidthController(config.memory, state, job_processes, cores.holder("memory"), cores.held),
        NetworkController(config.network, state, NetworkDependencies(job_processes)),
    )


async def _run(config: AgentConfig, *, once: bool) -> None:
    agent = build_agent(config, keeps=not once)
    if once:
        agent.sample()
        await agent.upload()
        return
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await agent.run(stop)


def make_parser() -> argparse.ArgumentParser:
    """What the command line may say."""
    parser = argparse.ArgumentParser(
        prog="soda-agent", description="Samples the jobs of this node and reports them to sodad."
    )
    parser.add_argument("--config", type=Path, help=f"configuration file (default: {CONFIG_FILE}, may be absent)")
    parser.add_argument("--interval-s", type=float, help="seconds between two samples (overrides the file)")
    parser.add_argument("--once", action="store_true", help="take one sample, send one report and leave")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the agent; the exit status is returned."""
    arguments = make_parser().parse_args(argv)
    try:
        config = load_agent_config(arguments.config or CONFIG_FILE, os.environ, required=arguments.config is not None)
        if arguments.interval_s is not None:
            config = replace(config, interval_s=max(arguments.interval_s, 0.05))
        logging.basicConfig(
            level=config.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        asyncio.run(_run(config, once=arguments.once))
    except SodaError as error:
        sys.stderr.write(f"soda-agent: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
