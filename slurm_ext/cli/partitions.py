"""Partitions through scontrol: read whole, created, changed and deleted one at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.cli.framing import Framing, marked, random_nonce
from slurm_soda.slurm_ext.cli.runner import ENVIRONMENT, Runner
from slurm_soda.slurm_ext.cli.waiting import WaitingJob, waiting_in
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.hostlist import expand

SHOW_PARTITIONS = ("scontrol", "--oneliner", "--all", "show", "partition")
SHOW_CONFIG = ("scontrol", "show", "config")
SHOW_ASSOCIATIONS = ("sacctmgr", "--noheader", "--parsable2", "show", "associations", "format=partition")

_KEY = re.compile(r"(?:^| )([A-Za-z]+)=")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_SETTING = re.compile(r"[A-Za-z]{1,40}")
_VALUE = re.compile(r"[A-Za-z0-9_.,:;/*+%@=\[\]()-]{1,200000}")
_REMEDY = "check that slurmctld answers (scontrol ping) and that this user is root or SlurmUser"


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """One partition as Slurm tells it."""

    name: str
    fields: Mapping[str, str]
    """All that ``scontrol show partition`` says, in its words and order."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its nodes."""
        return expand(self.fields.get("Nodes", ""))

    @property
    def tier(self) -> int:
        """PriorityTier."""
        return int(self.fields.get("PriorityTier", "1"))

    @property
    def is_default(self) -> bool:
        """Jobs that name no partition come here."""
        return self.fields.get("Default") == "YES"


@dataclass(frozen=True)
class CliPartitions:
    """Slurm's partitions and configuration through scontrol."""

    runner: Runner
    read_s: float = 15.0
    act_s: float = 20.0
    environment: Mapping[str, str] = field(default_factory=lambda: ENVIRONMENT)

    def partitions(self) -> dict[str, PartitionRecord]:
        """All partitions by name, hidden ones too, in slurmctld's order.

        Raises:
            SlurmCommandError: scontrol failed or did not answer in time.
            SlurmReplyError: its answer cannot be read.
        """
        return parse_partitions(*self._read(SHOW_PARTITIONS))

    def config(self) -> dict[str, str]:
        """slurm.conf as slurmctld has it.

        Raises:
            SlurmCommandError, SlurmReplyError: as for :meth:`partitions`.
        """
        stdout, framing = self._read(SHOW_CONFIG)
        pairs = (line.partition("=") for line in framing.body(stdout, "scontrol's configuration").splitlines())
        return {key.strip(): value.strip() for key, equals, value in pairs if equals and key.strip()}

    def bound_partitions(self) -> set[str] | None:
        """Partitions that accounting associations are bound to; ``None`` where accounting does not say."""
        try:
            stdout, framing = self._read(SHOW_ASSOCIATIONS)
        except SlurmCommandError:
            return None
        return set(framing.body(stdout, "sacctmgr's associations").split())

    def create(self, name: str, settings: Mapping[str, str]) -> None:
        """Make a partition.

        Raises:
            SlurmCommandError: Slurm refused.
        """
        self._change("create", name, settings)

    def update(self, name: str, settings: Mapping[str, str]) -> None:
        """Change settings of a partition. Raises as :meth:`create`."""
        self._change("update", name, settings)

    def delete(self, name: str) -> None:
        """Remove a partition; Slurm refuses while a job waits, runs or ends in it. Raises as :meth:`create`."""
        self._act(("scontrol", "delete", f"PartitionName={_checked(_NAME, name, 'partition')}"))

    def waiting(self, names: Collection[str]) -> dict[int, WaitingJob]:
        """Jobs that wait in any of these partitions, in the detail that routing needs. Raises as :meth:`partitions`."""
        return waiting_in(self.runner, names, self.read_s) if names else {}

    def _change(self, verb: str, name: str, settings: Mapping[str, str]) -> None:
        self._act(("scontrol", verb, *words(name, settings)))

    def _act(self, argv: Sequence[str]) -> None:
        self.runner(argv, stdin=b"", timeout_s=self.act_s, env=self.environment).check(_REMEDY)

    def _read(self, argv: Sequence[str]) -> tuple[bytes, Framing]:
        framing = Framing(random_nonce())
        said = self.runner(
            marked(argv), stdin=b"", timeout_s=self.read_s, env={**self.environment, **framing.env}
        )  # fmt: skip
        if said.status != 0:
            raise SlurmCommandError(tuple(argv), said.status, said.stderr.decode("utf-8", "backslashreplace"), _REMEDY)
        return said.stdout, framing


def parse_partitions(stdout: bytes, framing: Framing) -> dict[str, PartitionRecord]:
    """The partitions of a reply, one a line.

    Raises:
        SlurmReplyError: the reply is cut short or cannot be read.
    """
    found: dict[str, PartitionRecord] = {}
    for line in framing.body(stdout, "scontrol's list of partitions").split("\n"):
        starts = list(_KEY.finditer(line))
        if not starts or starts[0][1] != "PartitionName":
            continue
        ends = [start.start() for start in starts[1:]] + [len(line)]
        fields = {start[1]: line[start.end() : end].strip() for start, end in zip(starts, ends, strict=True)}
        record = PartitionRecord(fields.pop("PartitionName"), fields)
        if not fields.get("PriorityTier", "1").isdigit() or "State" not in fields:
            raise SlurmReplyError(f"scontrol's partition {record.name!r} cannot be read: {line[:80]!r}")
        found[record.name] = record
    return found


def words(name: str, settings: Mapping[str, str]) -> list[str]:
    """A partition with its settings as words that scontrol and slurm.conf read, none of which can be more than one.

    Raises:
        SlurmReplyError: a name, setting or value has a character that partitions never need.
    """
    checked = [f"{_checked(_SETTING, key, 'setting')}={_checked(_VALUE, of, key)}" for key, of in settings.items()]
    return [f"PartitionName={_checked(_NAME, name, 'partition')}", *checked]


def _checked(grammar: re.Pattern[str], value: str, what: str) -> str:
    if not grammar.fullmatch(value):
        raise SlurmReplyError(
            f"{what} {value[:60]!r} is not given to Slurm; it has a character that partitions never need"
        )
    return value
