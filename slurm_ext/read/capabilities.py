"""What this Slurm's commands can tell, found out by trying and not by its version's number.

All of it is asked without slurmctld: which options and fields a command knows is in the command itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner
from slurm_soda.slurm_ext.errors import SlurmCommandError

_JSON_PROBE = ("scontrol", "--json", "show", "hostnames", "soda")
"""Needs the option and the plugin that writes JSON, but no slurmctld."""
_NO_OPTION = re.compile(
    r"(?i)(unrecognized|invalid|unknown) option"
    r"|(plugin|serializer|data_parser)[^\n]*(fail|not|unable)|unable[^\n]*(plugin|json)"
)
_SACCT_PROBE = ("sacct", "--helpformat")
_WITHOUT_JSON = (
    "jobs on several nodes and requests are read from scontrol's text; one whose name or command looks like another field is"
    " left as it is; no guests on shared GPUs"
)
_WITHOUT_RESTARTS = "runs are counted in the order in which they were submitted"
_REMEDY = "install Slurm's client commands"


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that some versions of Slurm do not tell."""

    name: str
    present: bool
    otherwise: str
    """What is done, or left undone, where it is not there."""
    sharing_needs_it: bool = False
    """Without it no job can be a guest on another one's GPUs."""


@dataclass
class CommandCapabilities:
    """Of the Slurm behind a runner. Each is asked for once, when it is first needed; an answer that does not come is asked
    for again.
    """

    runner: CommandRunner
    environment: Mapping[str, str] = field(default_factory=lambda: SLURM_ENVIRONMENT)
    timeout_s: float = 15.0
    _json: bool | None = None
    _sacct_fields: frozenset[str] | None = None

    def lacks_json_by(self, error: SlurmCommandError) -> bool:
        """Whether a ``scontrol --json`` failed because this Slurm has no such thing; remembered if so."""
        if error.status and _NO_OPTION.search(error.stderr):
            self._json = False
        return self._json is False

    @property
    def known_to_lack_json(self) -> bool:
        """Whether that was found before; asks nobody."""
        return self._json is False

    @property
    def json_jobs(self) -> bool:
        """``scontrol --json`` exists (23.02), and can write JSON.

        Raises:
            SlurmCommandError: scontrol is not there or does not answer.
        """
        if self._json is None:
            said = self.runner(_JSON_PROBE, stdin=b"", timeout_s=self.timeout_s, env=self.environment)
            try:
                said.check(_REMEDY)
            except SlurmCommandError as error:
                if not self.lacks_json_by(error):
                    raise
                return False
            self._json = True
        return self._json

    @property
    def sacct_fields(self) -> frozenset[str]:
        """The fields that sacct can print.

        Raises:
            SlurmCommandError: sacct is not there or does not answer.
        """
        if self._sacct_fields is None:
            said = self.runner(_SACCT_PROBE, stdin=b"", timeout_s=self.timeout_s, env=self.environment).check(_REMEDY)
            self._sacct_fields = frozenset(said.stdout.decode("ascii", "replace").split())
        return self._sacct_fields

    def every(self) -> Iterator[Capability]:
        """All of them, for people. Those of a command that does not answer are left out."""
        with suppress(SlurmCommandError):
            yield Capability("jobs as JSON (scontrol --json)", self.json_jobs, _WITHOUT_JSON, sharing_needs_it=True)
        with suppress(SlurmCommandError):
            known = "Restarts" in self.sacct_fields
            yield Capability("restarts in accounting (sacct Restarts)", known, _WITHOUT_RESTARTS)
