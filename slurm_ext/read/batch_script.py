"""Whether a batch script gives CPUs to its steps by itself, so that they do not follow the job's request, or divides these
among steps that run at the same time, which then wait for each other where the job has fewer.

A step that asks for more CPUs than its job has is not refused: srun says "Job step may never run" and waits until the job's
time limit; one that asks for more than other steps leave waits for these (measured, Slurm 24.11). So the CPUs of a job are
changed only if every ``srun`` in its script has options that are known to follow the request, or to have nothing to do with
it, and if there is one step at a time as far as its text tells. Scripts and programs that this one starts are not seen.
"""

from __future__ import annotations

import re
from functools import lru_cache

from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming

MAX_SCRIPT_BYTES = 1 << 18
"""A longer script is not looked into, nor read to its end. Slurm takes 4 MiB (``max_script_size``)."""
SCRIPT_TOO_LONG = "a script of more than 256 KiB"

_OF_SLURM = r'"?\$\{?SLURM_[A-Z_]+\}?"?'
"""A variable that Slurm sets when the job starts."""
_PLAIN = r"[\w.,:/@%+=-]+"
_END = r"(?=[ \t]|$)"

_SRUN = re.compile(r"\bsrun\b")
_COMMAND = re.compile(r"[ \t]+[\w./]")
_ENVIRONMENT = re.compile(rf"\b(?:SRUN|SLURM)_(?:CPUS_PER_TASK|TRES_PER_TASK|NTASKS\w*|NPROCS|EXACT)=(?!{_OF_SLURM})")
_BINDING = re.compile(r"\b(?:taskset|numactl|pe=[0-9])", re.IGNORECASE)

_LAUNCHER = re.compile(r"\b(?:srun|mpirun|mpiexec|orterun|prterun|prun|ibrun)\b")
"""What starts a step, at least on several nodes."""
_BESIDE = re.compile(
    r"(?<![&<>|])&(?![&>])|\b(?:coproc|parallel)\b|[<>]\(|\|[ \t]*(?:while|until)\b|[ \t](?:-[A-Za-z0-9]*P|--max-procs)"
)
"""What lets commands of a script run at the same time: ``&`` (not ``&&``, ``>&`` or ``&>``), ``xargs -P`` and the like."""
_REPEATED = re.compile(r"\b(?:for|while|until|select|function|eval|xargs|parallel)\b|\(\)")
"""What may run one line several times."""
_PIPE = re.compile(r"(?<!\|)\|(?!\|)")


@lru_cache(maxsize=64)
def _known_options(tasks: int) -> re.Pattern[str]:
    """Options of srun that are right with any number of CPUs; of numbers of tasks one, and the job's own."""
    same_tasks = rf"(?:1|{tasks}|{_OF_SLURM})"
    return re.compile(
        rf"""(?:[ \t]+(?:
            (?:--cpus-per-task[= ]|-c[ ]?)(?:1|{_OF_SLURM})
          | (?:--ntasks[= ]|-n[ ]?){same_tasks}
          | --ntasks-per-node[= ](?:1|{_OF_SLURM})
          | (?:--nodes[= ]|-N[ ]?)(?:[0-9]+|{_OF_SLURM})
          | --(?:chdir|error|export|gpus|gres|input|job-name|mpi|output|time)[= ]{_PLAIN}
          | --(?:container-[a-z-]+|kill-on-bad-exit|signal|soda-[a-z-]+|wait)={_PLAIN}
          | --(?:kill-on-bad-exit|label|no-kill|pty|quiet|unbuffered|verbose)
          | -[DJeiot][ ]?{_PLAIN}
          | -[Kkluv]+
        ){_END})*""",
        re.VERBOSE,
    )


def show_script_command(job_id: int) -> tuple[str, ...]:
    """The command that prints one job's script."""
    return ("scontrol", "write", "batch_script", str(job_id), "-")


def parse_script(stdout: bytes, framing: ReplyFraming, job_id: int) -> str:
    """The reply to :func:`show_script_command`.

    Raises:
        SlurmReplyError: it is cut short.
    """
    return framing.body(stdout, f"the script of job {job_id}")


def steps_own_cpus(script: str, tasks: int) -> str:
    """What in a script gives CPUs to steps, or may; empty: nothing. O(n) for n characters.

    Args:
        script: as it was submitted.
        tasks: of the job.
    """
    if len(script) > MAX_SCRIPT_BYTES:
        return SCRIPT_TOO_LONG
    text = re.sub(r"^[ \t]*#.*$", "", script.replace("\\\n", " "), flags=re.MULTILINE)
    if _ENVIRONMENT.search(text):
        return "a variable for srun in its script"
    if _BINDING.search(text):
        return "cores that its script binds to"
    if _has_steps_at_once(text):
        return "steps that may run at the same time in its script"
    known, at = _known_options(tasks), 0
    while found := _SRUN.search(text, at):
        options = known.match(text, found.end())
        if options is None or not _COMMAND.match(text, options.end()):
            return "options of srun in its script"
        at = options.end()
    return ""


def _has_steps_at_once(text: str) -> bool:
    """Whether there may be several steps at a time. A step that runs beside other commands, as for ``wait``, is one."""
    launchers = sum(1 for _ in _LAUNCHER.finditer(text))
    if launchers and _BESIDE.search(text) and (launchers > 1 or _REPEATED.search(text)):
        return True
    lines = re.sub(r"\|[ \t]*\n", "| ", text).split("\n") if launchers > 1 else []
    return any(sum(1 for part in _PIPE.split(line) if _LAUNCHER.search(part)) > 1 for line in lines)
