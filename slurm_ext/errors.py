"""Errors of the Slurm boundary. Each says what was tried, what came back and what to do next."""

from __future__ import annotations

from slurm_soda.wire.errors import SodaError

__all__ = ["HintError", "PriorityPluginError", "SlurmCommandError", "SlurmError", "SlurmReplyError", "SodaError"]


SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin:/usr/local/slurm/bin"
"""Where Slurm's commands are looked for."""

NOT_FOUND = 127
"""Exit status of a command that is not there, as a shell gives it."""


class HintError(SodaError):
    """A ``--soda-…`` value that is not allowed; names the flag, the value and what is allowed."""


class SlurmError(SodaError):
    """Slurm did not do what it was asked."""


_MOST_SHOWN = 2000
"""Characters of what a command wrote to standard error that its error shows."""
_NO_ANSWER_TEXTS = ("timed out", "zero bytes")
"""Slurm's words, in small letters, where a request was sent and no answer came."""


def is_no_answer(text: str) -> bool:
    """Whether this complaint of a Slurm command says that slurmctld was asked and did not answer."""
    return any(words in text.lower() for words in _NO_ANSWER_TEXTS)


_MUNGE_REMEDY = (
    "check that munged runs on this host and on the controller (systemctl status munge; munge -n | unmunge): "
    "Slurm's commands authenticate by it"
)


class SlurmCommandError(SlurmError):
    """A Slurm command failed or ran out of time.

    Attributes:
        argv: the command as run.
        status: exit status, or ``None`` when it was stopped at its time limit.
        stderr: what it wrote to standard error, undecodable bytes escaped.
    """

    def __init__(self, argv: tuple[str, ...], status: int | None, stderr: str, remedy: str) -> None:
        self.argv, self.status, self.stderr = argv, status, stderr
        if status == NOT_FOUND:
            super().__init__(_missing(argv[0]))
            return
        what = "did not answer in time" if status is None else f"exited with status {status}"
        told = stderr.strip()
        if (more := len(told) - _MOST_SHOWN) > 0:
            told = f"{told[:_MOST_SHOWN]} (and {more} characters more)"
        said = f": {told}" if told else ""
        remedy = _MUNGE_REMEDY if "munge" in stderr.lower() else remedy
        super().__init__(f"{' '.join(argv[:6])} {what}{said}; {remedy}")

    @property
    def may_have_happened(self) -> bool:
        """Whether Slurm may have done, or may yet do, what was asked: no answer came, or the command was killed."""
        return self.status is None or self.status < 0 or is_no_answer(self.stderr)


def _missing(program: str) -> str:
    return (
        f"{program} is not installed on this host: run this where Slurm's commands are (a login node, the controller), or "
        f"install or link them into one of {SEARCH_PATH.replace(':', ', ')}"
    )


class PriorityPluginError(SlurmError):
    """Slurm has a priority plugin that knows no SiteFactor, such as priority/basic."""

    def __init__(self, plugin: str) -> None:
        super().__init__(
            f"PriorityType={plugin} knows no SiteFactor, so slurm-soda cannot order jobs and changes nothing: set "
            "PriorityType=priority/multifactor in slurm.conf and restart slurmctld"
        )


class SlurmReplyError(SlurmError):
    """A reply of Slurm that is cut short or that this version of slurm-soda cannot read: nothing is done with it."""


class OutputTooLongError(SlurmError):
    """A command printed more than anybody wants to read, and was stopped."""
