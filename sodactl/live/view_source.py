"""What sodad knows, for commands that only read: from the store where this user may read it, else from sodad over HTTP.

A request over HTTP carries a MUNGE credential of the user, so that sodad shows what this user may see.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
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
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, list_config_values, parse_config, runs_slurmctld
from slurm_soda.sodactl import output
from slurm_soda.sodactl.checks.check_result import CommandProbe, failure_text
from slurm_soda.sodactl.site_access import SiteAccess
from slurm_soda.wire.errors import MungeError
from slurm_soda.wire.munge import CREDENTIAL_HEADER, Munge

TIMEOUT_S = 2.0
"""For each step of a request: connecting, and every wait for more of the answer."""

MAX_ANSWER_BYTES = 64 * 1024 * 1024

_REFUSAL_STATUSES = (403, 429, 503)
"""With which sodad says why it does not tell."""

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
        return decode_view(StatusView, _get(url, "/v1/status", {"cycles": "0"}, site.context.munge))
    except (_ApiUnavailableError, _ApiRefusalError, ViewJsonError):
        return None


def controller_urls(config: SlurmConfig, port: int) -> list[tuple[str, str]]:
    """Slurm's controllers by name, and where a sodad on each answers."""
    hosts = [_name_and_address(value) for value in list_config_values(config, "SlurmctldHost")]
    return [(name, f"http://{address}:{port}") for name, address in hosts]


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
                return decode_view(kind, _get(url, path, query, self.munge))
            except ViewJsonError as error:
                refusals.append(f"{url} answers as no sodad of this version does ({error})")
            except _ApiRefusalError as error:
                raise StoreError(f"sodad at {url} does not tell: {error}") from error
            except _ApiUnavailableError as error:
                refusals.append(f"{url}: {error}")
        if not refusals or (self.is_controller_host and isinstance(self.store_error, StoreMissingError)):
            raise self.store_error
        raise StoreError(f"sodad does not answer ({'; '.join(refusals)}), and {self.store_error}") from self.store_error


class _ApiUnavailableError(SodaError):
    """No answer, or none of sodad's."""


class _ApiRefusalError(SodaError):
    """Sodad says why this user is not told."""


def _api_view_source(site: SiteAccess, because: StoreError) -> ApiViewSource:
    url = site.context.url() or site.settings.api.url
    if url:
        return ApiViewSource([url.rstrip("/")], because, is_controller_host=False, munge=site.context.munge)
    asked = CommandProbe(site.context.runner()).run("scontrol", "show", "config")
    config = parse_config(asked.stdout.decode("utf-8", "surrogateescape")) if asked.status == 0 else {}
    if not config:
        because = StoreError(
            f"Slurm does not tell on which host sodad is ({failure_text(asked)}), and {because.found}",
            f"SODA_URL=http://HOST:{site.settings.api.port} sodactl … asks there",
        )
    urls = [url for _, url in controller_urls(config, site.settings.api.port)]
    here = runs_slurmctld(config, site.context.host())
    return ApiViewSource(urls, because, is_controller_host=here, munge=site.context.munge)


def _name_and_address(value: str) -> tuple[str, str]:
    """Take ``ctl`` or ``ctl(10.0.0.1)`` apart (slurm.conf, SlurmctldHost)."""
    name, _, rest = value.partition("(")
    address = rest.rstrip(")") or name
    return name, f"[{address}]" if ":" in address else address


def _get(url: str, path: str, query: Mapping[str, str], munge: Munge) -> bytes:
    # slow to import, and not needed where the store can be read
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415
    from urllib.parse import urlencode, urlsplit  # noqa: PLC0415

    target = f"{path}?{urlencode(query)}"
    try:
        parts = urlsplit(url)
        if not parts.hostname:
            raise _ApiUnavailableError("is no address such as http://ctl:6830")
        credential = munge.encode_request(f"GET {target}".encode("ascii"))
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        # http.client knows no proxies: a variable of the user's cannot send this elsewhere.
        with closing(kind(parts.hostname, parts.port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", parts.path + target, headers={CREDENTIAL_HEADER: credential})
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER_BYTES + 1)
    except (OSError, HTTPException, ValueError, MungeError) as error:
        raise _ApiUnavailableError(str(error) or type(error).__name__) from error
    if len(body) > MAX_ANSWER_BYTES:
        raise _ApiUnavailableError(f"more than {MAX_ANSWER_BYTES} bytes")
    if answer.status != 200:
        raise _refusal(answer.status, body)
    return body


def _refusal(status: int, body: bytes) -> SodaError:
    """What an answer other than a view says."""
    if status in _REFUSAL_STATUSES:
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            return _ApiRefusalError(str(json.loads(body)["detail"])[:500])
    return _ApiUnavailableError(f"{status} {body[:200].decode('utf-8', 'backslashreplace')}")
