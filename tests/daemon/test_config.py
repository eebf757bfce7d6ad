"""The configuration file: all defaults, and one helpful line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.daemon.settings.config_file import DaemonConfigError, load_settings
from slurm_soda.daemon.settings.settings import Settings


def test_every_default_is_usable() -> None:
    settings = Settings()
    assert (settings.mode, settings.policy.name) == ("observe", "soda")
    assert settings.store.url == "sqlite:////var/lib/slurm-soda/soda.db"


def test_a_file_overrides_defaults_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "soda.toml"
    file.write_text('mode = "enforce"\n[cycle]\ninterval_s = 5\n[policy.parameters]\nthresholds_gpu_s = [1.5, 2]\n')
    settings = load_settings(file)
    assert (settings.mode, settings.cycle.interval_s, settings.api.port) == ("enforce", 5.0, 6830)
    assert settings.policy.parameters == {"thresholds_gpu_s": [1.5, 2]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('mode = "on"', ["mode = 'on'", "'observe', 'advise' or 'enforce'"]),
        ("mode = 3", ["mode = 3", "'observe'"]),
        ("mod = 1", ["mod: no such key", "log_level, metrics, mode, page, policy"]),
        ('[cycle]\ninterval_s = "5"', ["cycle.interval_s = '5'", "a number"]),
        ("[cycle]\ninterval_s = 0", ["cycle.interval_s = 0", "more than 0"]),
        ("[cycle]\nevery = 1", ["cycle.every: no such key", "interval_s"]),
        ("cycle = 3", ["cycle = 3", "a table"]),
        ("[api]\nport = 1.5", ["api.port = 1.5", "a whole number"]),
        ("[api]\nport = 99999", ["api.port = 99999", "at most 65535"]),
        ('[sharing]\npartitions = ["a"]\ndifferent_users = ["a", "b"]',
         ["sharing.different_users = ['a', 'b']", "partitions that sharing.partitions names too"]),
        ("[services]\nhorizon_s = 90000", ["services.horizon_s = 90000", "at most 86400"]),
        ("[services]\ncool_down_s = inf", ["services.cool_down_s = inf", "a finite number"]),
        ("[cycle]\nlease_s = inf", ["cycle.lease_s = inf", "a finite number"]),
        ("[cycle]\nlease_s = 1e6", ["cycle.lease_s = 1000000.0", "at most 3600"]),
        ("[cycle]\nbusy_interval_s = nan", ["cycle.busy_interval_s = nan", "finite"]),
        ('state_dir = "soda"', ["state_dir = 'soda'", "expected a path that begins with /"]),
        ('wake_path = ""', ["wake_path = ''", "expected a path that begins with /"]),
        ('[pools]\ninclude_path = "/etc/slurm/a\\nb"', ["pools.include_path = '/etc/slurm/a\\nb'", "control characters"]),
        ('[slurm]\npyslurm_python = "python3"', ["slurm.pyslurm_python = 'python3'", "begins with /"]),
        ('[api]\nurl = "ctl:6830"', ["api.url = 'ctl:6830'", 'expected an address such as "http://ctl:6830"']),
        ('[scope]\nusers = ["a*"]', ["scope.users = ['a*']", "expected plain names"]),
        ('[api]\nreport_uids = ["root"]', ["api.report_uids.0 = 'root'", "a whole number"]),
        ("[slurm]\naccounting = 1", ["slurm.accounting = 1", "true or false"]),
        ("policy = [\n", ["not valid TOML"]),
        ("policy = " + 100_000 * "[", ["not valid TOML"]),
        ("policy = " + 5000 * "9", ["not valid TOML"]),
        (1024 * 1024 * "#" + "\n", ["longer than 1048576 bytes"]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_file_key_value_and_what_is_expected(
    tmp_path: Path, text: str, said: list[str]
) -> None:
    file = tmp_path / "soda.toml"
    file.write_text(text)
    with pytest.raises(DaemonConfigError) as caught:
        load_settings(file)
    line = str(caught.value)
    assert line.startswith(str(file))
    assert "\n" not in line
    for words in said:
        assert words in line


FOR_EVER = {
    "cycle.passing_limit_s", "cycle.skipping_limit_s", "change_limits.breaker_slow_s", "pools.reserve_after_s",
    "store.keep_days",
}  # fmt: skip
"""Keys of which an infinite number means something: never."""
CALLS_OF_SYSTEM = {
    "cycle.debounce_s", "slurm.read_timeout_s", "slurm.write_timeout_s", "slurm.accounting_timeout_s",
}  # fmt: skip
"""Handed to the system as they are, which takes no more than some days."""


@pytest.mark.parametrize(
    "key",
    [
        f"{table}.{key}"
        for table, section in Settings().model_dump().items()
        if isinstance(section, dict)
        for key, value in section.items()
        if isinstance(value, float)
    ],
)
def test_no_time_is_longer_than_what_is_done_with_it_can_take(tmp_path: Path, key: str) -> None:
    """Lifts of `lease_s = inf` would stay in Slurm for ever, and a sleep of `debounce_s = inf` ends the process."""
    file, (table, name) = tmp_path / "soda.toml", key.split(".")
    for value in ("inf", "nan", "1e10"):
        file.write_text(f"[{table}]\n{name} = {value}\n")
        if (value == "inf" and key in FOR_EVER) or (value == "1e10" and key not in CALLS_OF_SYSTEM):
            continue
        with pytest.raises(DaemonConfigError, match=rf"{key} = \S+: expected"):
            load_settings(file)


@pytest.mark.parametrize("key", sorted(FOR_EVER))
def test_what_may_last_for_ever(tmp_path: Path, key: str) -> None:
    table, name = key.split(".")
    (tmp_path / "soda.toml").write_text(f"[{table}]\n{name} = inf\n")
    assert load_settings(tmp_path / "soda.toml").model_dump()[table][name] == float("inf")


def test_bytes_that_are_no_text_are_said(tmp_path: Path) -> None:
    file = tmp_path / "soda.toml"
    file.write_bytes(b'mode = "\xff"')
    with pytest.raises(DaemonConfigError, match="not valid TOML"):
        load_settings(file)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(DaemonConfigError, match="No such file"):
        load_settings(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "text",
    ['store = "postgresql://soda:hunter2@h/db"', '[store]\nurl = ["postgresql://soda:hunter2@h/db"]'],
)
def test_a_mistake_about_the_store_does_not_show_its_password(tmp_path: Path, text: str) -> None:
    (tmp_path / "soda.toml").write_text(text)
    with pytest.raises(DaemonConfigError, match=r"soda\.toml: store.* = …: expected") as caught:
        load_settings(tmp_path / "soda.toml")
    assert "hunter2" not in str(caught.value)
