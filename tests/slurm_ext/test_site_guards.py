"""Whether Slurm is set up to guard guests, by ``scontrol show config`` and the files that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.slurm_ext.read.site_guards import list_missing_guards

TOP = Path(__file__).parents[2]
GOOD = {
    "Prolog[0]": "/opt/slurm-soda/libexec/prolog",
    "Epilog": "/opt/slurm-soda/libexec/epilog",
    "JobSubmitPlugins": "require_timelimit,lua",
    "PrologEpilogTimeout": "75",
}


def missing(tmp_path: Path, **settings: str) -> list[str]:
    config = GOOD | {"SLURM_CONF": f"{tmp_path}/slurm.conf"} | settings
    return [f"{found.check}: {found.sentence}" for found in list_missing_guards(config)]


def test_a_site_that_runs_all_lacks_nothing(tmp_path: Path) -> None:
    assert not missing(tmp_path), "a script that cannot be read here is on another machine"
    (tmp_path / "job_submit.lua").write_text((TOP / "slurm_ext/lua/job_submit.lua").read_text())
    assert not missing(tmp_path)


@pytest.mark.parametrize(("key", "what"), [("Epilog", "prolog/epilog"), ("JobSubmitPlugins", "guard")])
def test_what_slurm_conf_does_not_name_is_told(tmp_path: Path, key: str, what: str) -> None:
    (told,) = missing(tmp_path, **{key: "(null)"})
    assert told.startswith(f"{what}: nobody can be one now: {key}=(null)")


def test_a_script_of_the_sites_may_call_ours(tmp_path: Path) -> None:
    script = tmp_path / "site-prolog"
    script.write_text("#!/bin/sh\nexec /opt/slurm-soda/libexec/prolog\n")
    assert not missing(tmp_path, **{"Prolog[0]": str(script)})
    script.write_text("#!/bin/sh\nexit 0\n")
    assert str(script) in missing(tmp_path, **{"Prolog[0]": str(script)})[0]


@pytest.mark.parametrize("call", ["submit", "modify"])
def test_a_site_script_without_our_calls_is_no_guard(tmp_path: Path, call: str) -> None:
    text = (TOP / "slurm_ext/lua/job_submit.lua").read_text().replace(f"return soda.{call}(", "return other(")
    (tmp_path / "job_submit.lua").write_text(f"-- soda.{call}(x)\n{text}")
    (told,) = missing(tmp_path)
    assert "does not call soda.submit and soda.modify" in told
