"""The router of a service: keeps HAProxy equal to the instances, tells sodad what it sees, and drains whom sodad names.

It depends on files and on HAProxy only: without sodad every healthy instance serves, and a router that is started again
finds all that it has to know in the service's folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from slurm_soda.services.router.drain_requests import DrainRequests
from slurm_soda.services.router.errors import FolderError, HaproxyError, RouterError
from slurm_soda.services.router.haproxy_control import HaproxyControl
from slurm_soda.services.router.heartbeats import Heartbeats
from slurm_soda.services.router.host_addresses import HostAddresses
from slurm_soda.services.router.listen_address import ListenAddress, ReservedPort
from slurm_soda.services.router.query_log import LONGEST_INTERVAL_S, QueryLog, RequestCounter
from slurm_soda.services.router.routed_instances import RoutedInstance, look_at
from slurm_soda.services.router.runtime_socket import HaproxyStats
from slurm_soda.services.router.service_folder import FolderContent, ServiceFolder, refuse_root
from slurm_soda.services.router.sodad_reports import SodadReports
from slurm_soda.services.router.waiting_queries import ExpectedInstances
from slurm_soda.wire.errors import RecordError, SodaError
from slurm_soda.wire.services.instance_file import InstanceFile
from slurm_soda.wire.services.router_report import RouterReport
from slurm_soda.wire.services.service_file import LONGEST_FILE, ServiceFile, read_service_file

TURN_S = 0.5
REPORT_S = 1.0
"""Between two reports, while sodad takes them."""


def load_service(path: Path) -> tuple[str, ServiceFile]:
    """The text of a service's file, and what it says.

    Raises:
        RouterError: it cannot be read.
        RecordError: it is not right; names the key and what is allowed.
    """
    try:
        with path.open("rb") as file:
            text = file.read(4 * LONGEST_FILE + 1).decode("utf-8")
    except (OSError, ValueError) as error:
        raise RouterError(f"{path}: cannot be read ({error})") from error
    return text, read_service_file(text, str(path))


class Router:
    """One service's router.

    Attributes:
        service: as its file says.
        endpoint: where it serves.
        views: the instances, as of the last turn.
    """

    def __init__(
        self,
        file: Path,
        listen: ListenAddress,
        reports: SodadReports | None,
        say: Callable[[str], None],
        *,
        serves: bool = True,
    ) -> None:
        """Take the service's folder and the port; nothing is served yet. ``reports`` is None: sodad is not told.

        One that is only to :meth:`check` (not ``serves``) leaves the folder to the router that may serve from there.

        Raises:
            SodaError: the file is not right, another router serves, the port is taken, HAProxy is missing.
        """
        self._file, self._reports, self._say = file, reports, say
        refuse_root(file)
        self._text, self.service = load_service(file)
        self._folder = ServiceFolder(file, self.service)
        self._folder.prepare()
        if serves and not self._folder.lock():
            say(f"{self._folder.path}: this file system has no locks; start one router of this service only")
        wanted = listen if serves else ListenAddress(listen.host, 0)
        self._port = ReservedPort.reserve(wanted, self._folder.chosen_port() if serves else 0)
        if serves and not listen.port:
            self._folder.keep_port(self._port.address.port)
        self.endpoint = self._port.address.endpoint
        self._log = QueryLog(self.service.target_ms)
        self._requests = RequestCounter()
        self._haproxy = HaproxyControl(self.service, self._port.address, self._log, say)
        self._heartbeats, self._hosts = Heartbeats(), HostAddresses()
        self._content = FolderContent()
        self._drains, self._expected = DrainRequests(self._folder, say), ExpectedInstances()
        self._told: tuple[str, ...] = ()
        self._interval_s = time.monotonic()
        self.views: tuple[RoutedInstance, ...] = ()
        self.stop = threading.Event()
        """Ask it to end."""
        self.reread = threading.Event()
        """Ask it to read the service's file again."""

    @property
    def haproxy_pid(self) -> int:
        """Of HAProxy's master."""
        return self._haproxy.pid

    @property
    def instances(self) -> Mapping[str, InstanceFile]:
        """What the instances said when they were last looked at, by the names of their files."""
        return self._content.instances

    def check(self) -> None:
        """Look at the instances once, and let HAProxy check its configuration; nothing is started.

        Raises:
            HaproxyError: it is refused; HAProxy's words.
        """
        self._look()
        self._haproxy.check()

    def run(self) -> None:
        """Serve until :attr:`stop` is set.

        Raises:
            HaproxyError: HAProxy cannot be started at all.
        """
        self._haproxy.tend()
        self._say(f"service {self.service.name!r} is served at {self.endpoint}")
        if self._reports is not None:
            self._reports.start()
        while not self.stop.is_set():
            try:
                self.turn()
            except (SodaError, OSError) as error:  # HAProxy serves on; the next turn may do better
                self._tell((f"{error}",))
            self.stop.wait(TURN_S)

    def turn(self) -> None:
        """Look once, and do what follows."""
        if self.reread.is_set():
            self.reread.clear()
            self._reread()
        self._haproxy.tend()
        self._look()
        stats = self._haproxy.stats()
        if stats is None:
            return
        self._requests.see(stats.requests)
        self._take_answer()
        self.views = look_at(self._content, self._heartbeats, self._haproxy, stats, time.monotonic())
        self._drains.choose(self.views, self._content.drains)
        wanted = {view.stem: server for view in self.views if (server := view.wanted(self._hosts, self._drains.chosen))}
        self._haproxy.apply(wanted, stats)
        self._haproxy.let_wait(stats, comes=self._any_comes())
        self._drains.write_files(self._content.drains)
        self._report(stats)

    def close(self) -> None:
        """End softly: HAProxy answers the queries in flight first."""
        self._haproxy.stop()
        self._port.release()
        self._folder.unlock()

    def _look(self) -> None:
        try:
            self._content = self._folder.read()
            problems = self._content.problems
        except (OSError, FolderError) as error:  # the instances go on as they were last seen
            self._tell((f"{self._folder.path} cannot be read, the instances that were there are kept: {error}",))
            return
        self._heartbeats.observe(self._content.instances, time.monotonic(), time.time())
        self._hosts.forget_all_but({instance.host for instance in self._content.instances.values()})
        self._tell(problems)

    def _tell(self, problems: tuple[str, ...]) -> None:
        """Each problem once, as long as it lasts."""
        for problem in problems:
            if problem not in self._told:
                self._say(problem)
        self._told = problems

    def _take_answer(self) -> None:
        answer = self._reports.take_answer() if self._reports is not None else None
        if answer is not None:
            self._drains.take(answer.drain)
            self._expected.take(answer, time.monotonic())

    def _any_comes(self) -> bool:
        states = [view.reported(self._drains.chosen, 0).state for view in self.views]
        return self._expected.any_comes(states, self.service.replicas.least, time.monotonic())

    def _report(self, stats: HaproxyStats) -> None:
        """One report of the time since the last, once sodad can have it."""
        now_s = time.monotonic()
        passed_s = now_s - self._interval_s
        if passed_s < REPORT_S:
            return
        if self._reports is None or not self._reports.idle:
            if passed_s > LONGEST_INTERVAL_S:
                self._log.take()
                self._requests.take()
                self._interval_s = now_s
            return
        figures, came = self._log.take(), self._requests.take()
        self._interval_s = now_s
        in_flight = self._haproxy.in_flight(stats)
        self._reports.give(
            RouterReport(
                service_file=self._text,
                at_s=time.time(),
                load_qps=came / passed_s,
                p50_ms=figures.p50_ms,
                p95_ms=figures.p95_ms,
                p99_ms=figures.p99_ms,
                queries=figures.queries,
                errors=figures.errors,
                violations=figures.violations,
                profile=self._folder.profile(),
                instances=tuple(view.reported(self._drains.chosen, in_flight(view.stem)) for view in self.views),
                endpoint=self.endpoint,
            )
        )

    def _reread(self) -> None:
        """Serve by the service's file as it is now; if it is not right, by the one before."""
        try:
            text, service = load_service(self._file)
            self._folder.refuse_another(ServiceFolder(self._file, service))
            self._haproxy.change(service)
        except (RouterError, RecordError) as error:
            if not isinstance(error, HaproxyError):  # which has been told
                self._say(f"{self._file} is not taken, the service goes on as before: {error}")
            return
        self._text, self.service = text, service
        self._log.target_ms = service.target_ms
        self._say(f"{self._file} was read again")
