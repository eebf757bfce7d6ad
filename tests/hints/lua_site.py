"""A site's lua state as slurmctld makes it, for tests: the ``slurm`` table and jobs as tables; strings are bytes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

LUA_DIR = Path(__file__).parents[2] / "slurm_ext" / "lua"
LUA_PARTS = ("soda_hints.lua", "soda_routes.lua", "soda_guests.lua")
LUA_VERSIONS = ["lua51", "lua52", "lua53", "lua54"]
"""Those that Slurm is built with."""

_SLURM = """
slurm = { SUCCESS = 0, ERROR = -1, told = {}, errors = {} }
function slurm.log_user(...) table.insert(slurm.told, string.format(...)) end
function slurm.log_error(...) table.insert(slurm.errors, string.format(...)) end
"""


class LuaSite:
    """One lua state with soda.lua as :attr:`soda`, and each part of it by itself; the wake file is where a test wants it."""

    def __init__(self, version: str, wake_path: Path | None = None) -> None:
        self.runtime: Any = import_module(f"lupa.{version}").LuaRuntime(encoding=None)
        self.runtime.execute(_SLURM.encode())
        self.soda = self.load("soda.lua")
        self.hints, self.routes, self.guests = map(self.load, LUA_PARTS)
        self.soda[b"wake_path"] = False if wake_path is None else str(wake_path).encode()

    def load(self, name: str) -> Any:
        """What a file of ours returns, loaded as a site loads it."""
        return self.runtime.globals()[b"dofile"](bytes(LUA_DIR / name))

    def table(self, values: dict[Any, Any]) -> Any:
        """A real lua table."""
        return self.runtime.table_from(values)

    def job(self, comment: bytes | None = None, env: list[bytes] | None = None) -> Any:
        """A job description; like slurmctld's, its list of variables begins at 0."""
        values = {} if comment is None else {b"comment": comment}
        job = self.table(values)
        if env:
            job[b"spank_job_env"] = self.table(dict(enumerate(env)))
        return job

    def said(self, where: str) -> list[str]:
        """What went to ``log_user`` (``told``) or ``log_error`` (``errors``)."""
        lines = self.runtime.globals()[b"slurm"][where.encode()].values()
        return [line.decode("ascii") for line in lines]
