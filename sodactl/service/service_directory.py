"""Files that `sodactl service` puts into the directory of a service, which instances run and the router believes."""

from __future__ import annotations

import os
import secrets
import stat

from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl.service.service_on_disk import ServiceOnDisk
from slurm_soda.wire.atomic_files import write_at


def put_file(
    found: ServiceOnDisk, name: str, content: bytes, *, mode: int = 0o600, beside: tuple[str, ...] = ()
) -> None:
    """Make the service's directory where it is missing, and put a file into it, whole or not at all.

    Args:
        found: the service.
        name: of the file.
        content: of the file, over any earlier one.
        mode: of the file.
        beside: directories that are made in the service's, too.

    Raises:
        SodaError: the directory cannot be made or written, or is not this user's; or others may write in the folder.
    """
    try:
        found.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        refuse_foreign(found)
        for path in (found.directory, *(found.directory / one for one in beside)):
            path.mkdir(mode=0o700, exist_ok=True)
        directory = os.open(found.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(directory).st_uid != os.geteuid():
                raise SodaError(f"{found.directory} is not yours; set folder in {found.path} to one of your own")
            os.fchmod(directory, stat.S_IMODE(os.fstat(directory).st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
            write_at(directory, name, content, temporary=f".{name}.{secrets.token_hex(8)}", mode=mode)
        finally:
            os.close(directory)
    except OSError as error:
        raise SodaError(
            f"{found.directory} cannot be written: {error.strerror}; set folder in {found.path} to one that you may write"
            " and that nodes see"
        ) from error


def refuse_foreign(found: ServiceOnDisk) -> None:
    """Refuse a folder of others: there they could put their own program in the place of the one that the tasks run.

    Raises:
        SodaError: it is another user's, or others may write there.
        OSError: it cannot be looked at.
    """
    folder = found.folder.stat()
    if folder.st_uid != os.geteuid():
        raise SodaError(f"{found.folder} is not yours; set folder in {found.path} to one of your own")
    if folder.st_mode & stat.S_IWOTH:
        raise SodaError(
            f"{found.folder} can be written by others; chmod o-w it, or set folder in {found.path} to another"
        )
