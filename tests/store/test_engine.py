"""Opening a store: versions, rights, concurrency, and that migrations and tables agree."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, inspect, select, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateTable

from slurm_soda.daemon.store import engine as store_engine
from slurm_soda.daemon.store import sqlite_engine
from slurm_soda.daemon.store.engine import MIGRATIONS, SCHEMA_VERSION, Store, known_versions, open_store, version_of
from slurm_soda.daemon.store.store_errors import StoreError, StoreMissingError, StoreVersionError
from slurm_soda.daemon.store.tables.scheduling import AdminSetting, Base, Job, JobRun
from tests.sampling import examples

NEXT_VERSION = f"{int(SCHEMA_VERSION) + 1:04}"
"""Of a program that knows one revision more."""


def test_a_fresh_store_is_made_by_the_migrations_and_equals_the_tables(store: Store) -> None:
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_the_comparison_sees_a_difference(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("ALTER TABLE job DROP COLUMN note"))
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) != []


def test_the_constant_is_the_newest_revision() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == SCHEMA_VERSION


def test_the_known_versions_are_those_of_alembic() -> None:
    revisions = {script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}
    assert known_versions() == revisions
    assert SCHEMA_VERSION in revisions


def test_the_first_schema_can_be_taken_back(store: Store) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with store.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert inspect(store.engine).get_table_names() == ["alembic_version"]
    assert version_of(store.engine) is None


def test_tables_are_named_after_their_classes() -> None:
    for mapper in Base.registry.mappers:
        name = mapper.class_.__name__.removesuffix("Row").removeprefix("Stored")
        assert mapper.class_.__tablename__ == re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_sqlite_runs_in_wal_mode_with_a_time_out_and_foreign_keys(sqlite_store: Store) -> None:
    with sqlite_store.read() as session:
        values = {name: session.execute(text(f"PRAGMA {name}")).scalar() for name in
                  ("journal_mode", "busy_timeout", "foreign_keys", "synchronous")}  # fmt: skip
    assert values == {"journal_mode": "wal", "busy_timeout": 10_000, "foreign_keys": 1, "synchronous": 2}


def test_a_file_that_cannot_be_put_into_wal_mode_now_is_not_opened(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it every reader would stop the daemon's writes."""
    monkeypatch.setattr(sqlite_engine, "_BUSY_TIMEOUT_MS", 1)
    sqlite_store.close()
    other = sqlite3.connect(tmp_path / "soda.db", isolation_level=None)
    assert other.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM job").fetchone()
    with pytest.raises(StoreError, match="locked"):
        open_store(f"sqlite:///{tmp_path}/soda.db")
    other.close()
    open_store(f"sqlite:///{tmp_path}/soda.db").close()


def test_a_run_without_its_job_is_refused(store: Store) -> None:
    with pytest.raises(IntegrityError), store.write() as session:
        session.add(JobRun(job_pk=99, restart=0, start_s=1.0))


def test_reopening_keeps_what_was_written(store_url: str) -> None:
    first = open_store(store_url)
    with first.write() as session:
        session.add(AdminSetting(key="mode", value="enforce", changed_s=1_700_000_000.25))
    first.close()
    second = open_store(store_url, migrate=False, create=False)
    with second.read() as session:
        setting = session.get(AdminSetting, "mode")
        assert setting is not None
        assert (setting.value, setting.changed_s) == ("enforce", 1_700_000_000.25)
    second.close()


def test_a_write_that_raises_leaves_no_trace(store: Store) -> None:
    def write_and_stop() -> None:
        with store.write() as session:
            session.add(AdminSetting(key="mode", value="enforce", changed_s=1.0))
            session.flush()
            raise KeyError("stop")

    with pytest.raises(KeyError):
        write_and_stop()
    with store.read() as session:
        assert session.get(AdminSetting, "mode") is None


def test_a_read_throws_changes_away(store: Store) -> None:
    with store.read() as session:
        session.add(AdminSetting(key="mode", value="enforce", changed_s=1.0))
        session.flush()
    with store.read() as session:
        assert session.get(AdminSetting, "mode") is None


