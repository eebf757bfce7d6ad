"""What may be wrong with the store, each with its remedy."""

from __future__ import annotations

from pathlib import Path

from slurm_soda.daemon.store.store_failures import new_store_command, restore_command
from slurm_soda.slurm_ext.errors import SodaError


class StoreError(SodaError):
    """The store cannot be opened or used; names the database and the remedy."""

    def __init__(self, found: str, remedy: str = "") -> None:
        super().__init__("; ".join(filter(None, (found, remedy))))
        self.found, self.remedy = found, remedy


class StoreDeniedError(StoreError):
    """This user may not read the store, or not write it."""


class StoreUnusableError(StoreError):
    """Only a person can help: starting sodad again changes nothing."""


class StoreRemovedError(StoreUnusableError):
    """The store was removed or replaced under sodad, or since: nobody would see what is written now."""

    def __init__(self, found: str, path: Path) -> None:
        restore, new = (
            f"as root: systemctl stop sodad; {command}; systemctl start sodad"
            for command in (restore_command(), new_store_command(path))
        )
        super().__init__(found, f"to restore a backup, {restore}; to begin with an empty store, {new}")


class StoreLogRemovedError(StoreUnusableError):
    """The write-ahead log was removed under sodad: others write another one, which sodad does not see, nor they its own."""

    def __init__(self, url: str, path: Path) -> None:
        super().__init__(
            f"the write-ahead log of store {url} ({path}-wal or {path}-shm) was removed while sodad had it open, so sodad "
            "changes nothing more",
            "systemctl restart sodad, and set again what sodactl has set since",
        )


class StoreMissingError(StoreError):
    """There is no store, and the caller did not want to make one."""

    def __init__(self, found: str, path: Path) -> None:
        super().__init__(found, "it is on the controller, where sodad makes it at its first start")
        self.path = path

    def as_begun(self, pid: int) -> StoreBegunError:
        """What this means where a sodad lives that has not had the store open yet."""
        return StoreBegunError(
            f"{self.found}: sodad (pid {pid}) is making it",
            "ask again in a few seconds; if store.url was changed while it ran, restart it",
        )

    def as_lost(self, because: str) -> StoreRemovedError:
        """What this means where sodad is known to have had the store."""
        return StoreRemovedError(f"{self.found}, but {because}", self.path)


class StoreBegunError(StoreError):
    """A sodad is making the store at this moment."""


class StoreDamagedError(StoreUnusableError):
    """The file is not a sound database."""


class StoreForeignError(StoreUnusableError):
    """The database is that of another program."""


class StoreVersionError(StoreUnusableError):
    """The store was written by a newer slurm-soda, or must first be upgraded."""
