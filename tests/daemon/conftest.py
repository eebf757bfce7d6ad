"""A small cluster and daemons over it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.daemon.logs import LOGGER
from slurm_soda.daemon.store.engine import Store, open_store
from tests.daemon.fake_slurm import FakeClock, FakeSlurm
from tests.daemon.harness import Daemon, settings


@pytest.fixture(autouse=True)
def _quick_store(quick_store: None) -> None:
    """For daemons too that make their store themselves."""


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A daemon that reads its settings sets up logging, for the whole process."""
    handlers, propagate, level = LOGGER.handlers[:], LOGGER.propagate, LOGGER.level
    yield
    LOGGER.handlers[:], LOGGER.propagate = handlers, propagate
    LOGGER.setLevel(level)


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm(FakeClock())


@pytest.fixture
def fresh_store(made_store: Path, tmp_path: Path) -> Path:
    """A directory with an empty store."""
    shutil.copy(made_store, tmp_path / "soda.db")
    return tmp_path


@pytest.fixture
def store(fresh_store: Path) -> Iterator[Store]:
    """An empty store."""
    opened = open_store(f"sqlite:///{fresh_store}/soda.db")
    yield opened
    opened.close()


@pytest.fixture
def daemon(slurm: FakeSlurm, fresh_store: Path) -> Callable[..., Daemon]:
    """Starts a daemon; a second call starts the next daemon over the same store."""

    def start(ask: Any = None, reason_to_observe: Callable[[], str] = str, **more: Any) -> Daemon:
        return Daemon(slurm, fresh_store, settings(**more), ask=ask, reason_to_observe=reason_to_observe)

    return start
