"""Partitions through scontrol: read whole, created, changed and deleted one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_soda.slurm_ext.command_runner import SLURM_ENVIRONMENT, CommandRunner
from slurm_soda.slurm_ext.errors import SlurmCommandError, SlurmReplyError
from slurm_soda.slurm_ext.read.asking import failure
from slurm_soda.slurm_ext.read.hostlist import expand_hosts
from slurm_soda.slurm_ext.read.reply_framing import ReplyFraming, random_nonce, with_end_mark
from slurm_soda.slurm_ext.read.slurm_config import SHOW_CONFIG_COMMAND
from slurm_soda.slurm_ext.read.slurm_values import parse_integer
from slurm_soda.slurm_ext.read.squeue_waiting import WaitingJob, read_waiting_jobs

SHOW_PARTITIONS_COMMAND = ("scontrol", "--oneliner", "--all", "show", "partition")
SHOW_ASSOCIATIONS_COMMAND = ("sacctmgr", "--noheader", "--parsable2", "show", "associations", "format=partition")

_KEY = re.compile(r"(?:^| )([A-Za-z]+)=")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_SETTING = re.compile(r"[A-Za-z]{1,40}")
_VALUE = re.compile(r"[A-Za-z0-9_.,:;/*+%@=\[\]()-]{1,200000}")
_REMEDY = "check that slurmctld answers (scontrol ping) and that this user is root or SlurmUser"


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """One partition as Slurm tells it."""

    name: str
    fields: Mapping[str, str]
    """All that ``scontrol show partition`` says, in its words and order."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its nodes."""
        return expand_hosts(self.fields.get("Nodes", ""))

    @property
    def tier(self) -> int:
        """PriorityTier."""
        return parse_integer(self.fields.get("PriorityTier", "1"), f"PriorityTier of {self.name}")

    @property
    def is_default(self) -> bool:
        """Jobs that name no partition come here."""
        return self.fields.get("Default") == "YES"


@dataclass(frozen=True)
class ScontrolPartitions:
    """Slurm's partitions and configuration through scontrol."""

    runner: CommandRunner
    read_s: float = 15.0
    act_s: float = 20.0
    environment: Mapping[str, str] = field(default_factory=lambda: SLURM_ENVIRONMENT)
    check: Callable[[], None] = lambda: None
    """Called before each command that changes something; what it raises ends the changing."""

    def partitions(self) -> dict[str, SlurmPartition]:
        """All partitions by name, hidden ones too, in slurmctld's order.

        Raises:
            SlurmCommandError: scontrol failed or did not answer in time.
            SlurmReplyError: its answer cannot be read.
        """
        return parse_partitions(*self._read(SHOW_PARTITIONS_COMMAND))

    def config(self) -> dict[str, str]:
        """slurm.conf as slurmctld has it.

        Raises:
            SlurmCommandError, SlurmReplyError: as for :meth:`partitions`.
        """
        stdout, framing = self._read(SHOW_CONFIG_COMMAND)
        pairs = (line.partition("=") for line in framing.body(stdout, "scontrol's configuration").splitlines())
        return {key.strip(): value.strip() for key, equals, value in pairs if equals and key.strip()}

    def bound_partitions(self, cluster: str = "") -> set[str] | None:
        """Partitions that accounting associations of a cluster are bound to, or of all that slurmdbd has where it is not
        named; ``None`` where accounting does not say.
        """
        of_cluster = (f"cluster={cluster}",) if cluster else ()
        try:
            stdout, framing = self._read((*SHOW_ASSOCIATIONS_COMMAND, *of_cluster))
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
        self._act(("scontrol", "delete", f"PartitionName={_check_grammar(_NAME, name, 'partition')}"))

    def waiting(self, names: Collection[str]) -> dict[int, WaitingJob]:
        """Jobs that wait in any of these partitions, in the detail that routing needs. Raises as :meth:`partitions`."""
        return read_waiting_jobs(self.runner, names, self.read_s) if names else {}

    def _change(self, verb: str, name: str, settings: Mapping[str, str]) -> None:
        self._act(("scontrol", verb, *partition_words(name, settings)))

    def _act(self, argv: Sequence[str]) -> None:
        self.check()
        self.runner(argv, stdin=b"", timeout_s=self.act_s, env=self.environment).check(_REMEDY)

    def _read(self, argv: Sequence[str]) -> tuple[bytes, ReplyFraming]:
        framing = ReplyFraming(random_nonce())
        said = self.runner(
            with_end_mark(argv), stdin=b"", timeout_s=self.read_s, env={**self.environment, **framing.env}
        )
        if said.status != 0:
            raise failure(argv, said, _REMEDY)
        return said.stdout, framing


def parse_partitions(stdout: bytes, framing: ReplyFraming) -> dict[str, SlurmPartition]:
    """The partitions of a reply, one a line.

    Raises:
        SlurmReplyError: the reply is cut short or cannot be read.
    """
    found: dict[str, SlurmPartition] = {}
    for line in framing.body(stdout, "scontrol's list of partitions").split("\n"):
        starts = list(_KEY.finditer(line))
        if not starts or starts[0][1] != "PartitionName":
            continue
        ends = [start.start() for start in starts[1:]] + [len(line)]
        fields = {start[1]: line[start.end() : end].strip() for start, end in zip(starts, ends, strict=True)}
        record = SlurmPartition(fields.pop("PartitionName"), fields)
        if not fields.get("PriorityTier", "1").isdigit() or "State" not in fields:
            raise SlurmReplyError(f"scontrol's partition {record.name!r} cannot be read: {line[:80]!r}")
        found[record.name] = record
    return found


def partition_words(name: str, settings: Mapping[str, str]) -> list[str]:
    """A partition with its settings as words that scontrol and slurm.conf read, none of which can be more than one.

    Raises:
        SlurmReplyError: a name, setting or value has a character that partitions never need.
    """
    checked = [
        f"{_check_grammar(_SETTING, key, 'setting')}={_check_grammar(_VALUE, of, key)}" for key, of in settings.items()
    ]
    return [f"PartitionName={_check_grammar(_NAME, name, 'partition')}", *checked]


def _check_grammar(grammar: re.Pattern[str], value: str, what: str) -> str:
    if not grammar.fullmatch(value):
        raise SlurmReplyError(
            f"{what} {value[:60]!r} is not given to Slurm; it has a character that partitions never need"
        )
    return value
