"""Commands that a person would type on a site's machines, run, timed and written down."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.faults import FaultFinding
from slurm_soda.containers.cluster import ContainerCluster

_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "COLUMNS": "150"}
_SHOWN_LINES = 24
_SHOWN_CHARS = 150
_PROGRESS = re.compile(r"^\(Reading database|^(?:Selecting previously|Preparing to unpack) ")
"""What dpkg says of its progress."""


@dataclass(frozen=True, slots=True)
class TypedCommand:
    """One command and what came of it."""

    part: str
    host: str
    user: str
    command: str
    took_s: float
    status: int
    said: str

    def lines(self) -> Iterator[str]:
        """As it stood in the terminal, with the seconds it took; of a long answer its first lines."""
        first, *more = self.command.splitlines()
        note = f"{self.took_s:.1f} s" + (f", status {self.status}" if self.status else "")
        yield f"{self.user}@{self.host}$ {first}    # {note}"
        yield from (f"> {line}" for line in more)
        said = [line for line in self.said.splitlines() if not _PROGRESS.search(line)]
        yield from (line.rstrip()[:_SHOWN_CHARS] for line in said[:_SHOWN_LINES])
        if len(said) > _SHOWN_LINES:
            yield f"… {len(said) - _SHOWN_LINES} lines more"


@dataclass(slots=True)
class Terminal:
    """Types into a cluster, and keeps what it typed."""

    cluster: ContainerCluster
    typed: list[TypedCommand] = field(default_factory=list)
    findings: list[FaultFinding] = field(default_factory=list)
    part: str = ""

    def type(self, command: str, host: str = "ctl", user: str = "root", statuses: tuple[int, ...] = (0,)) -> str:
        """Run a command by bash and give what it said, errors too.

        Raises:
            SystemExit: it ended with another status than these.
        """
        began_s = time.monotonic()
        argv = ("bash", "-c", f"exec 2>&1\n{command}")
        done = self.cluster.exec(user, argv, node=host, timeout_s=900, environment=_ENVIRONMENT)
        took_s = time.monotonic() - began_s
        self.typed.append(TypedCommand(self.part, host, user, command, took_s, done.status, done.stdout))
        if done.status not in statuses:
            raise SystemExit(f"{host}: {command}: status {done.status}\n{done.stdout}{done.stderr}")
        return done.stdout

    def look(self, command: str, host: str = "ctl") -> str:
        """What only the benchmark asks; it is not in the transcript."""
        return self.cluster.exec("root", ("bash", "-c", command), node=host, timeout_s=120).stdout.strip()

    def finds(self, what: str, found: object, holds: bool) -> None:
        """Note what shall hold."""
        self.findings.append(FaultFinding(what, str(found), holds))

    def markdown(self) -> Iterator[str]:
        """Times by part, then all that was typed."""
        parts: dict[str, list[TypedCommand]] = {}
        for one in self.typed:
            parts.setdefault(one.part, []).append(one)
        yield "| step | commands | time |"
        yield "|---|---|---|"
        for part, typed in parts.items():
            yield f"| {part} | {len(typed)} | {sum(one.took_s for one in typed):.0f} s |"
        for part, typed in parts.items():
            yield f"\n## {part}"
            yield "```"
            for one in typed:
                yield from one.lines()
            yield "```"