@pytest.mark.parametrize("version", [NEXT_VERSION, "9999", "of somebody else"])
def test_a_store_of_a_newer_or_unknown_version_gives_one_clear_error(store_url: str, version: str) -> None:
    opened = open_store(store_url)
    with opened.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
    opened.close()
    with pytest.raises(
        StoreVersionError, match=rf"{store_url[-7:]} is at version '{version}', newer than .*; upgrade slurm-soda"
    ):
        open_store(store_url)
    with pytest.raises(StoreVersionError, match="newer"):
        open_store(store_url, migrate=False)


_NEXT_REVISION = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{NEXT_VERSION}", "{SCHEMA_VERSION}"


def upgrade():
    op.add_column("admin_setting", sa.Column("added", sa.Integer(), nullable=True))
"""


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Make this program one that knows one revision more, and return that one."""

    def upgrade_program() -> str:
        migrations = tmp_path / "migrations"
        shutil.copytree(MIGRATIONS, migrations)
        (migrations / "versions" / f"r{NEXT_VERSION}_next.py").write_text(_NEXT_REVISION)
        monkeypatch.setattr(store_engine, "MIGRATIONS", migrations)
        monkeypatch.setattr(store_engine, "SCHEMA_VERSION", NEXT_VERSION)
        return NEXT_VERSION

    return upgrade_program


def test_an_older_store_is_upgraded_and_keeps_its_rows(store_url: str, next_version: Callable[[], str]) -> None:
    first = open_store(store_url)
    with first.write() as session:
        session.add(AdminSetting(key="mode", value="enforce", changed_s=1.0))
    first.close()
    version = next_version()
    second = open_store(store_url)
    assert version_of(second.engine) == version
    with second.read() as session:
        assert session.execute(text("SELECT value, added FROM admin_setting")).all() == [("enforce", None)]
    second.close()


def test_a_reader_refuses_an_older_store_and_leaves_it(store_url: str, next_version: Callable[[], str]) -> None:
    opened = open_store(store_url)
    next_version()
    with pytest.raises(
        StoreVersionError, match=f"is at version '{SCHEMA_VERSION}', not yet '{NEXT_VERSION}'; restart sodad"
    ):
        open_store(store_url, migrate=False)
    assert version_of(opened.engine) == SCHEMA_VERSION
    opened.close()


def test_a_reader_does_not_migrate(tmp_path: Path) -> None:
    (tmp_path / "soda.db").touch()
    with pytest.raises(StoreVersionError, match=f"is empty, not yet '{SCHEMA_VERSION}'; restart sodad"):
        open_store(f"sqlite:///{tmp_path}/soda.db", migrate=False)


def test_a_reader_does_not_create(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError, match="does not exist; it is on the controller, where sodad makes it"):
        open_store(f"sqlite:///{tmp_path}/soda.db", migrate=False, create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("soda.db", "store.url is not a database URL; it looks like sqlite:////var"),
        ("secret:pass@word", "store.url is not a database URL"),
        ("sqlite:////nonexistent/dir/soda.db", "cannot be opened: No such file or directory; make its directory"),
        ("mysql+nope://root:secret@h/db", "install the driver or correct store.url"),
        ("nonsense://h/db", "install the driver or correct store.url"),
    ],
)
def test_a_url_that_cannot_work_gives_one_line_without_the_password(url: str, message: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "pass" not in str(caught.value)


def test_a_file_that_is_no_database_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "soda.db").write_text("[store]\nurl = 'x'\n" * 100)
    with pytest.raises(StoreError, match=r"file is not a database; check store\.url"):
        open_store(f"sqlite:///{tmp_path}/soda.db")


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE job (what TEXT)")
    for migrate in (True, False):
        with pytest.raises(StoreError, match=r"is a database of another program \(its tables: job\); point store\.url"):
            open_store(f"sqlite:///{path}", migrate=migrate)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("job",)]


