"""Addresses of their own at which sodad serves something beside its API."""

from __future__ import annotations

import os
import socket

from slurm_soda.slurm_ext.errors import SodaError


def bind_own_address(section: str, listen: str, address: tuple[str, int] | None) -> socket.socket | None:
    """The address that ``listen`` of a section of the configuration names; ``None`` where it names none.

    Raises:
        SodaError: it cannot be bound.
    """
    if address is None:
        return None
    host, port = address
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=32)
    except OSError as error:
        # The text of the error names the address once more; of a name that cannot be looked up the number is below 0.
        because = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise SodaError(f"{section}: {listen} cannot be bound ({because}); change {section}.listen") from error
