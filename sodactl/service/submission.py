"""How the arrays of a service are submitted: arguments of ``sbatch``, the batch script, and the program that it runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl.service.assessment import ArrayPlan
from slurm_soda.sodactl.service.service_directory import put_file
from slurm_soda.sodactl.service.service_on_disk import ServiceOnDisk

SERVE = "slurm_soda_serve.py"
"""The program that keeps one instance, in ``slurm_soda.services``: one file that nodes need nothing else for."""
LOGS = "logs"
FIRST_WAIT_S = 60.0
"""No task starts sooner: in this time sodad finds the array, and says which tasks may start. sodad knows a wait of this
length as ours (``slurm_ext/write/start_leases.py``), and ends it as soon as it has decided."""

_OURS = (
    "--array",
    "--soda-service",
    "--requeue",
    "--no-requeue",
    "--wrap",
    "--parsable",
    "--wait",
    "--test-only",
    "--help",
)
"""Options of ``sbatch`` without which, or with another value of which, a service does not work."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One call of ``sbatch``."""

    plan: ArrayPlan
    tasks: int
    argv: tuple[str, ...]
    script: str
    """The batch script, for its standard input."""


def plan_submission(found: ServiceOnDisk, plan: ArrayPlan, tasks: int) -> Submission:
    """The call that submits one array.

    Raises:
        SodaError: the file's own arguments of ``sbatch`` would break it.
    """
    service, directory = found.service, found.directory
    own = (service.gpu if plan.device == "gpu" else service.cpu) or None
    arguments = own.sbatch if own else ()
    _refuse_ours(f"{found.path} [{plan.device}]", arguments)
    types = own.types if own else ()
    if types and _asks_for_gpus(arguments):
        raise SodaError(
            f"{found.path} [gpu]: sbatch asks for GPUs, and so do types {', '.join(types)}; remove one of the two"
        )
    of_type = f"{plan.gpu_type}:" if types else ""
    argv = [
        "sbatch",
        "--parsable",
        f"--array=0-{tasks - 1}",
        "--requeue",
        f"--begin=now+{FIRST_WAIT_S:.0f}",
        f"--soda-service={service.name}",
        f"--job-name={service.name}-{plan.device}{f'-{plan.gpu_type}' if types else ''}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={plan.cores}",
        f"--chdir={found.path.parent}",
        f"--output={str(directory / LOGS).replace('%', '%%')}/%A_%a.log",
        "--open-mode=append",
    ]
    if plan.gpus and not _asks_for_gpus(arguments):
        argv.append(f"--gres=gpu:{of_type}{plan.gpus}")
    return Submission(plan, tasks, (*argv, *arguments), _script(found, plan))


def _script(found: ServiceOnDisk, plan: ArrayPlan) -> str:
    service = found.service
    words = [
        "python3",
        str(found.directory / SERVE),
        "--service",
        service.name,
        "--folder",
        str(found.folder),
        "--device",
        plan.device,
        "--health",
        service.health,
        "--batch",
        str(plan.batch),
        "--window-ms",
        f"{service.window_ms:g}",
        "--cores",
        str(plan.cores),
        *(("--gpu-type", plan.gpu_type) if plan.gpu_type else ()),
        "--",
        service.command,
    ]
    # exec: the program itself is what Slurm sends its signals to
    return f"#!/bin/sh\n# An instance of the inference service {service.name}\nexec {shlex.join(words)}\n"


def _asks_for_gpus(arguments: Sequence[str]) -> bool:
    """Whether the file's own arguments ask for GPUs in their own way, such as ``--gres=gpu:a100:1``."""
    return any(
        one.startswith(("--gpus", "-G")) or ("gpu" in one and one.startswith(("--gres", "--tres-per")))
        for one in arguments
    )


def _refuse_ours(what: str, arguments: Sequence[str]) -> None:
    for at, argument in enumerate(arguments):
        name = argument.partition("=")[0]
        ours = argument.startswith(("-a", "-W", "-h")) if not argument.startswith("--") else None
        if ours or (len(name) > 2 and any(one.startswith(name) for one in _OURS)):
            raise SodaError(
                f"{what}: sbatch has {argument!r}, which a service sets itself; remove it (most is its tasks)"
            )
        before = arguments[at - 1] if at else ""
        if name == "--" or not (argument.startswith("-") or (before.startswith("-") and "=" not in before)):
            raise SodaError(
                f"{what}: sbatch has {argument!r}, which is no option: sbatch would take it for the batch script; give"
                " options, such as --partition=gpu"
            )


def put_program(found: ServiceOnDisk) -> None:
    """Put the program that keeps an instance into the service's directory, beside one for logs.

    The copy belongs to the service: an upgrade of slurm-soda changes nothing for instances that run or wait.

    Raises:
        SodaError: see :func:`.put_file`.
    """
    put_file(found, SERVE, _program(), beside=(LOGS,))


def _program() -> bytes:
    package = find_spec("slurm_soda.services")
    places = list(package.submodule_search_locations or ()) if package else []
    for place in places:
        path = Path(place) / SERVE
        if path.is_file():
            return path.read_bytes()
    raise SodaError(f"{SERVE} is not installed beside this sodactl; reinstall slurm-soda")
