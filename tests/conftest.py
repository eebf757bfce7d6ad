"""How much of what can be tested is tested: ``pytest`` takes samples, ``pytest --thorough`` takes everything.

- Hypothesis draws 6 examples of a property (``--thorough``: 50), the same ones every time, so that a result tells about
  the change and not about the day. A property that says how many it needs gets them in the same proportion
  (:func:`tests.sampling.examples`). ``--hypothesis-profile=deep`` draws 500 new ones. No time limits: nothing here is a
  test of speed, and CI machines are slow.
- Of a test marked ``sample(n)``, ``n`` of its parameter sets run, spread over all of them, the same ones every time.
- A test marked ``thorough`` runs with ``--thorough`` only.

Ctrl-C works in all tests, also where pytest runs in the background of a shell that made it deaf to that.
"""

from __future__ import annotations

import gc
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import slurm_soda  # noqa: F401 - before NumPy, which reads how many threads to use when it is loaded
from tests.builds import made_once
from tests.sampling import spread, thorough

settings.register_profile(
    "default", max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=50)
settings.register_profile("deep", settings.get_profile("default"), max_examples=500, derandomize=False)
settings.load_profile("default")

gc.disable()  # until everything is collected, see pytest_collection_finish

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and so would what tests start


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="run every test with every parameter, and 50 examples")
    parser.addoption(
        "--slurm", default="24.11", help="release of Slurm in the containers: 24.11 (the default), 26.05 or 22.05"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--thorough") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("thorough")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a sample does not need; after ``-k`` and ``-m``, which thus find every parameter set."""
    if config.getoption("--thorough"):
        return
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = set().union(*map(sample_of, families.values()))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_collection_finish() -> None:
    """Keep the collector away from modules and thousands of tests, which stay: it would look at them again and again."""
    gc.freeze()
    gc.enable()


def sample_of(family: list[pytest.Item]) -> set[pytest.Item]:
    """What runs of the parameter sets of one test."""
    family = [item for item in family if item.get_closest_marker("thorough") is None]
    mark = family[0].get_closest_marker("sample") if family else None
    if mark is None:
        return set(family)
    return {family[at] for at in spread(len(family), *mark.args, seed=family[0].name.partition("[")[0])}


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once by the migrations: they take longer than a test."""
    from slurm_soda.daemon.store.engine import open_store  # noqa: PLC0415 - most tests need no database
    from tests.shared_statements import share_compiled_statements  # noqa: PLC0415 - as above

    share_compiled_statements()
    return made_once(tmp_path_factory, "store", lambda at: open_store(f"sqlite:///{at}/soda.db").close()) / "soda.db"


@pytest.fixture
def quick_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores need not outlive the machine: writes do not wait for the disk."""
    from slurm_soda.daemon.store import sqlite_engine  # noqa: PLC0415 - most tests need no database

    monkeypatch.setattr(sqlite_engine, "_SYNCHRONOUS", "OFF")


@pytest.fixture
def soon_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated run that never gets on is given up after 20 preemptions and 2 for each job, not after 1000 and 10."""
    from slurm_soda.simulator.engine import job_progress  # noqa: PLC0415 - most tests do not simulate

    monkeypatch.setattr(job_progress, "_MOST_FRUITLESS_PREEMPTIONS", 20)
    monkeypatch.setattr(job_progress, "_MOST_FRUITLESS_PER_JOB", 2)


@pytest.fixture
def few_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """``whatif`` simulates 2 variants of a short dump, and 10 with ``--thorough`` as for people."""
    from slurm_soda.simulator.whatif import candidate_runs  # noqa: PLC0415 - most tests do not simulate

    if not thorough():
        monkeypatch.setattr(candidate_runs, "_MOST", 2)
