"""Real stores, made by the migrations: on SQLite and, where a test is about any database, on PostgreSQL too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.postgresql import new_store_url
from slurm_soda.daemon.store.engine import Store, open_store
from tests.postgresql import postgresql_server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """Which database the stores of a test are on."""
    return str(request.param)


@pytest.fixture
def empty_url(database: str, tmp_path: Path) -> str:
    """Of a database without tables."""
    return f"sqlite:///{tmp_path}/soda.db" if database == "sqlite" else postgresql_server().create()


@pytest.fixture
def store_url(database: str, made_store: Path, tmp_path: Path) -> str:
    """Of an empty store."""
    if database == "postgresql":
        postgresql_server()
        return new_store_url()
    shutil.copy(made_store, tmp_path / "soda.db")
    return f"sqlite:///{tmp_path}/soda.db"


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = open_store(store_url)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(made_store: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(made_store, tmp_path / "soda.db")
    opened = open_store(f"sqlite:///{tmp_path}/soda.db")
    yield opened
    opened.close()
