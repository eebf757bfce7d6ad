"""What can be wrong with a router."""

from __future__ import annotations

from slurm_soda.wire.errors import SodaError


class RouterError(SodaError):
    """The router cannot go on; names what is wrong and the remedy."""


class HaproxyError(RouterError):
    """HAProxy is missing, or refused its configuration or a command, in its own words."""


class FolderError(RouterError):
    """The service's folder cannot be used safely; names the path and the remedy."""


class ReportError(SodaError):
    """sodad did not take a report, or its answer is not believed; the text says why."""
