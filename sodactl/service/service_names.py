"""Names of services on the command line."""

from __future__ import annotations

import re

import click
from click.shell_completion import CompletionItem

from slurm_soda.slurm_ext.errors import SodaError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class _ServiceName(click.ParamType[str]):
    """A name as service files allow it; completed with those that sodad knows."""

    name = "service"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name."""
        if _NAME.fullmatch(value):
            return value
        return self.fail(
            f"{value!r} is no name of a service; names are small letters, digits and hyphens, as in the service file",
            param,
            ctx,
        )

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that sodad tells; none where it does not answer."""
        del param
        from slurm_soda.daemon.settings.config_file import load_settings  # noqa: PLC0415 - completion alone needs these
        from slurm_soda.sodactl.service.service_views import read_services  # noqa: PLC0415
        from slurm_soda.sodactl.site_access import CommandContext, SiteAccess  # noqa: PLC0415

        try:
            site = SiteAccess(load_settings(None), None, ctx.find_object(CommandContext) or CommandContext())
            return [
                CompletionItem(name)
                for name in sorted({service.name for service in read_services(site)})
                if name.startswith(incomplete)
            ]
        except SodaError:
            return []


SERVICE_NAME = _ServiceName()
