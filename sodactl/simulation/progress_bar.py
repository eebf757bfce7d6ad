"""A progress bar for what may take long: on stderr, only on a terminal, only after a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

_AFTER_S = 1.0


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Something to call with what is done, and of how much; None where no progress is shown."""
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        yield _ProgressBar(what, stack).show


class _ProgressBar:
    def __init__(self, what: str, stack: ExitStack) -> None:
        self._what, self._stack = what, stack
        self._update: Callable[[int, int], None] | None = None
        self._began_s = time.monotonic()

    def show(self, done: int, total: int) -> None:
        if self._update is None:
            if time.monotonic() - self._began_s < _AFTER_S or done >= total:
                return
            self._update = self._open()
        self._update(done, total)

    def _open(self) -> Callable[[int, int], None]:
        from rich.console import Console  # noqa: PLC0415 - slow to import, and most simulations end before
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        progress = self._stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
        task = progress.add_task(self._what)
        return lambda done, total: progress.update(task, completed=done, total=total)