def test_the_file_is_not_for_everybody(sqlite_store: Store, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "soda.db").stat().st_mode) & 0o007 == 0
    assert sqlite_store.url.endswith("soda.db")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_makes_the_file_for_the_owner_of_its_directory(owned: Path) -> None:
    store = open_store(f"sqlite:///{owned}/soda.db")
    made = [(owned / name).stat() for name in ("soda.db", "soda.db-wal", "soda.db-shm")]
    store.close()
    assert {(one.st_uid, one.st_gid) for one in made} == {(12345, 12346)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led astray")
@pytest.mark.parametrize("there", [True, False], ids=["a file of root's", "nothing yet"])
def test_root_follows_no_link_to_what_the_directory_s_owner_cannot_write(owned: Path, there: bool) -> None:
    secret = owned.parent / "root-only"
    secret.mkdir(mode=0o700)
    target = secret / "soda.db"
    if there:
        open_store(f"sqlite:///{target}").close()
    (owned / "soda.db").symlink_to(target)
    with pytest.raises(StoreError) as caught:
        open_store(f"sqlite:///{owned}/soda.db")
    assert "\n" not in str(caught.value)
    assert not there or caught.value.remedy == "make it his, and no link"
    assert target.exists() == there
    assert os.geteuid() == 0


@pytest.fixture
def owned() -> Iterator[Path]:
    """A directory of user 12345 that he can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="soda-store-") as place:
        Path(place).chmod(0o711)
        home = Path(place) / "var"
        home.mkdir()
        os.chown(home, 12345, 12346)
        yield home


def test_processes_may_make_the_same_store(empty_url: str) -> None:
    code = (
        "import sys; from slurm_soda.daemon.store.engine import open_store, version_of;"
        "print(version_of(open_store(sys.argv[1]).engine))"
    )
    argv = [sys.executable, "-c", code, empty_url]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    outcomes = [process.communicate() for process in running]
    assert [out.strip() for out, _ in outcomes] == [SCHEMA_VERSION] * 3, outcomes


def test_writers_wait_for_each_other_even_when_they_read_first(store: Store) -> None:
    with store.write() as session:
        session.add(AdminSetting(key="n", value="0", changed_s=0.0))

    def count_up() -> None:
        for _ in range(20):
            with store.write() as session:
                setting = session.get_one(AdminSetting, "n")
                setting.value = str(int(setting.value) + 1)

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as session:
        assert session.get_one(AdminSetting, "n").value == "80"


def test_a_reader_without_rights_to_write_still_reads(sqlite_store: Store, tmp_path: Path) -> None:
    with sqlite_store.write() as session:
        session.add(AdminSetting(key="mode", value="advise", changed_s=0.0))
    engine = create_engine(f"sqlite:///file:{tmp_path}/soda.db?mode=ro&uri=true")
    assert version_of(engine) == SCHEMA_VERSION


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    name=(st.binary(max_size=200) | st.text("\uef00\uefff\ueeff a", max_size=30).map(str.encode)).map(
        lambda raw: raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    )
)
def test_any_bytes_that_slurm_hands_on_come_back(store: Store, name: str) -> None:
    with store.write() as session:
        job = Job(
            job_id=1, submit_s=1.5, user=name[:80], account=name[:80], state="PENDING", name=name, hints={"model": name}
        )
        session.add(job)
        session.flush()
        key = job.id
    with store.read() as session:
        kept = session.scalars(select(Job).where(Job.id == key)).one()
        assert (kept.name, kept.user, kept.account) == (name, name[:80], name[:80])
        assert session.scalar(select(Job.id).where(Job.account == name[:80])) == key
        assert kept.hints == {"model": name}
    with store.write() as session:
        session.delete(session.get_one(Job, key))


@pytest.mark.parametrize(
    ("dialect", "double", "raw"),
    [(postgresql.dialect(), "DOUBLE PRECISION", "BYTEA"), (mysql.dialect(), "DOUBLE", "BLOB")],  # type: ignore[no-untyped-call]
    ids=["postgresql", "mariadb"],
)
def test_other_databases_keep_unix_seconds_and_raw_bytes(dialect: object, double: str, raw: str) -> None:
    for table in Base.metadata.sorted_tables:
        ddl = str(CreateTable(table).compile(dialect=dialect))  # type: ignore[arg-type]
        columns = {line.split()[0].strip('`"'): line for line in ddl.splitlines() if line.startswith("\t")}
        for name, line in columns.items():
            if name.endswith("_s"):
                assert f" {double}" in line or "JSON" in line, line
    assert raw in str(CreateTable(Base.metadata.tables["job"]).compile(dialect=dialect))  # type: ignore[arg-type]
