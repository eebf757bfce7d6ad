"""PostgreSQL for tests: one server for all tests of a process, a new database for each."""

from __future__ import annotations

import pytest

from benchmarks.postgresql import PostgresqlMissingError, PostgresqlServer, shared_server
from tests.shared_statements import share_compiled_statements


def postgresql_server() -> PostgresqlServer:
    """The server; a test that needs it is skipped on a machine without PostgreSQL, which ``make test`` installs."""
    share_compiled_statements()
    try:
        return shared_server()
    except PostgresqlMissingError as error:
        pytest.skip(str(error))
