"""Where sodad listens, and to whom."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field, field_validator

from slurm_soda.daemon.settings.section import Section


class ApiSettings(Section):
    """``[api]``: where agents report to and what they may send; where users ask, and from where."""

    host: str = "0.0.0.0"  # noqa: S104 - for users on all hosts; every request is authenticated
    port: int = Field(default=6830, ge=0, le=65535)
    report_host: str = ""
    """Where agents report; empty: :attr:`host`."""
    report_port: int | None = Field(default=None, ge=0, le=65535)
    """Port where agents report; ``None``: :attr:`port`."""
    report_uids: list[int] = Field(default_factory=lambda: [0])
    """Users whose reports are believed."""
    max_report_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    public: bool = True
    """Users of any host may ask for jobs and status, within Slurm's PrivateData; otherwise only those of this one."""
    url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """Where sodactl finds sodad when it may not read the store; empty: on slurmctld's host, at :attr:`port`."""

    @property
    def has_report_address(self) -> bool:
        """Agents have an address of their own."""
        return bool(self.report_host) or self.report_port is not None

    @property
    def report_address(self) -> tuple[str, int]:
        """Host and port for reports."""
        return self.report_host or self.host, self.port if self.report_port is None else self.report_port


class _OwnAddressSettings(Section):
    """What sodad serves beside its API, at an address of its own."""

    example_port: ClassVar[int]

    listen: str = ""
    """``HOST:PORT``; empty: nowhere."""

    @field_validator("listen")
    @classmethod
    def _is_address(cls, listen: str) -> str:
        if listen and _split_address(listen) is None:
            at = cls.example_port
            raise ValueError(f'an address and a port, such as "127.0.0.1:{at}" or "[::1]:{at}"; "" for none')
        return listen

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port."""
        return _split_address(self.listen)


class MetricsSettings(_OwnAddressSettings):
    """``[metrics]``: figures for Prometheus, at an address of their own, where nobody has to say who he is."""

    example_port: ClassVar[int] = 6831

    nodes: bool = True
    """Also figures of each node and GPU, at ``/metrics/nodes``."""


class PageSettings(_OwnAddressSettings):
    """``[page]``: a web page for users, at an address of its own, for those who have a link of ``sodactl page``."""

    example_port: ClassVar[int] = 6832

    url: str = Field(default="", pattern=r"^(https?://[A-Za-z0-9._~:/\[\]%-]+)?$")
    """Where browsers reach it, such as that of a proxy with TLS before it; empty: :attr:`listen` itself."""
    session_hours: float = Field(default=12.0, gt=0, le=168)
    """After so long a user needs another link."""


def _split_address(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else "" if ":" in host else host
    if not (host and re.fullmatch(r"[A-Za-z0-9._:%-]+", host) and re.fullmatch(r"[0-9]{1,5}", port)):
        return None
    return (host, int(port)) if int(port) <= 65535 else None
