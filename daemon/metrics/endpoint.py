"""Where metrics are shown: an address of their own, without MUNGE, because Prometheus has none.

Who reads slowly is bounded as at all addresses of sodad (:mod:`slurm_soda.daemon.api.connection_limits`), and more tightly.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from fastapi import APIRouter

from slurm_soda.daemon.api.connection_limits import ConnectionLimits
from slurm_soda.daemon.api.own_address import bind_own_address
from slurm_soda.daemon.settings.addresses import MetricsSettings

METRICS_LIMITS = ConnectionLimits(connections=16, per_peer=8, header_s=5.0, body_s=5.0, answer_s=20.0)
"""An answer about 1000 nodes has 2 MB, of which each connection may keep a copy."""


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """A bound address and what is shown there."""

    socket: socket.socket
    router: APIRouter
    limits: ConnectionLimits = METRICS_LIMITS

    @property
    def port(self) -> int:
        """As bound."""
        return int(self.socket.getsockname()[1])


def bind_metrics(settings: MetricsSettings) -> socket.socket | None:
    """The address that is configured; ``None`` where none is.

    Raises:
        SodaError: it cannot be bound.
    """
    return bind_own_address("metrics", settings.listen, settings.address)
