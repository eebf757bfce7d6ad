"""Names of models as people type them."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from slurm_soda.daemon.settings.config_file import load_settings
from slurm_soda.daemon.store import kind_profiles as stored
from slurm_soda.policies.tiresias.model_skews import normalise_model_name
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.sodactl.site_access import CommandContext, SiteAccess


class ModelName(click.ParamType[str]):
    """A model, however it is spelt; those that are known complete."""

    name = "model"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        plain = normalise_model_name(value)
        if not plain or len(plain) > 64:
            self.fail(f"{value!r} is no name of a model: it has 1 to 64 letters and digits", param, ctx)
        return plain

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, param
        try:
            site = SiteAccess(load_settings(None), None, CommandContext())
            with site.store() as store, store.read() as session:
                names = {row.model for row in stored.all_values(session)}
        except SodaError:
            return []  # whoever may not read the store types the name
        return [CompletionItem(name) for name in sorted(names) if name.startswith(normalise_model_name(incomplete))]
