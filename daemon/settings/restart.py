"""Which settings hold from the start of sodad to its end, whatever is in the file when it reads that again."""

from __future__ import annotations

from slurm_soda.daemon.settings.settings import Settings

_OF_SECTIONS = {
    "store": ("url",),
    "api": ("host", "port", "report_host", "report_port"),
    "metrics": ("listen",),
    "page": ("listen",),
    "sharing": ("gres",),
    "slurm": tuple(type(Settings().slurm).model_fields),
}
_OF_THE_FILE = ("state_dir", "wake_path")


def changed_for_restart(started: Settings, now: Settings) -> tuple[str, ...]:
    """Keys that are not what sodad was started with, and follow only when it is restarted."""
    plain = [key for key in _OF_THE_FILE if getattr(started, key) != getattr(now, key)]
    of_sections = [
        f"{section}.{key}"
        for section, keys in _OF_SECTIONS.items()
        for key in keys
        if getattr(getattr(started, section), key) != getattr(getattr(now, section), key)
    ]
    return (*plain, *of_sections)


def restart_problems(started: Settings, now: Settings) -> tuple[str, ...]:
    """For people: what was changed in vain; nothing if nothing was."""
    keys = changed_for_restart(started, now)
    return (
        (f"{', '.join(keys)} of soda.toml holds only once sodad is restarted: systemctl restart sodad",) if keys else ()
    )
