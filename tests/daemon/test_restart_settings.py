"""Which changes of soda.toml follow only after a restart, and that all others are not said to."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_soda.daemon.settings.restart import changed_for_restart, restart_problems
from slurm_soda.daemon.settings.settings import Settings

AT_START: dict[str, Any] = {
    "state_dir": "/x",
    "wake_path": "/x",
    "store.url": "sqlite:////x",
    "api.host": "127.0.0.1",
    "api.port": 1,
    "api.report_host": "127.0.0.1",
    "api.report_port": 2,
    "metrics.listen": "127.0.0.1:3",
    "page.listen": "127.0.0.1:4",
    "sharing.gres": "other",
    "slurm.reader": "pyslurm",
    "slurm.write_timeout_s": 5.0,
    "slurm.accounting": False,
}
LIVE: dict[str, Any] = {
    "mode": "enforce",
    "cycle.interval_s": 5.0,
    "cycle.lease_s": 50.0,
    "api.public": False,
    "metrics.nodes": False,
    "scope.users": ["alice"],
    "sharing.partitions": ["p"],
    "store.keep_days": 9.0,
}


def settings(*changed: tuple[str, Any]) -> Settings:
    document: dict[str, Any] = {}
    for key, value in changed:
        section, _, name = key.rpartition(".")
        (document.setdefault(section, {}) if section else document)[name] = value
    return Settings.model_validate(document)


@pytest.mark.parametrize("key", AT_START)
def test_a_key_that_holds_from_the_start_on(key: str) -> None:
    now = settings((key, AT_START[key]), *LIVE.items())
    assert changed_for_restart(Settings(), now) == (key,)
    assert restart_problems(Settings(), now) == (
        f"{key} of soda.toml holds only once sodad is restarted: systemctl restart sodad",
    )
    assert changed_for_restart(now, now) == restart_problems(now, now) == ()


def test_several_are_named_together() -> None:
    (said,) = restart_problems(Settings(), settings(*AT_START.items(), *LIVE.items()))
    assert said.startswith(f"{', '.join(AT_START)} of soda.toml holds")
