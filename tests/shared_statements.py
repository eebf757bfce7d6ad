"""Stores of one test process compile a statement once, not once each: for many tests that is most of their time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import Engine, util
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from slurm_soda.daemon.store import server, sqlite_engine


@cache
def share_compiled_statements() -> None:
    """From now on all stores have one cache. SQLAlchemy's key has the dialect in it, of which each engine has its own."""
    statements: Any = util.LRUCache(5000)

    def sharing(create: Callable[..., Engine]) -> Callable[..., Engine]:
        def create_and_share(*arguments: Any, **options: Any) -> Engine:
            made = create(*arguments, **options)
            made._compiled_cache = statements
            return made

        return create_and_share

    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        dialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
        dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
    for module in (sqlite_engine, server):
        module.create_engine = sharing(module.create_engine)  # type: ignore[attr-defined]
