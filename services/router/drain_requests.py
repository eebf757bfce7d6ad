"""What sodad wants drained, and the files that ask instances for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from slurm_soda.services.router.drains import WISH_LASTS_S, DrainCandidate, choose_drains
from slurm_soda.services.router.errors import FolderError
from slurm_soda.services.router.routed_instances import RoutedInstance
from slurm_soda.services.router.service_folder import ServiceFolder

CALLED_BACK_S = 10.0
"""So long an instance may take to say that it is ready, after the file that asked it to drain was removed."""


class DrainRequests:
    """Of one service. A router that begins goes on with the requests whose files it finds.

    Attributes:
        chosen: names of the instances that drain by request.
    """

    def __init__(self, folder: ServiceFolder, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._jobs: frozenset[int] | None = None
        """None: sodad has not said anything yet."""
        self._found: frozenset[str] | None = None
        """For whom there was a file when this router began; one that serves on until another is ready loses its file."""
        self._said_s = time.monotonic()
        self._asked_s: dict[str, float] = {}
        self.chosen: frozenset[str] = frozenset()
        self._refused: frozenset[str] = frozenset()

    def take(self, jobs: Collection[int]) -> None:
        """What sodad wants now."""
        self._jobs, self._said_s = frozenset(jobs), time.monotonic()

    def choose(self, views: Collection[RoutedInstance], asked: Collection[str]) -> None:
        """Choose who drains; ``asked`` are those for whom there is a file now."""
        now_s = time.monotonic()
        self._asked_s |= dict.fromkeys(asked, now_s)
        self._asked_s = {stem: at_s for stem, at_s in self._asked_s.items() if now_s - at_s < CALLED_BACK_S}
        wanted = self._wanted(views, asked, now_s)
        self.chosen = choose_drains({view.stem: self._candidate(view) for view in views}, wanted)
        refused = (wanted - self.chosen) & {view.stem for view in views}
        for stem in sorted(refused - self._refused):
            self._say(f"{stem} shall drain, and serves on: no other instance is ready")
        self._refused = refused

    def write_files(self, asked: Collection[str]) -> None:
        """Make the files as chosen, once HAProxy sends nothing more to those who drain."""
        for stem in sorted(self.chosen - set(asked)):
            self._change(self._folder.ask_to_drain, stem)
        for stem in sorted(set(asked) - self.chosen):
            self._change(self._folder.take_back_drain, stem)

    def _wanted(self, views: Collection[RoutedInstance], asked: Collection[str], now_s: float) -> frozenset[str]:
        if now_s - self._said_s > WISH_LASTS_S:
            return frozenset()
        if self._jobs is None:
            self._found = frozenset(asked) if self._found is None else self._found
            # A new run of a requeued job on the same node has the name of the one that was asked.
            self._found -= {view.stem for view in views if view.instance.state == "starting"} - set(asked)
            return self._found | frozenset(asked)
        return frozenset(view.stem for view in views if view.instance.job_id in self._jobs)

    def _candidate(self, view: RoutedInstance) -> DrainCandidate:
        called_back = view.instance.state == "draining" and view.stem in self._asked_s
        return DrainCandidate(
            ready=not view.silent and (view.instance.state == "ready" or called_back),
            answers=view.server.answers_checks,
            serves=view.may_serve and view.server.serves,
            since_s=view.instance.since_s,
        )

    def _change(self, change: Callable[[str], None], stem: str) -> None:
        try:
            change(stem)
        except (OSError, FolderError) as error:
            self._say(f"{stem}: the file that asks it to drain cannot be changed: {error}")
