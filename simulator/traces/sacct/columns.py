"""The table that ``sacct --parsable2`` prints: its header, and lines cut into records.

sacct quotes nothing, so a job name that holds the delimiter or a newline spoils its line. A record is put together again
where only one way of cutting it leaves something readable in every column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slurm_soda.simulator.traces.sacct.record_repair import repair_record

SACCT_COLUMNS = (
    "JobID", "User", "Account", "Partition", "QOS", "State", "Submit", "Eligible", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "ReqTRES", "AllocTRES", "NNodes", "AllocCPUS", "NodeList", "Restarts", "Comment",
)  # fmt: skip
"""What to ask sacct for: everything that is read. Free text stands last, where it can spoil nothing."""

SACCT_COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct --allusers --duplicates --parsable2 --starttime=now-30days"
    f" --format={','.join(SACCT_COLUMNS)}"
)
"""The command line whose output is read best."""

_KNOWN = """
account admincomment alloccpus allocgres allocnodes alloctres associd avecpu avecpufreq avediskread avediskwrite
avepages averss avevmsize blockid cluster comment constraints consumedenergy consumedenergyraw container cputime
cputimeraw dbindex derivedexitcode elapsed elapsedraw eligible end exitcode extra failednode flags gid group jobid
jobidraw jobname layout licenses maxdiskread maxdiskreadnode maxdiskreadtask maxdiskwrite maxdiskwritenode
maxdiskwritetask maxpages maxpagesnode maxpagestask maxrss maxrssnode maxrsstask maxvmsize maxvmsizenode
maxvmsizetask mcslabel mincpu mincpunode mincputask ncpus nnodes nodelist ntasks partition planned plannedcpu
plannedcpuraw priority qos qosraw qosreq reason reqcpufreq reqcpufreqgov reqcpufreqmax reqcpufreqmin reqcpus reqgres
reqmem reqnodes reqreservation reqtres reservation reservationid reserved restarts resvcpu resvcpuraw segmentsize
sluid start state stderr stdin stdout submit submitline suspended systemcomment systemcpu timelimit timelimitraw
totalcpu tresusageinave tresusageinmax tresusageinmaxnode tresusageinmaxtask tresusageinmin tresusageinminnode
tresusageinmintask tresusageintot tresusageoutave tresusageoutmax tresusageoutmaxnode tresusageoutmaxtask
tresusageoutmin tresusageoutminnode tresusageoutmintask tresusageouttot uid user usercpu wckey wckeyid workdir
"""
KNOWN = frozenset(_KNOWN.split())
"""Columns of sacct from 20.11 to 26.05, in lower case."""

_FREE_TEXT = """
admincomment comment constraints container extra jobname licenses mcslabel reservation reqreservation stderr stdin
stdout submitline systemcomment wckey workdir
"""
_FREE = frozenset(_FREE_TEXT.split())
"""Columns that hold what a person wrote."""

_TIME = r"\d{9,11}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*|Unknown|None|N/A"
_SPAN = r"(\d+-)?(\d+:)?\d+:\d+(\.\d+)?|UNLIMITED|Partition_Limit|INVALID|"
_NUMBER = r"\d*"
_TRES = r"([a-z][^=,|\s]*=[^=,|\s]+,)*[a-z][^=,|\s]*=[^=,|\s]+|"
_WORD = r"[^|\s]*"
_FORMS = {
    "jobid": r"\d+(_(\d+|\[[^|\s]*))?(\+\d+)?(\.\S+)?", "jobidraw": r"\d+(\.\S+)?",
    "state": r"[A-Z][A-Z_]+\+?( by \d+)?", "exitcode": r"(\d+:\d+)?",
    **dict.fromkeys(("submit", "eligible", "start", "end"), _TIME), **dict.fromkeys(("elapsed", "timelimit"), _SPAN),
    "timelimitraw": r"\d+|UNLIMITED|Partition_Limit|", "suspended": _SPAN, "totalcpu": _SPAN, "planned": _SPAN,
    **dict.fromkeys(("reqtres", "alloctres"), _TRES),
    **dict.fromkeys(("elapsedraw", "alloccpus", "ncpus", "reqcpus", "nnodes", "reqnodes", "restarts"), _NUMBER),
    **dict.fromkeys(("user", "account", "partition", "cluster", "qos"), _WORD),
    "nodelist": r"None assigned|[^|\s]*", "reqmem": r"([\d.]+[KMGTP]?[nc]?)?",
}  # fmt: skip
_PATTERNS = {name: re.compile(form) for name, form in _FORMS.items()}
_MAX_JOINED_LINES = 200
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class SacctRecord:
    """One record, cut into its cells; or why that cannot be done."""

    line: int
    """Of its first line, 1 first."""
    cells: Sequence[str]
    problem: str = ""


class SacctHeader:
    """The columns of one dump.

    Attributes:
        names: in lower case, in the order printed.
        delimiter: what stands between two cells.
    """

    def __init__(self, line: str) -> None:
        """Read the header line.

        Raises:
            ValueError: it is none; the message says what to do.
        """
        self._line = line
        self.delimiter = _delimiter(line)
        titles = line.split(self.delimiter)
        self.trailing = len(titles) > 1 and not titles[-1]
        """``--parsable`` ends every line with a delimiter, ``--parsable2`` does not."""
        if self.trailing:
            titles.pop()
        self.names = tuple(title.strip().lower() for title in titles)
        if not {"jobid", "jobidraw"} & set(self.names):
            raise ValueError(f"its first line is no header with a column JobID; {_advice()}")
        self._at = {name: at for at, name in reversed(list(enumerate(self.names)))}
        self._id_at = self._at.get("jobid", self._at.get("jobidraw", 0))
        self._forms = [_PATTERNS.get(name) for name in self.names]
        self._free = [name in _FREE for name in self.names]

    def unknown(self) -> list[str]:
        """Columns that no sacct prints."""
        return [name for name in self.names if name not in KNOWN]

    def at(self, *names: str) -> int | None:
        """Place of the first of these columns that is there (names in lower case)."""
        return next((self._at[name] for name in names if name in self._at), None)

    def records(self, lines: Iterable[str], first: int) -> Iterator[SacctRecord]:
        """All records behind the header; ``lines`` begins with the line after it, which has the number ``first``.

        Empty lines are passed over, and headers of other dumps that were appended to this one.
        """
        held: list[str] = []
        began = count = 0
        for number, line in enumerate(lines, start=first):
            text = line[:-1] if line.endswith("\n") else line
            text = text.removesuffix("\r")
            cells = self._cut(text)
            if held and self._continues(cells, len(held), whole=count >= len(self.names)):
                held.append(text)
                count += len(cells) - 1
                continue
            if held:
                yield self._record(began, held)
            held, began, count = ([text], number, len(cells)) if text and text != self._line else ([], 0, 0)
        if held:
            yield self._record(began, held)

    def _continues(self, cells: Sequence[str], lines: int, *, whole: bool) -> bool:
        """Whether a line is the rest of a record in which somebody wrote a newline.

        Args:
            cells: of the line.
            lines: of the record so far.
            whole: the record so far has cells for all columns.
        """
        if lines >= _MAX_JOINED_LINES or not any(self._free) or self._begins(cells, whole=whole):
            return False
        return self._free[-1] if whole else True

    def _begins(self, cells: Sequence[str], *, whole: bool) -> bool:
        """Whether a line looks like the beginning of a record."""
        if self._free[0] and not whole:
            return False
        if len(cells) >= len(self.names):
            return cells[self._id_at][:1].isdigit()
        lead = self._free.index(True)
        pairs = zip(cells[:lead], self._forms, strict=False)
        return self._id_at < min(lead, len(cells)) and all(form is None or form.fullmatch(cell) for cell, form in pairs)

    def _cut(self, text: str) -> list[str]:
        cells = text.split(self.delimiter)
        if self.trailing and not cells[-1]:
            cells.pop()
        return cells

    def _record(self, line: int, held: list[str]) -> SacctRecord:
        cells = self._cut("\n".join(held))
        missing = len(self.names) - len(cells)
        if missing > 0:
            return SacctRecord(line, cells, f"{len(cells)} cells, not {len(self.names)}: {_start(held[0])}")
        if missing == 0:
            return SacctRecord(line, cells)
        whole = repair_record(cells, self._free, self._forms, self.delimiter)
        if whole is None:
            why = "and it is not clear which text holds the delimiter; leave JobName and other free text out"
            return SacctRecord(line, cells, f"{len(cells)} cells, not {len(self.names)}, {why}: {_start(held[0])}")
        return SacctRecord(line, whole)


def _delimiter(line: str) -> str:
    """What stands behind the first column's name."""
    match = re.match(r"\s*[A-Za-z]+([^A-Za-z]*)", line)
    if match is None:
        raise ValueError(f"its first line {_start(line)} is no header; {_advice()}")
    if match[1].strip(" ") == "" and len(line.split()) > 1:
        raise ValueError(f"its columns are aligned with spaces and may be cut short; {_advice()}")
    return match[1] or "|"


def _advice() -> str:
    return f"make the dump with: {SACCT_COMMAND}"


def _start(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
