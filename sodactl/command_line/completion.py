"""``sodactl completion``: the script that teaches a shell our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_SODACTL_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script for shell completion.

    \b
    Examples:
      eval "$(sodactl completion bash)"                                  now, in this shell
      sodactl completion bash > /etc/bash_completion.d/sodactl           for everybody
      sodactl completion zsh > "${fpath[1]}/_sodactl"
      sodactl completion fish > ~/.config/fish/completions/sodactl.fish
    """  # noqa: D301 - click reads the control character
    complete = get_completion_class(shell)
    if complete is None:
        raise click.UsageError(f"no completion for {shell}")
    # click's base class would first run bash to learn its version; the script itself needs nothing but its name.
    click.echo(complete(ctx.find_root().command, {}, "sodactl", _VARIABLE).source())
