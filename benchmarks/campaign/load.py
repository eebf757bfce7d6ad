"""The jobs of a round: what their owners type, and what must become of each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.campaign.schedule import STEP_CPUS, Event

_COMMON = ("--output=/dev/null", "--time=10", "--mem-per-cpu=16")
INTERACTIVE = ("srun", "salloc")
MODEL = "bert"
"""It depends least on cores: the agents' searches see those of the real machine, so later jobs get fewer than they need."""


@dataclass(slots=True)
class CampaignJob:
    """One submission, which Slurm's records have by its name: interactive ones do not tell their id."""

    name: str
    user: str
    kind: str
    submitted_s: float
    """Unix seconds, before the command."""
    records: int = 1
    """How many Slurm has of it: tasks of an array, components of a heterogeneous job."""
    job_id: int | None = None
    """``None``: sbatch did not tell, or the job is interactive."""
    held: bool = False
    """By its owner, now."""
    not_before_s: float = 0.0
    """It may start after this instant only: its owner said so, or released it then."""
    cancelled: bool = False
    requeued: int = 0
    """By its owner."""
    notes: list[str] = field(default_factory=list)

    @property
    def acknowledged(self) -> bool:
        """Slurm has said that it has the job."""
        return self.job_id is not None


@dataclass(frozen=True, slots=True)
class Submission:
    """A command line, with a script on standard input unless the command is interactive."""

    user: str
    argv: tuple[str, ...]
    script: str
    interactive: bool
    records: int


def submission(event: Event, name: str) -> Submission:
    """What the owner types for an event of the load that submits."""
    values = event.values
    argv, script = _BUILDERS[event.kind](values)
    command = event.kind if event.kind in INTERACTIVE else "sbatch"
    head = (command, f"--job-name={name}", "--time=10", "--mem-per-cpu=16")
    if command == "sbatch":
        head = (command, "--parsable", f"--job-name={name}", *_COMMON, *(("--requeue",) if event.kind != "het" else ()))
    records = int(values.get("tasks", 2 if event.kind == "het" else 1))
    return Submission(str(values["user"]), (*head, *argv), script, command != "sbatch", records)


def submits(event: Event) -> bool:
    """The event is a submission, not something that an owner does to a job."""
    return event.kind in _BUILDERS


def _trainer(values: Mapping[str, Any]) -> str:
    signal = str(values.get("signal", "")).partition("@")[0] or "TERM"
    argv = (
        "soda-train", f"--model={MODEL}", f"--duration-s={values['run_s']}", f"--signal={signal}", "--save-s=0.2",
        "--load-s=0.2", "--checkpoint-dir=checkpoints",
    )  # fmt: skip
    return shlex.join(argv)


def _hints(values: Mapping[str, Any]) -> tuple[str, ...]:
    signal = values.get("signal", "")
    return ("--soda-category=nlp", f"--soda-model={MODEL}", *((f"--soda-checkpoint={signal}",) if signal else ()))


def _train(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    gpus = values["gpus"]
    argv = (f"--gres=gpu:{gpus}", "--nodes=1", f"--cpus-per-task={2 * gpus}", *_hints(values))
    return argv, f"#!/bin/sh\nmkdir -p checkpoints\nexec {_trainer(values)}\n"


def _gang(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    argv = (f"--gres=gpu:{values['gpus']}", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", *_hints(values))
    step_cpus = values.get("step_cpus", STEP_CPUS[0])
    return argv, f"#!/bin/sh\nmkdir -p checkpoints\nexec srun --cpus-per-task={step_cpus} {_trainer(values)}\n"


def _sleep(values: Mapping[str, Any]) -> str:
    return f"#!/bin/sh\nexec sleep {values['run_s']}\n"


def _cpu(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    return (f"--cpus-per-task={values['cpus']}",), _sleep(values)


def _array(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    gpus = (f"--gres=gpu:{values['gpus']}",) if values["gpus"] else ()
    return (f"--array=1-{values['tasks']}", *gpus), _sleep(values)


def _het(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    return ("--gres=gpu:1", ":", "--cpus-per-task=2", "--mem-per-cpu=16"), _sleep(values)


def _srun(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    gpus = (f"--gres=gpu:{values['gpus']}",) if values["gpus"] else ()
    return (*gpus, "sleep", str(values["run_s"])), ""


def _salloc(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    return (f"--gres=gpu:{values['gpus']}", *_hints(values), "sleep", str(values["run_s"])), ""


def _held(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    return ("--hold", "--gres=gpu:1", "--soda-checkpoint=TERM"), _sleep(values)


def _begin(values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    return (f"--begin=now+{int(values['for_s'])}", "--gres=gpu:1"), _sleep(values)


_BUILDERS = {
    "train": _train,
    "long": _train,
    "gang": _gang,
    "cpu": _cpu,
    "array": _array,
    "het": _het,
    "srun": _srun,
    "salloc": _salloc,
    "held": _held,
    "begin": _begin,
}
