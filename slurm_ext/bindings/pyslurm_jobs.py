"""The list of jobs through pyslurm: when it is used, what it is not asked, and what happens when it fails."""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_soda.slurm_ext.bindings import pyslurm_child
from slurm_soda.slurm_ext.bindings.child_process import ChildError, ChildProcess
from slurm_soda.slurm_ext.bindings.pyslurm_rows import VagueJobError, squeue_row
from slurm_soda.slurm_ext.client import SlurmJob
from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT
from slurm_soda.slurm_ext.errors import SlurmReplyError
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig
from slurm_soda.slurm_ext.read.slurm_values import JSON_ERRORS
from slurm_soda.slurm_ext.read.squeue_jobs import SqueueReader

FIRST_PAUSE_S = 30.0
"""After a failure commands read for so long; after each further one for twice as long as before."""
LONGEST_PAUSE_S = 3600.0
UNFIT_PAUSE_S = 600.0
"""A pyslurm of another version is looked at again after so long: somebody may have put that right."""
READINGS_OF_A_CHILD = 500
"""Then another one takes its place: what leaks in a library is bounded, and versions are compared again."""
MOST_VAGUE = 500
"""Jobs that squeue is asked about by their ids; where there are more it is asked about all."""

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
_NO_PLUGIN = ("", "(null)", "mcs/none", "none")


class UnfitError(ChildError):
    """This pyslurm must not read this Slurm."""


def pyslurm_child_process(python: str, timeout_s: float) -> ChildProcess:
    """The child that reads jobs.

    Args:
        python: interpreter that has pyslurm; empty: the one that runs this.
        timeout_s: a reading that takes longer is ended, by the child itself where its parent is gone.
    """
    # Isolated: neither the environment nor the working directory decides what is imported.
    argv = (python or sys.executable, "-I", f"{Path(pyslurm_child.__file__)}", str(math.ceil(timeout_s) + 1))
    # Without it Slurm's library cuts the list of an array's waiting tasks after 64 characters.
    return ChildProcess(argv, {**SLURM_ENVIRONMENT, "SLURM_BITSTR_LEN": "0"})


