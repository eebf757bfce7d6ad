"""What sodad knows, for commands that only read: from the store where this user may read it, else from sodad over HTTP.

A request over HTTP carries a MUNGE credential of the user, so that sodad shows what this user may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Generic, Protocol, TypeVar

from sqlalchemy.orm import Session

from slurm_soda.daemon.api import views
from slurm_soda.daemon.api.view_json import ViewJsonError, decode_view
from slurm_soda.daemon.api.views import JobDetailView, JobListView, StatusView, ViewHeader, daemon_is_alive
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.cpu_fit_report import MAX_FITS, CpuFitFilters, CpuFitReport, read_cpu_fit_report
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.server import store_now_s
from slurm_soda.daemon.store.store_errors import StoreError, StoreMissingError
from slurm_soda.daemon.store.tables.scheduling import Epoch
from slurm_soda.sodactl import output
from slurm_soda.sodactl.live.sodad_http import SodadAbsentError, SodadRefusalError, find_addresses, request_sodad
from slurm_soda.sodactl.site_access import SiteAccess
from slurm_soda.wire.munge import Munge

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ViewRequest(Generic[T]):
    """Where to find something: in the store, and at sodad's HTTP side."""

    kind: type[T]
    read: Callable[[Session], T]
    path: str
    query: Mapping[str, str]


class ViewSource(Protocol):
    """What sodad knows, at this instant.

    Raises:
        StoreError: it cannot be read.
    """

    def overview(self, *, cycles: int, since_s: float) -> StatusView:
        """How sodad fares."""
        ...

    def live_jobs(self) -> JobListView:
        """The jobs that have not ended."""
        ...

    def job(self, job_id: int) -> JobDetailView:
        """All about one job."""
        ...

    def cores(self, filters: CpuFitFilters, limit: int) -> CpuFitReport:
        """Cores of GPU jobs, the newest ``limit``; 0: all that the source gives."""
        ...

    def read(self, request: ViewRequest[T]) -> T:
        """Something else that sodad shows, described where it is needed."""
        ...


@contextmanager
def open_view_source(site: SiteAccess) -> Iterator[ViewSource]:
    """The store if this user may read it, else sodad."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(site.store())
        except StoreError as error:
            yield _api_view_source(site, error)
        else:
            yield StoreViewSource(store, site)


def is_daemon_alive(session: Session, epoch: Epoch | None, site: SiteAccess) -> bool:
    """Whether the newest daemon still lives: its heart beats and, on its own host, its process exists."""
    now_s = store_now_s(session, site.now_s())  # heartbeats are by the store's clock
    if epoch is None or not daemon_is_alive(epoch, now_s, site.settings.cycle.interval_s):
        return False
    return epoch.host != site.context.host() or site.context.pid_lives(epoch.pid)


def find_stall(session: Session, epoch: Epoch | None, site: SiteAccess) -> str:
    """Why the newest daemon lives but records no cycle; empty if it does, or does not live."""
    if epoch is None or epoch.ended_s is not None or is_daemon_alive(session, epoch, site):
        return ""
    here = epoch.host == site.context.host()
    if here and not site.context.pid_lives(epoch.pid) and site.local_daemon_pid() is None:
        return ""
    api = site.settings.api
    host = "127.0.0.1" if here and api.host in ("0.0.0.0", "::") else api.host if here else epoch.host  # noqa: S104 - compared
    url = api.url.rstrip("/") or f"http://{host}:{api.port}"
    said = status_at(site, url)
    if said is None:
        return "it does not answer over HTTP either; its log says why (journalctl -u sodad)" if here else ""
    return said.head.stall or "it has just begun again"


def status_at(site: SiteAccess, url: str) -> StatusView | None:
    """How the sodad at an address fares; ``None`` where none answers."""
    try:
        return decode_view(StatusView, request_sodad(url, "/v1/status", {"cycles": "0"}, site.context.munge))
    except (SodadAbsentError, SodadRefusalError, ViewJsonError):
        return None


def describe_absence(epoch: Epoch | None, stall: str, now_s: float) -> str:
    """One line on a daemon that records no cycle."""
    if epoch is None or not stall:
        return "sodad is not running"
    return f"sodad is alive, but no cycle for {output.format_duration(now_s - epoch.heartbeat_s)}: {stall}"


def read_view_header(session: Session, site: SiteAccess) -> ViewHeader:
    """Who schedules, and by what rules, as the store and this site's configuration have it."""
    epoch = queries.latest_epoch(session)
    alive, stall = is_daemon_alive(session, epoch, site), find_stall(session, epoch, site)
    return views.view_header(epoch, queries.setting_values(session), site.settings, daemon_alive=alive, stall=stall)


