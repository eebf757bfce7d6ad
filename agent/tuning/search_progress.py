"""How far each running job's search for cores has come: on disk before cores change, so that it goes on after a kill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from slurm_soda.agent.state_file import StateFileError, read_state, write_state
from slurm_soda.policies.cpu_fit.core_search import CoreSearch, SearchRules
from slurm_soda.policies.cpu_fit.measurement import Measurement
from slurm_soda.policies.errors import PolicyError
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.json_fields import JsonFields
from slurm_soda.wire.run_fields import MAX_SEARCHES, MAX_STEPS, RunFields

VERSION = 1
MAX_JOBS = 4096


@dataclass(frozen=True, slots=True)
class CoreSearchProgress:
    """One run's search."""

    job_id: int
    start_s: int
    """With ``job_id`` this names the run."""
    number: int
    """0 for the run's first search, one more for each later phase."""
    start: int
    """Cores when the search began."""
    limit: int
    cores: int
    """What the run shall have now."""
    step: int = 0
    """The measurement that is being taken, or was taken last; -1 before the first of a search that the controller began."""
    measured: tuple[Measurement, ...] = ()
    settled: str = ""
    """Why it ended, empty while it goes on."""
    at_s: float = 0.0
    """When it last measured, or ended: what is reported twice has the same time both times."""
    stable: Measurement | None = None
    """Measured with the cores on which it settled."""

    def search(self, rules: SearchRules) -> CoreSearch:
        """The search as the policy sees it."""
        return CoreSearch(self.start, self.limit, rules, self.measured)

    def after(self, measurement: Measurement, at_s: float) -> CoreSearchProgress:
        """With one measurement more."""
        return replace(self, measured=(*self.measured, measurement), at_s=round(at_s, 3))


def read_search_progress(path: Path) -> dict[int, CoreSearchProgress]:
    """Searches on record, by job.

    Raises:
        StateFileError: the file is damaged.
    """
    content = read_state(path, VERSION)
    try:
        found = [_progress(item) for item in JsonFields("tuning record", content).objects("jobs", MAX_JOBS)]
    except (RecordError, PolicyError) as error:
        raise StateFileError(f"{path}: {error}: searches begin anew") from error
    return {progress.job_id: progress for progress in found}


def write_search_progress(path: Path, searches: Iterable[CoreSearchProgress]) -> None:
    """Put searches on record.

    Raises:
        StateFileError: it cannot be written.
    """
    write_state(path, VERSION, {"jobs": [asdict(progress) for progress in searches]})


def _progress(data: object) -> CoreSearchProgress:
    read = RunFields("search", data)
    stable = data.get("stable") if isinstance(data, dict) else None
    limit = read.cpus("limit")
    progress = CoreSearchProgress(
        job_id=read.job_id(),
        start_s=read.start_s(),
        number=read.whole("number", 0, MAX_SEARCHES),
        start=read.whole("start", 1, limit),
        limit=limit,
        cores=read.whole("cores", 1, limit),
        step=read.whole("step", -1, MAX_STEPS),
        measured=tuple(_measurement(item) for item in read.objects("measured", MAX_STEPS)),
        settled=read.text("settled", 32),
        at_s=read.unix_s("at_s"),
        stable=_measurement(stable) if stable is not None else None,
    )
    progress.search(SearchRules())  # says what cannot be searched with
    return progress


def _measurement(data: object) -> Measurement:
    read = RunFields("measurement", data)
    return Measurement(
        read.cpus("cores"),
        read.ratio("utilisation_ratio"),
        read.ratio("spread_ratio"),
        read.whole("samples", 1, 1 << 30),
    )
