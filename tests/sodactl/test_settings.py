"""``sodactl mode`` and ``sodactl policy``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_soda.daemon.store.tables.scheduling import AdminSetting
from slurm_soda.policies.registry.catalog import policy_names

from .conftest import NOW_S, Bench

KEYS = {"key", "value", "configured", "changed_by", "changed_s", "daemon_alive"}


def test_mode_shows_what_is_configured(soda: Bench) -> None:
    soda.daemon()
    document = soda("mode", "--json").document
    assert set(document) == KEYS | {"modes"}
    assert (document["value"], document["changed_by"], document["daemon_alive"]) == ("observe", None, True)
    assert "as configured" in soda("mode").out


@pytest.mark.parametrize("mode", ["observe", "advise", "enforce"])
def test_mode_sets_and_says_who(soda: Bench, mode: str) -> None:
    soda.daemon()
    out = soda("mode", mode).out
    assert out.startswith(f"mode {mode}: ")
    assert "set by root at 2023-11-14 22:13:20" in out
    with soda.store.read() as session:
        setting = session.get_one(AdminSetting, "mode")
        assert (setting.value, setting.changed_s, setting.changed_by) == (mode, NOW_S, "root")


def test_a_running_daemon_is_woken(soda: Bench, tmp_path: Path) -> None:
    soda.daemon()
    wake = tmp_path / "wake"
    soda.config.write_text(f'wake_path = "{wake}"\n[store]\nurl = "sqlite:///{tmp_path}/soda.db"\n')
    soda("mode", "advise")
    assert not wake.exists()
    wake.touch()
    os.utime(wake, (1, 1))
    soda("mode")
    assert wake.stat().st_mtime == 1
    soda("mode", "observe")
    assert wake.stat().st_mtime > 1


def test_nobody_listens(soda: Bench) -> None:
    assert "sodad is not running; it will follow this when it starts" in soda("mode", "advise").err


def test_before_the_first_start_of_sodad_the_configuration_is_shown(soda: Bench, tmp_path: Path) -> None:
    soda.config.write_text(f'mode = "advise"\n[store]\nurl = "sqlite:///{tmp_path}/none.db"\n')
    assert soda("mode").out.startswith("mode advise: ")
    for words in (("mode",), ("mode", "--json"), ("policy",)):
        said = soda(*words).err  # a login node has no store, and sodad may well run and enforce on the controller
        assert f"this {words[0]} is what the configuration of this host says, and another may be in force" in said
        assert "sodad is not running" not in said
    assert "tiresias-las" in soda("policy", "list").out
    assert "none.db does not exist" in soda("policy", "fifo", status=1).err
    assert not (tmp_path / "none.db").exists()


def test_policy_lists_all(soda: Bench) -> None:
    soda.daemon()
    document = soda("policy", "--json").document
    assert set(document) == KEYS | {"policies", "parameters"}
    assert [entry["name"] for entry in document["policies"]] == list(policy_names())
    lines = soda("policy", "list").out.splitlines()[1:]
    listed = {line.lstrip("* ").split()[0]: line for line in lines}
    assert list(listed) == list(policy_names())
    assert next(iter(listed)) == "soda"
    for entry in document["policies"]:
        assert listed[entry["name"]].endswith(entry["for_whom"])
    assert [name for name, line in listed.items() if line.startswith("*")] == [document["value"]]


@pytest.mark.parametrize("name", policy_names())
def test_policy_sets(soda: Bench, name: str) -> None:
    soda.daemon()
    assert f"policy {name}\n" in soda("policy", name).out
    assert soda("policy", "--json").document["value"] == name
    assert soda("status", "--json").document["policy"] == name


def test_parameters_are_shown_as_they_are_set(soda: Bench, tmp_path: Path) -> None:
    def values() -> dict[str, str]:
        lines = soda("policy").out.partition("meaning\n")[2].splitlines()
        return {line.split()[0]: line.split()[1] for line in lines}

    soda.daemon()
    assert values() == {"change_s": "60", "resolution": "1.75", "moves": "true"}
    tiresias = '[policy]\nname = "tiresias-las"\nparameters = {thresholds_gpu_s = [3250.5, 7200]}\n'
    soda.config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/soda.db"\n{tiresias}')
    assert values() == {
        "thresholds_gpu_s": "3250.5,7200", "within_queue": "small", "promote_knob": "inf", "min_run_s": "60",
        "packlimit": "inf",
    }  # fmt: skip
    for name in policy_names():
        shown = soda("policy", name).out
        assert not {"None", "False", "True", "()"} & set(shown.split()), name
        assert ",)" not in shown, name


def test_an_unknown_policy_is_refused(soda: Bench) -> None:
    shown = soda("policy", "sjf\x1b[31m", status=1)
    assert "sjf" in shown.err
    assert "fifo" in shown.err
    assert "\x1b" not in shown.err
    assert soda("policy", "--json").document["changed_by"] is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('name = "sodaa"', "there is no policy 'sodaa'"),
        ("parameters = {resolution = 0.5}", "resolution = 0.5 is not allowed; use a number from 1"),
        ("parameters = {resolutin = 2}", "did you mean resolution?"),
        ("parameters = {resolution = 2}", ""),
    ],
)
def test_a_configured_policy_that_sodad_refuses_is_not_shown_as_if_in_force(
    soda: Bench, tmp_path: Path, lines: str, said: str
) -> None:
    soda.config.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/soda.db"\n[policy]\n{lines}\n')
    found = soda("policy").err
    assert said in found
    assert ("sodad does not start before this is corrected" in found) == bool(said)


def test_a_name_and_list_together_are_wrong(soda: Bench) -> None:
    soda("policy", "fifo", "--list", status=2)
