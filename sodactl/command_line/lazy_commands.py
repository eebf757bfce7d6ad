"""Groups of commands whose modules are imported when a command is run, or asked for its own help."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import click
from click.shell_completion import CompletionItem

from slurm_soda.slurm_ext.errors import SodaError


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A sub-command by the name of its module and object, so that ``--help`` imports none of them."""

    target: str
    """``package.module:object``."""
    summary: str
    """Its line in ``sodactl --help``; a test compares it with the command's own."""
    extra: str = ""
    """The extra of the package that it needs."""

    def load(self) -> click.Command:
        """Import the command.

        Raises:
            SodaError: its module cannot be imported.
        """
        module_name, _, attribute = self.target.partition(":")
        try:
            command = getattr(importlib.import_module(module_name), attribute)
        except (ImportError, AttributeError) as error:
            remedy = (
                f"it needs the extra {self.extra}: pip install 'slurm-soda[{self.extra}]', in a checkout "
                f"pip install -e '.[{self.extra}]'{_DEBIAN.get(self.extra, '')}"
                if self.extra
                else "reinstall slurm-soda with its dependencies, or with the extra that this needs: docs/install.md"
            )
            raise SodaError(f"this command cannot be loaded: {error}; {remedy}") from error
        if not isinstance(command, click.Command):
            raise SodaError(f"{self.target} is not a command; reinstall slurm-soda")
        return command


_DEBIAN = {"simulator": ", as packages of Debian apt-get install slurm-soda-simulator"}
"""Of extras that are a package of Debian by themselves."""


class LazyGroup(click.Group):
    """A group that imports none of its commands to list them; a subclass names them in :attr:`sections`."""

    sections: ClassVar[Mapping[str, Mapping[str, LazyCommand]]] = {}
    """Commands by the title under which ``--help`` has them."""

    @property
    def lazy_commands(self) -> Mapping[str, LazyCommand]:
        """All of them by name, in the order of :attr:`sections`."""
        return {name: lazy for section in self.sections.values() for name, lazy in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self.lazy_commands.get(cmd_name)
        return lazy.load() if lazy else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click has it, which however guesses only among commands that are imported."""
        name = args[0]
        if name not in self.lazy_commands and not name.startswith("-") and not ctx.resilient_parsing:
            from slurm_soda.policies.errors import did_you_mean  # noqa: PLC0415 - few mistype

            raise click.UsageError(f"No such command {name!r}{did_you_mean(name, self.lazy_commands)}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names by prefix; click's own would import every command for it."""
        names = [
            CompletionItem(name, help=lazy.summary)
            for name, lazy in self.lazy_commands.items()
            if name.startswith(incomplete)
        ]
        return names if names or not incomplete.startswith("-") else click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, lazy.summary) for name, lazy in group.items()])
