"""Whether Slurm is set up to guard guests, by ``scontrol show config`` and the files that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.slurm_ext.read.site_guards import list_missing_guards, lua_code, our_scripts

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


def test_nobody_is_a_guest_where_somebody_else_reads_extra(tmp_path: Path) -> None:
    assert not missing(tmp_path, SchedulerParameters="bf_continue,no_extra_constraints")
    (told,) = missing(tmp_path, SchedulerParameters="bf_continue,extra_constraints")
    assert told.startswith("Extra: nobody can be one now: SchedulerParameters has extra_constraints: take it out")


CALL = "/opt/slurm-soda/libexec/prolog"
CALLED = {
    "as the last command": f"#!/bin/sh\nexec {CALL}\n",
    "after a test": f'#!/bin/sh\n[ ! -x {CALL} ] || {CALL} "$@" # ours\n',
    "from a folder of its own": '#!/bin/sh\nfor hook in "$soda"/libexec/prolog /site/other; do "$hook"; done\nexit 0\n',
    "itself": (TOP / "prolog/prolog").read_text(),
}
NOT_CALLED = {
    "by nothing": "#!/bin/sh\nexit 0\n",
    "by a comment": f"#!/bin/sh\n# slurm-soda's prolog: off for now\n  # {CALL}\n",
    "by a comment behind a command": f"#!/bin/sh\ntrue # {CALL}\n:;# {CALL}\n",
    "by a line that is never reached": f"#!/bin/sh\nexit 0\n{CALL}\n",
    "by another name": f"#!/bin/sh\n{CALL}.off\n/site/libexec/prologue\n",
}


@pytest.mark.parametrize("how", CALLED)
@pytest.mark.parametrize("name", ["site-prolog", "soda-prolog"])
def test_a_script_of_the_sites_may_call_ours(tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / name).write_text(CALLED[how])
    assert not missing(tmp_path, **{"Prolog[0]": f"{tmp_path}/{name}"})


@pytest.mark.parametrize("how", NOT_CALLED)
@pytest.mark.parametrize("name", ["site-prolog", "soda-prolog"])
def test_a_script_that_only_names_ours_guards_nobody(tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / name).write_text(NOT_CALLED[how])
    (told,) = missing(tmp_path, **{"Prolog[0]": f"{tmp_path}/{name}"})
    assert f"Prolog={tmp_path}/{name} does not run slurm-soda's prolog" in told


def test_our_own_hooks_are_known_by_what_they_do() -> None:
    for key, path in (("Epilog", "epilog/epilog"), ("EpilogSlurmctld", "epilog/epilogctld")):
        assert our_scripts({key: str(TOP / path)}, key) == [str(TOP / path)]


@pytest.mark.parametrize("call", ["submit", "modify"])
def test_a_site_script_without_our_calls_is_no_guard(tmp_path: Path, call: str) -> None:
    text = (TOP / "slurm_ext/lua/job_submit.lua").read_text().replace(f"return soda.{call}(", "return other(")
    (tmp_path / "job_submit.lua").write_text(f"-- soda.{call}(x)\n--[==[ off ]]\n soda.{call}(x)\n]==]\n{text}")
    (told,) = missing(tmp_path)
    assert "does not call soda.submit and soda.modify" in told


def test_comments_of_lua() -> None:
    text = 'a("-- no comment \\"--[[", \'--\') --[[ off\n]] b() -- off\n---[[ on\nc() --]]\nd() --[==[ ]] to the end\n'
    assert lua_code(text) == 'a("-- no comment \\"--[[", \'--\')  b() \n\nc() \nd() '