@dataclass(frozen=True, slots=True)
class StoreViewSource:
    """Read from the store."""

    store: Store
    site: SiteAccess

    def overview(self, *, cycles: int, since_s: float) -> StatusView:
        with self.store.read() as session:
            return views.status_view(session, read_view_header(session, self.site), cycles=cycles, since_s=since_s)

    def live_jobs(self) -> JobListView:
        with self.store.read() as session:
            return views.job_list_view(session, read_view_header(session, self.site))

    def job(self, job_id: int) -> JobDetailView:
        with self.store.read() as session:
            return views.job_detail_view(session, read_view_header(session, self.site), job_id)

    def cores(self, filters: CpuFitFilters, limit: int) -> CpuFitReport:
        with self.store.read() as session:
            return read_cpu_fit_report(session, filters, limit)

    def read(self, request: ViewRequest[T]) -> T:
        with self.store.read() as session:
            return request.read(session)


@dataclass(frozen=True, slots=True)
class ApiViewSource:
    """Asked of sodad over HTTP."""

    urls: Sequence[str]
    """Where sodad may answer; tried in order."""
    store_error: StoreError
    """Why the store is not read."""
    is_controller_host: bool
    """This is a host of slurmctld's, so that a store which is not here is nowhere."""
    munge: Munge

    def overview(self, *, cycles: int, since_s: float) -> StatusView:
        return self._ask(StatusView, "/v1/status", {"cycles": str(cycles), "since_s": repr(since_s)})

    def live_jobs(self) -> JobListView:
        return self._ask(JobListView, "/v1/jobs", {})

    def job(self, job_id: int) -> JobDetailView:
        return self._ask(JobDetailView, f"/v1/jobs/{job_id}", {})

    def cores(self, filters: CpuFitFilters, limit: int) -> CpuFitReport:
        query = {key: str(value) for key, value in asdict(filters).items() if value is not None}
        return self._ask(CpuFitReport, "/v1/fit", query | {"limit": str(min(limit or MAX_FITS, MAX_FITS))})

    def read(self, request: ViewRequest[T]) -> T:
        return self._ask(request.kind, request.path, request.query)

    def _ask(self, kind: type[T], path: str, query: Mapping[str, str]) -> T:
        refusals = []
        for url in self.urls:
            try:
                return decode_view(kind, request_sodad(url, path, query, self.munge))
            except ViewJsonError as error:
                refusals.append(f"{url} answers as no sodad of this version does ({error})")
            except SodadRefusalError as error:
                raise StoreError(f"sodad at {url} does not tell: {error}") from error
            except SodadAbsentError as error:
                refusals.append(f"{url}: {error}")
        if not refusals or (self.is_controller_host and isinstance(self.store_error, StoreMissingError)):
            raise self.store_error
        raise StoreError(f"sodad does not answer ({'; '.join(refusals)}), and {self.store_error}") from self.store_error


def _api_view_source(site: SiteAccess, because: StoreError) -> ApiViewSource:
    addresses = find_addresses(site)
    if addresses.unknown:
        because = StoreError(
            f"{addresses.unknown}, and {because.found}",
            f"SODA_URL=http://HOST:{site.settings.api.port} sodactl … asks there",
        )
    here = addresses.is_controller_host
    return ApiViewSource(addresses.urls, because, is_controller_host=here, munge=site.context.munge)