@dataclass
class PyslurmJobs:
    """Jobs as pyslurm tells them, changed ones only; those of which it does not tell all are for squeue."""

    child: ChildProcess
    slurm_config: Callable[[], SlurmConfig]
    """Asks slurmctld for its configuration."""
    squeue_rows: Callable[[Sequence[int]], Mapping[str, Sequence[str]]]
    """squeue's rows of these jobs and perhaps others, by id; those that are gone are missing."""
    timeout_s: float = 15.0
    keep: Callable[[], None] = lambda: None
    """Called before and after each question; may raise, which ends the reading."""
    on_failure: Callable[[str], None] = lambda _why: None
    """Told of each failure."""
    elapsed_s: Callable[[], float] = time.monotonic
    problem: str = ""
    """Why commands read the jobs now; empty: they do not."""
    versions: str = ""
    """Of pyslurm and of the Slurm that it was found fit for."""
    vague_now: int = 0
    """Jobs of the last reading that squeue was asked about."""
    _jobs: dict[int, SlurmJob] = field(default_factory=dict)
    _unreadable: dict[int, str] = field(default_factory=dict)
    _vague: set[int] = field(default_factory=set)
    _readings: int = 0
    _failures: int = 0
    _pause_until_s: float = -math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, reader: SqueueReader) -> list[SlurmJob] | None:
        """All jobs by id; ``None``: commands have to read them.

        Raises:
            SlurmError: Slurm itself did not answer, or no job can be read.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self.elapsed_s() < self._pause_until_s:
                return None
            whole = self._ask(reader)
        finally:
            self._lock.release()
        return reader.take(self._jobs.values(), self._unreadable.values()) if whole else None

    def close(self) -> None:
        """End the child."""
        self.child.stop()

    def _ask(self, reader: SqueueReader) -> bool:
        self.keep()
        try:
            if not self.child.runs:
                self._begin()
            answer = _decode(self.child.ask(self.timeout_s))
            self._take(answer, reader)
        except ChildError as error:
            self._fail(error)
            return False
        finally:
            self.keep()
        self._readings += 1
        if self._readings >= READINGS_OF_A_CHILD:
            self.child.stop()
            self._failures = 0
        self.problem = ""
        return self._resolve_vague(reader)

    def _begin(self) -> None:
        """Start a child, and compare versions.

        Raises:
            ChildError: it does not start, or is unfit.
        """
        self._jobs, self._unreadable, self._vague, self._readings = {}, {}, set(), 0
        first = _decode(self.child.start(self.timeout_s))
        self.versions = check_versions(first, self.slurm_config())

    def _take(self, answer: Mapping[str, Any], reader: SqueueReader) -> None:
        now_s = time.time()
        try:
            for job_id in answer["gone"]:
                self._forget(job_id)
            for row in answer["changed"]:
                self._take_job(row, now_s, reader)
            known = len(self._jobs) + len(self._unreadable) + len(self._vague)
            if known != answer["count"]:
                raise ValueError(f"{answer['count']} jobs, of which {known} were told")
        except JSON_ERRORS as error:
            raise ChildError(f"the child process answered in another form: {error}") from error

    def _take_job(self, row: Sequence[Any], now_s: float, reader: SqueueReader) -> None:
        job_id = int(row[0])
        self._forget(job_id)
        try:
            shown = squeue_row(row, now_s)
        except VagueJobError:
            self._vague.add(job_id)
            return
        self._record(job_id, shown, reader)

    def _record(self, job_id: int, row: Sequence[str], reader: SqueueReader) -> None:
        """Take in a row as squeue prints it."""
        try:
            self._jobs[job_id] = reader.record(row)
        except SlurmReplyError as error:
            self._unreadable[job_id] = f"job {job_id} is left out: {error}"

    def _forget(self, job_id: int) -> None:
        self._jobs.pop(job_id, None)
        self._unreadable.pop(job_id, None)
        self._vague.discard(job_id)

    def _resolve_vague(self, reader: SqueueReader) -> bool:
        """Ask squeue about jobs that pyslurm does not tell all of; False: there are too many of them."""
        self.vague_now = len(self._vague)
        if self.vague_now > MOST_VAGUE:
            return False
        rows = self.squeue_rows(sorted(self._vague)) if self._vague else {}
        for job_id in list(self._vague):
            row = rows.get(str(job_id))
            if row is None:
                continue  # gone since; it is asked about again if it is not
            self._record(job_id, row, reader)
            self._vague.discard(job_id)
        return True

    def _fail(self, error: ChildError) -> None:
        self.child.stop()
        if isinstance(error, UnfitError):
            pause_s = UNFIT_PAUSE_S
        else:
            self._failures += 1
            pause_s = min(FIRST_PAUSE_S * 2 ** min(self._failures - 1, 20), LONGEST_PAUSE_S)
        self._pause_until_s = self.elapsed_s() + pause_s
        why = f"squeue reads the jobs instead of pyslurm: {error}; pyslurm is tried again after {pause_s:.0f} s"
        self.problem = why
        self.on_failure(why)


def check_versions(first: Mapping[str, Any], config: SlurmConfig) -> str:
    """The versions of a pyslurm and a Slurm that fit together.

    Args:
        first: what the child says first.
        config: slurmctld's configuration.

    Raises:
        UnfitError: pyslurm must not read this Slurm.
        ChildError: the versions cannot be read.
    """
    try:
        binding, library = _release(str(first["pyslurm"])), tuple(int(number) for number in first["library"][:2])
    except JSON_ERRORS as error:
        raise ChildError(f"the child process tells no versions: {error}") from error
    running = config.get("SLURM_VERSION", "")
    slurm = _release(running)
    shown = f"pyslurm {str(first['pyslurm'])[:40]}, built for Slurm {'.'.join(f'{n:02}' for n in library)}"
    if slurm is None:
        raise ChildError("slurmctld does not tell its version")
    if binding != slurm or library != slurm:
        raise UnfitError(f"{shown}, does not fit slurmctld {running}: install the pyslurm of that release")
    if config.get("MCSPlugin", "") not in _NO_PLUGIN:
        raise UnfitError(f"pyslurm does not follow changes of --exclusive=mcs (MCSPlugin={config['MCSPlugin']})")
    return f"{shown}; slurmctld {running}"


def _release(text: str) -> tuple[int, int] | None:
    """Year and month of a release: pyslurm writes 22.5 for Slurm's 22.05."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found else None


def _decode(answer: bytes) -> dict[str, Any]:
    try:
        told = json.loads(answer)
    except (*JSON_ERRORS, MemoryError) as error:
        raise ChildError(f"the child process answered no JSON ({error})") from error
    if not isinstance(told, dict):
        raise ChildError("the child process answered JSON of another form")
    if "error" in told:
        raise ChildError(f"pyslurm says: {str(told['error'])[:500]}")
    return told
