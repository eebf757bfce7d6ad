"""What sodad knows, for commands that only read: from the store where this user may read it, else from sodad over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Generic, Protocol, TypeVar

from sqlalchemy.orm import Session

from slurm_soda.daemon import pictures
from slurm_soda.daemon.pictures import Head, LiveJobs, Overview, Story, heart_beats
from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.core_log import CoreReport, Filters, core_report
from slurm_soda.daemon.store.engine import Store, StoreError, StoreMissingError
from slurm_soda.daemon.store.schema import Epoch
from slurm_soda.daemon.transfer import TransferError, decode
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl.checks.finding import Probe, parse_config, values_of
from slurm_soda.sodactl.site import Site

TIMEOUT_S = 2.0
"""For each step of a request: connecting, and every wait for more of the answer."""

MOST_BYTES = 64 * 1024 * 1024

MOST_FITS = 5000
"""Jobs whose cores sodad tells of at once."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Picture(Generic[T]):
    """Where to find something: in the store, and at sodad's HTTP side."""

    kind: type[T]
    read: Callable[[Session], T]
    path: str
    query: Mapping[str, str]


class Past(Protocol):
    """What sodad knows, at this instant.

    Raises:
        StoreError: it cannot be read.
    """

    def overview(self, *, cycles: int, since_s: float) -> Overview:
        """How sodad fares."""
        ...

    def live_jobs(self) -> LiveJobs:
        """The jobs that have not ended."""
        ...

    def story(self, job_id: int) -> Story:
        """All about one job."""
        ...

    def cores(self, filters: Filters, limit: int) -> CoreReport:
        """Cores of GPU jobs, the newest so many; 0 is all that who is asked gives."""
        ...

    def look(self, picture: Picture[T]) -> T:
        """Something else that sodad shows, described where it is needed."""
        ...


@contextmanager
def open_past(site: Site) -> Iterator[Past]:
    """The store if this user may read it, else sodad."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(site.store())
        except StoreError as error:
            yield _remote(site, error)
        else:
            yield StoredPast(store, site)


def is_alive(epoch: Epoch | None, site: Site, now_s: float) -> bool:
    """Whether the newest daemon still lives: its heart beats and, on its own host, its process exists."""
    if epoch is None or not heart_beats(epoch, now_s, site.settings.cycle.interval_s):
        return False
    return epoch.host != site.outside.host() or site.outside.pid_lives(epoch.pid)


def head_of(session: Session, site: Site) -> Head:
    """Who schedules, and by what rules, as the store and this site's configuration have it."""
    epoch = queries.latest_epoch(session)
    alive = is_alive(epoch, site, site.now_s())
    return pictures.head(epoch, pictures.chosen(session), site.settings, daemon_alive=alive)


@dataclass(frozen=True, slots=True)
class StoredPast:
    """Read from the store."""

    store: Store
    site: Site

    def overview(self, *, cycles: int, since_s: float) -> Overview:
        with self.store.read() as session:
            return pictures.overview(session, head_of(session, self.site), cycles=cycles, since_s=since_s)

    def live_jobs(self) -> LiveJobs:
        with self.store.read() as session:
            return pictures.live_jobs(session, head_of(session, self.site))

    def story(self, job_id: int) -> Story:
        with self.store.read() as session:
            return pictures.story(session, head_of(session, self.site), job_id)

    def cores(self, filters: Filters, limit: int) -> CoreReport:
        with self.store.read() as session:
            return core_report(session, filters, limit)

    def look(self, picture: Picture[T]) -> T:
        with self.store.read() as session:
            return picture.read(session)


@dataclass(frozen=True, slots=True)
class ToldPast:
    """Asked of sodad over HTTP."""

    urls: Sequence[str]
    """Where sodad may answer; tried in order."""
    because: StoreError
    """Why the store is not read."""
    at_home: bool
    """This is a host of slurmctld's, so that a store which is not here is nowhere."""

    def overview(self, *, cycles: int, since_s: float) -> Overview:
        return self._ask(Overview, "/v1/status", {"cycles": str(cycles), "since_s": repr(since_s)})

    def live_jobs(self) -> LiveJobs:
        return self._ask(LiveJobs, "/v1/jobs", {})

    def story(self, job_id: int) -> Story:
        return self._ask(Story, f"/v1/jobs/{job_id}", {})

    def cores(self, filters: Filters, limit: int) -> CoreReport:
        query = {key: str(value) for key, value in asdict(filters).items() if value is not None}
        return self._ask(CoreReport, "/v1/fit", query | {"limit": str(min(limit or MOST_FITS, MOST_FITS))})

    def look(self, picture: Picture[T]) -> T:
        return self._ask(picture.kind, picture.path, picture.query)

    def _ask(self, kind: type[T], path: str, query: Mapping[str, str]) -> T:
        refusals = []
        for url in self.urls:
            try:
                return decode(kind, _get(url + path, query))
            except TransferError as error:
                refusals.append(f"{url} answers as no sodad of this version does ({error})")
            except _AwayError as error:
                refusals.append(f"{url}: {error}")
        if not refusals or (self.at_home and isinstance(self.because, StoreMissingError)):
            raise self.because
        raise StoreError(f"sodad does not tell ({'; '.join(refusals)}), and {self.because}") from self.because


class _AwayError(SodaError):
    """No answer, or a refusal."""


def _remote(site: Site, because: StoreError) -> ToldPast:
    own = site.outside.host().split(".", 1)[0]
    url = site.outside.url() or site.settings.api.url
    if url:
        return ToldPast([url.rstrip("/")], because, at_home=False)
    config = parse_config(Probe(site.outside.runner()).text("scontrol", "show", "config") or "")
    hosts = [_name_and_address(value) for value in values_of(config, "SlurmctldHost")]
    urls = [f"http://{address}:{site.settings.api.port}" for _, address in hosts]
    return ToldPast(urls, because, at_home=own in [name.split(".", 1)[0] for name, _ in hosts])


def _name_and_address(value: str) -> tuple[str, str]:
    """Take ``ctl`` or ``ctl(10.0.0.1)`` apart (slurm.conf, SlurmctldHost)."""
    name, _, rest = value.partition("(")
    address = rest.rstrip(")") or name
    return name, f"[{address}]" if ":" in address else address


def _get(url: str, query: Mapping[str, str]) -> bytes:
    import httpx  # noqa: PLC0415 - slow to import, and not needed where the store can be read

    body = bytearray()
    try:
        # trust_env: a proxy variable of the user's must not send this elsewhere.
        with (
            httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client,
            client.stream("GET", url, params=query) as answer,
        ):
            for part in answer.iter_bytes():
                body += part
                if len(body) > MOST_BYTES:
                    raise _AwayError(f"more than {MOST_BYTES} bytes")
            status = answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _AwayError(str(error) or type(error).__name__) from error
    if status != 200:
        raise _AwayError(f"{status} {bytes(body[:200]).decode('utf-8', 'backslashreplace')}")
    return bytes(body)
